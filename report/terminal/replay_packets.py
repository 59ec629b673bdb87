"""The packet-level replay on a terminal: completion, queues, pauses and order by strategy."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ...replay.results import (
    AS_CAPTURED,
    EXACT,
    Chance,
    FabricSummary,
    PacketReplay,
    PausedPort,
    PauseSummary,
    ReplayResult,
    StrategyResult,
    SwitchHash,
    TrafficSummary,
    short_titles,
)
from .. import human
from .page import Page, folded, numbers, texts

# Parts that the reports of replays, sweeps and traces share.

NONE = "-"
_MAPPED = 8
"""Addresses printed with their host."""
_HASHES = 8
"""Switches whose hash is printed, per origin."""
_SEEDS_FROM = {
    "fabric": "Seeds of the fabric",
    "option": "Seeds of the options",
    "default": "Hash or seed not known, seeds derived from 0",
}


def print_head(
    page: Page, traffic: TrafficSummary, fabric: FabricSummary, warnings: list[str]
) -> None:
    """The traffic, the fabric and the warnings."""
    several = f"{len(traffic.sources)} captures"
    name = traffic.sources[0] if len(traffic.sources) == 1 else several
    sprayed = f" ({human.count(traffic.units)} entropy values)"
    text = (
        f"{name}: {human.counted(traffic.flows, 'flow')}"
        f"{sprayed if traffic.units > traffic.flows else ''}, "
        f"{human.size(traffic.wire_bytes)}, {human.counted(traffic.hosts, 'host')}"
    )
    page.line(text, "bold")
    down = f", {fabric.links_down} down" if fabric.links_down else ""
    page.say(
        f"on {fabric.spec}: {human.counted(fabric.switches, 'switch', 'switches')}, "
        f"{human.counted(fabric.hosts, 'host')}, "
        f"{human.count(fabric.links)} one-way links{down}"
    )
    mapping = traffic.mapping
    if mapping is not None and mapping.rule != EXACT:
        pairs = [f"{address} {host}" for address, host in mapping.hosts.items()]
        more = ", ..." * (len(pairs) > _MAPPED)
        page.say(f"mapping: {mapping.rule}; {', '.join(pairs[:_MAPPED])}{more}")
    page.warn(warnings)


def fim(value: float | None) -> str:
    """A FIM in percent, `-` without load."""
    return NONE if value is None else f"{value:.1f}"


def factor(value: float | None) -> str:
    """How many times the mean, `-` without load."""
    return NONE if value is None else f"{value:.2f}"


def chance_text(chance: Chance | None) -> str:
    """`24.2 (18 to 31)`: the mean, and the range of 90 % of random draws."""
    return NONE if chance is None else f"{chance.mean:.1f} ({chance.p05:.0f} to {chance.p95:.0f})"


def say_hashes(page: Page, switches: list[SwitchHash]) -> None:
    """The hash of every switch of a fabric that sets some."""
    for origin, words in _SEEDS_FROM.items():
        those = [switch for switch in switches if switch.seed_from == origin]
        if those:
            hashes = [f"{s.switch} {s.hash} ({s.fields}) 0x{s.seed:x}" for s in those[:_HASHES]]
            more = f", and {len(those) - _HASHES} more: --format json" * (len(those) > _HASHES)
            page.say(f"{words}: {', '.join(hashes)}{more}.", "dim")


def captured_links(results: Sequence[StrategyResult]) -> str:
    """Over which links the loads as captured are, where those of the strategies are over more."""
    counts = [sum(layer.links for layer in result.layers if layer.choice) for result in results]
    if results[0].name != AS_CAPTURED or counts[0] >= max(counts):
        return ""
    return (
        f"The row {AS_CAPTURED} is over the {human.counted(counts[0], 'captured link')} with a "
        f"choice, the other rows are over all {human.count(max(counts))}."
    )


# Pauses of PFC on a terminal.

_MOST_CAUSES = 3
_MOST_STORMS = 3


def print_pauses(page: Page, pfc: PauseSummary) -> None:
    """How far the pauses of the first run spread, and whose queues caused them."""
    if pfc.lost_without_headroom:
        lost = human.counted(pfc.lost_without_headroom, "packet")
        page.warn([f"{lost} dropped because the headroom of a port was full."])
    if not pfc.ports:
        page.say("PFC paused no port in the first run.", "dim")
        _say_settings(page, pfc)
        return
    page.draw(lambda table: _layers(table, pfc.ports, len(pfc.priorities) > 1))
    causes = ", ".join(pfc.causes[:_MOST_CAUSES])
    more = len(pfc.causes) - _MOST_CAUSES
    text = f"PFC, first run: queues that caused pauses: {causes or 'none found'}"
    text += f" and {more:,} more. " if more > 0 else ". "
    if pfc.victim_flows is None:
        text += "Too many flows and links to count victims."
    else:
        text += f"Victims, flows that waited but use none of these links: {pfc.victim_flows:,}."
    page.say(text, "dim")
    _say_settings(page, pfc)
    if pfc.storms:
        page.warn([_storms(pfc)])


def _say_settings(page: Page, pfc: PauseSummary) -> None:
    """What `--lossless pfc` needs to repeat the result, defaults filled in."""
    settings = ", ".join(f"{key} {value}" for key, value in pfc.settings.items())
    page.say(f"PFC, in bytes of a switch or port: {settings}.", "dim")


def _storms(pfc: PauseSummary) -> str:
    """The ports that were paused for too long, and since when."""
    first = pfc.storms[:_MOST_STORMS]
    ports = ", ".join(
        f"{port.port} ({port.priority}, after {human.duration(port.storm_ns or 0)}, "
        f"{_longest([port])}{'' if port.endless else ' long'})"
        for port in first
    )
    more = len(pfc.storms) - len(first)
    ports += f" and {human.counted(more, 'port')} more" if more else ""
    after = human.duration(pfc.storm_after_ns)
    return f"Pause storm, first run: paused for {after} or longer without a break: {ports}."


def _longest(ports: list[PausedPort]) -> str:
    """The longest pause."""
    if any(port.endless for port in ports):
        return "endless"
    return human.duration(max(port.longest_ns for port in ports))


def _layers(table: Table, ports: list[PausedPort], several: bool) -> None:
    """One row per layer, direction and class of data, longest pauses first."""
    texts(table, "paused ports", *(["priority"] if several else []))
    numbers(table, "ports", "pauses", "longest")
    folded(table, "most time in pauses")
    numbers(table, "paused", "victims")
    by_layer: dict[tuple[str, str], list[PausedPort]] = {}
    for port in ports:
        by_layer.setdefault((port.layer, port.priority), []).append(port)
    for (layer, priority), members in by_layer.items():
        worst = members[0]
        known = [port.victims for port in members if port.victims is not None]
        table.add_row(
            layer,
            *([priority] if several else []),
            human.count(len(members)),
            human.count(sum(port.pauses for port in members)),
            _longest(members),
            worst.port,
            human.duration(worst.paused_ns),
            human.count(max(known)) if known else NONE,
        )


_CONDITIONS = (
    "recovery", "reordering", "rto", "linear", "retries", "mpr", "congestion", "rate", "fail",
    "converge",
)  # fmt: skip
_WIDTH = 40
"""Characters of a load over time."""

_ALIKE = 1.001
"""Completion times within this ratio count as equal: captured times determine them."""

_OFFERS = {
    "captured": "Offered load: every packet at its captured time.",
    "pattern": "Offered load: as fast as possible.",
    "jobs": "Offered load: jobs; a message or computation begins when its dependencies are done.",
    "asap": "Offered load: as fast as possible; messages keep the dependencies of the capture.",
    "closed": "Offered load: a closed loop; messages keep the dependencies and computing gaps of "
    "the capture.",
}


def print_packets(page: Page, result: ReplayResult) -> None:
    """The strategies side by side, below the loads as captured."""
    known = [strategy for strategy in result.strategies if strategy.packets is not None]
    page.section("Strategies, packet by packet", _verdict(known))
    page.draw(lambda table: _strategies(table, result.strategies))
    if note := captured_links(result.strategies):
        page.say(note, "dim")
    for line in _small_print(known):
        page.say(line, "dim")
    if any(strategy.packets and strategy.packets.jobs for strategy in known):
        page.section("Jobs", _jobs_verdict(known))
        page.draw(lambda table: _jobs(table, known))
        page.say("The bound of a job is that of the job alone on the idle fabric.", "dim")


def print_strategy(page: Page, strategy: StrategyResult, top: int) -> None:
    """The queues of one strategy, and the `top` flows that complete last."""
    page.section(strategy.title)
    page.warn(strategy.notes)
    say_hashes(page, strategy.switches)
    page.draw(lambda table: _queues(table, strategy))
    if strategy.packets is not None and strategy.packets.pfc is not None:
        print_pauses(page, strategy.packets.pfc)
    if any(layer.choice and layer.over_time for layer in strategy.layers):
        page.draw(lambda table: _over_time(table, strategy, page))
    if any(max(link.queue_bytes_over_time or (0,)) for link in strategy.links):
        page.draw(lambda table: _queues_over_time(table, strategy, page))
    if strategy.packets is not None and strategy.packets.flows:
        page.draw(lambda table: _latest(table, strategy.packets, top))  # type: ignore[arg-type]


def _verdict(known: list[StrategyResult]) -> str:
    done = [row for row in known if row.completion_time_ns]
    if not done:
        return "No strategy delivered all packets."
    best = min(done, key=lambda row: row.completion_time_ns or 0)
    worst = max(row.completion_time_ns or 0 for row in known)
    assert best.packets is not None and best.completion_time_ns is not None
    alike = len(done) == len(known) > 1 and worst <= best.completion_time_ns * _ALIKE
    name = short_titles(known)[known.index(best)]
    first = f"{name} completes{' first,' if len(known) > 1 else ''}"
    text = f"{'All complete' if alike else first} in "
    least, most = map(human.duration, (best.completion_time_ns, worst))
    text += f"{least} to {most}" if alike and most != least else least
    over = best.packets.over_bound_percent
    if over is not None:
        text += f", {over.mean:.1f} percent over the lower bound"
    if alike:
        pairs = zip(short_titles(known), known, strict=True)
        queues = {name: row.packets.max_queue_packets.mean for name, row in pairs if row.packets}
        short = min(queues, key=lambda name: queues[name])
        text += f"; {short} has the shortest queues" if len(set(queues.values())) > 1 else ""
    return text + "."


def _strategies(table: Table, known: list[StrategyResult]) -> None:
    folded(table, "strategy")
    lost = any(row.packets and (_lost(row.packets) or row.packets.trimmed) for row in known)
    retransmits = any(
        row.packets and row.packets.model.get("recovery", "none") != "none" for row in known
    )
    runs = any(row.packets and row.packets.runs > 1 for row in known)
    headings = ["completion", *(("min to max",) if runs else ()), "over bound", "max queue"]
    headings += ["reordered", *(("lost", "trimmed") if lost else ())]
    captured = any(row.packets is None for row in known)
    headings += [*(("retrans",) if retransmits else ()), *(("x fair",) if captured else ())]
    numbers(table, *headings)
    for row in known:
        packets = row.packets
        fair = [factor(row.max_over_mean)] * captured
        if packets is None:  # as captured
            table.add_row(row.title, *[NONE] * (len(headings) - 1), *fair)
            continue
        cells = [row.title, human.duration(row.completion_time_ns)]
        if runs:
            cells.append(_range(packets))
        over, order = packets.over_bound_percent, packets.received
        cells.append(NONE if over is None else f"{over.mean:.1f} %")
        cells.append(f"{packets.max_queue_packets.mean:.0f}")
        cells.append(NONE if order is None else f"{order.reordered_percent:.1f} %")
        if lost:
            cells += [human.count(_lost(packets)), human.count(packets.trimmed)]
        if retransmits:
            cells.append(human.count(packets.sent_again))
        table.add_row(*cells, *fair)


def _jobs_verdict(known: list[StrategyResult]) -> str:
    """A job that did not complete, in as many runs as possible; else the one farthest over its
    bound."""
    every = [(job, row) for row in known if row.packets for job in row.packets.jobs]
    every.sort(key=lambda item: item[0].completed_runs)
    for job, row in every:
        if row.packets and job.completed_runs < row.packets.runs:
            runs, failed = row.packets.runs, row.packets.runs - job.completed_runs
            some = f" in {failed:,} of {runs:,} runs" if job.completed_runs else ""
            return f"{job.name} under {row.title} did not complete{some}."
    jobs = [
        (job.over_bound_percent.mean, job.name, row)
        for job, row in every
        if job.over_bound_percent is not None
    ]
    if not jobs:
        return "No bound of a job is known."
    over, name, row = max(jobs, key=lambda item: item[0])
    return f"Largest distance to the lower bound: {name} under {row.title}, {over:.1f} percent."


def _jobs(table: Table, known: list[StrategyResult]) -> None:
    """The jobs under every strategy, job by job."""
    packets = [result.packets for result in known if result.packets is not None]
    several = any(job.iteration_ns for result in packets for job in result.jobs)
    runs = any(result.runs > 1 for result in packets)
    classes = any("classes" in result.model for result in packets)
    texts(table, "job", *(["priority"] if classes else []), "strategy")
    numbers(table, "workers", "completion", *(("longest run",) if runs else ()), "over bound")
    numbers(table, *(("iteration",) if several else ()))
    for number in range(max(len(result.jobs) for result in packets)):
        for name, strategy in zip(short_titles(known), known, strict=True):
            if strategy.packets is None:
                continue
            job = strategy.packets.jobs[number]
            done, each, over = job.completion_ns, job.iteration_ns, job.over_bound_percent
            cells = [job.name, *([job.priority] if classes else []), name]
            cells.append(human.count(job.workers))
            cells.append(NONE if done is None else human.duration(done.mean))
            if runs:
                cells.append(NONE if done is None else human.duration(done.max))
            cells.append(NONE if over is None else f"{over.mean:.1f} %")
            if several:
                cells.append(NONE if each is None else human.duration(each.mean))
            table.add_row(*cells)


def _lost(packets: PacketReplay) -> int:
    """Dropped by queues, lost on failed links or without a route; ACKs included."""
    return packets.dropped + packets.lost_on_links + packets.no_route


def _range(packets: PacketReplay) -> str:
    if packets.completion_ns is None:
        return NONE
    low, high = packets.completion_ns.min, packets.completion_ns.max
    return f"{human.duration(low)} to {human.duration(high)}"


def _small_print(known: list[StrategyResult]) -> list[str]:
    first = known[0].packets
    assert first is not None
    hops = sum(strategy.packets.hops for strategy in known if strategy.packets)
    kinds = f"The lower bound counts {first.bound}." if first.bound else ""
    runs = [strategy.packets.runs for strategy in known if strategy.packets]
    some = "at most " if min(runs) < max(runs) else ""  # interrupted
    text = f"{some}{human.counted(max(runs), 'run')} each, {human.count(hops)} packet hops."
    text = text[0].upper() + text[1:]
    lines = [f"{text} {kinds} Queues in packets, mean of the runs; reordering of the first run."]
    if first.model.get("offer") in _OFFERS:
        lines.append(_OFFERS[first.model["offer"]])
    elif "offer" in first.model:
        lines.append(f"Offered load: {first.model['offer']}.")
    settings = [f"{key} {first.model[key]}" for key in _CONDITIONS if key in first.model]
    if settings != ["recovery none"]:
        lines.append(
            f"Conditions: {', '.join(settings)}. The lower bound has the same rate and no failures."
        )
    return lines


def _queues(table: Table, strategy: StrategyResult) -> None:
    assert strategy.packets is not None
    shares = {layer.layer: layer for layer in strategy.layers}
    marked = any(queue.ecn_marked for queue in strategy.packets.layers)
    texts(table, "layer")
    headings = ["links", "queue p50", "p99", "max", "max bytes", "FIM % bytes", "x fair"]
    if busy := any(layer.over_time for layer in strategy.layers):
        headings.append("peak")
    numbers(table, *[*headings, *(("marked",) if marked else ())])
    for queue in strategy.packets.layers:
        layer = shares.get(queue.layer)
        cells = [
            queue.layer,
            NONE if layer is None else human.count(layer.links),
            human.count(queue.p50_packets),
            human.count(queue.p99_packets),
            human.count(queue.max_packets),
            human.size(queue.max_bytes),
            fim(None if layer is None else layer.fim_bytes_percent),
            factor(None if layer is None else layer.max_over_mean),
        ]
        if busy:
            over = None if layer is None else layer.over_time
            cells.append(NONE if over is None else human.percent(over.peak_utilisation))
        if marked:
            cells.append(human.count(queue.ecn_marked))
        table.add_row(*cells)


def _over_time(table: Table, strategy: StrategyResult, page: Page) -> None:
    """The busiest link of every layer between switches, from the first packet to the last."""
    assert strategy.packets is not None
    series = {link.name: link.wire_bytes_over_time for link in strategy.links}
    texts(table, "layer")
    folded(table, "busiest link")
    texts(table, f"bytes per {human.duration(strategy.packets.load_stretch_ns)}")
    for layer in strategy.layers:
        if layer.choice and layer.over_time:
            loads = series.get(layer.over_time.peak_link) or []
            table.add_row(layer.layer, layer.over_time.peak_link, _line(page, loads))


def _queues_over_time(table: Table, strategy: StrategyResult, page: Page) -> None:
    """The link with the longest queue of every layer with queues."""
    texts(table, "layer")
    folded(table, "longest queue")
    numbers(table, "max bytes")
    texts(table, "longest in the same intervals")
    for layer in strategy.layers:
        queues = {
            link.name: link.queue_bytes_over_time
            for link in strategy.links
            if link.layer == layer.layer and link.queue_bytes_over_time
        }
        worst = max(queues, key=lambda name: max(queues[name] or ()), default=None)
        series = queues.get(worst or "") or []
        if worst is not None and max(series):
            table.add_row(layer.layer, worst, human.size(max(series)), _line(page, series))


def _line(page: Page, series: list[int]) -> str:
    return page.glyphs.sparkline(series, min(_WIDTH, len(series)))


def _latest(table: Table, packets: PacketReplay, top: int) -> None:
    """The flows that complete last."""
    several = "classes" in packets.model
    texts(table, "latest flows", *(["priority"] if several else []))
    numbers(table, "messages", "bytes", "began", "completed")
    for flow in packets.flows[:top]:
        began, done = flow.started_ns, flow.completed_ns
        if flow.failed_ns is not None:
            end = f"failed at {human.duration(flow.failed_ns)}"
        else:
            end = NONE if done is None else human.duration(done)
        table.add_row(
            f"{flow.src} > {flow.dst}",
            *([flow.priority] if several else []),
            human.count(flow.messages),
            human.size(flow.wire_bytes),
            NONE if began is None else human.duration(began),
            end,
        )
