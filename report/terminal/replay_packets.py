"""The packet-level replay on a terminal: completion, queues and order by strategy."""

from __future__ import annotations

from rich.table import Table

from ...replay.results.packets import PacketReplay
from ...replay.results.replay import ReplayResult, StrategyResult, short_titles
from ..words import human
from .page import Page, folded, numbers, texts
from .replay_parts import NONE, captured_links, factor, fim, say_hashes
from .replay_pauses import print_pauses

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
