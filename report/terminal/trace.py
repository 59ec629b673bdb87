"""The result of `trace` on a terminal: how much is known, the loads, then the largest flows."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from ...discovery.tracing.results import (
    Advice,
    AskReport,
    CounterCheck,
    FlowLoads,
    TapCheck,
    TracedFlow,
    TraceResult,
)
from ...replay.results import LayerLoad, ReplayResult
from .. import human
from .page import Page, folded, numbers, texts
from .ranks import ranks_text
from .replay import print_comparison, print_flow_strategy
from .replay_packets import NONE, chance_text, factor, fim, print_head

_MOST_CHANGES = 100
"""Of each kind of advice."""


def fill_trace(
    page: Page, result: TraceResult, top: int, charts: Callable[[ReplayResult], object] = bool
) -> None:
    """The traced part of the traffic first, then loads and the `top` largest flows; charts: called
    below the comparison of loads."""
    flows = result.flows_traced
    if result.loads is not None:
        print_head(page, result.loads.traffic, result.loads.fabric, result.warnings)
    else:
        if result.queue_pairs is not None:
            page.say(
                f"{human.counted(result.queue_pairs, 'connected queue pair')} of hosts: addresses, "
                "peers and source ports are inferred; packets and bytes are not known."
            )
        page.warn(result.warnings)
    hops = ", ".join(f"{human.count(n)} {name}" for name, n in result.hops.items() if n)
    page.say(
        f"The path of {human.count(result.complete_flows)} of {human.counted(flows, 'flow')} is "
        f"known to the destination. Evidence of the hops: {hops or 'none'}."
    )
    for end in result.open_ends[:top]:
        place = f"at {end.switch}" if end.switch else "at the source host"
        page.say(
            f"{page.glyphs.warning} {human.counted(end.flows, 'path')} not known from here on: "
            f"{place}, {end.reason}",
            "yellow",
        )
    if len(result.open_ends) > top:
        page.say(f"  and {human.count(len(result.open_ends) - top)} more places")
    if result.contradicted_flows:
        page.say(
            f"{page.glyphs.bad} {human.counted(result.contradicted_flows, 'flow')} captured on "
            "another link than the fabric's tables and hash give",
            "red",
        )
    if result.changed_switches:
        names = ", ".join(result.changed_switches[:top])
        switches = human.counted(len(result.changed_switches), "switch", "switches")
        page.say(
            f"{page.glyphs.bad} the tables of {switches} changed during the trace: {names}; "
            f"{human.counted(result.changed_flows or 0, 'flow')} through them may have other paths",
            "red",
        )
    if result.unwatched_switches:
        names = ", ".join(result.unwatched_switches[:top])
        switches = human.counted(len(result.unwatched_switches), "switch", "switches")
        page.say(
            f"{page.glyphs.warning} not watched for changes: {switches} without answer: {names}",
            "yellow",
        )
    if result.asked is not None:
        _asked(page, result.asked, top)
    if result.taps is not None:
        _taps(page, result.taps, top)
    if result.counters is not None:
        _counters(page, result.counters, top)
    if result.loads is not None:
        print_comparison(page, result.loads)
        for line in _reductions(result.loads):
            page.say(line)
        charts(result.loads)
        traced = result.loads.strategies[0]
        print_flow_strategy(page, traced, top)
        if any(layer.devices for layer in traced.layers):
            page.draw(lambda table: _devices(table, traced.layers))
    if result.flow_loads:
        page.section("Flows per link")
        page.draw(lambda table: _flow_loads(table, result.flow_loads, top))
    if result.advice is not None:
        _advice(page, result.advice)
    largest = sorted(result.flows, key=lambda flow: -(flow.wire_bytes or 0))[:top]
    page.section("Largest flows" if result.queue_pairs is None else "Flows")
    page.draw(lambda table: _flows(table, largest, result.queue_pairs is not None))


def _flow_loads(table: Table, loads: list[FlowLoads], top: int) -> None:
    """A row per strategy and layer; below those traced the `top` least even devices."""
    texts(table, "strategy", "layer", "device")
    numbers(table, "links", "idle", "flows", "FIM %", "chance", "bound")
    for number, load in enumerate(loads):
        for layer in load.layers:
            table.add_row(
                load.name,
                layer.layer,
                "all",
                human.count(layer.links),
                human.count(layer.idle_links),
                human.count(layer.flows or 0),
                fim(layer.fim_flows_percent),
                chance_text(layer.fim_chance_percent),
                fim(layer.fim_flows_best_percent),
            )
            uneven = sorted(layer.devices, key=lambda device: -(device.fim_flows_percent or 0.0))
            for device in uneven[: 0 if number else top]:
                table.add_row(
                    load.name,
                    layer.layer,
                    Text(device.switch),
                    human.count(device.links),
                    "",
                    human.count(device.flows),
                    fim(device.fim_flows_percent),
                    "",
                    fim(device.fim_flows_best_percent),
                )


def _asked(page: Page, asked: AskReport, top: int) -> None:
    """How many answers agree with the computation; switches that do not agree, or answer."""
    page.section("Asked")
    questions, answers, both, agreeing = (
        sum(getattr(switch, name) for switch in asked.switches)
        for name in ("questions", "answers", "computed_too", "agreeing")
    )
    answering = sum(switch.answers > 0 for switch in asked.switches)
    page.say(
        f"{human.count(answers)} of {human.counted(questions, 'question')} answered by "
        f"{human.counted(answering, 'switch', 'switches')}; {human.count(agreeing)} of "
        f"{human.counted(both, 'answer')} agree with the computed next hop."
    )
    differ = [s for s in asked.switches if s.agreeing < s.computed_too]
    silent = [s for s in asked.switches if s.problem is not None]
    for switch in differ[:top]:
        page.say(
            f"{page.glyphs.bad} {switch.switch}: "
            f"{human.count(switch.computed_too - switch.agreeing)} of "
            f"{human.counted(switch.computed_too, 'answer')} differ from the computed next hop: "
            "its tables or its hash changed",
            "red",
        )
    page.left_out(len(differ) - top, "switch that differs", "switches that differ")
    for switch in silent[:top]:
        page.say(
            f"{page.glyphs.warning} {switch.switch} answered {human.count(switch.answers)} of "
            f"{human.counted(switch.questions, 'question')}: {switch.problem or ''}",
            "yellow",
        )
    page.left_out(len(silent) - top, "switch without answers", "switches without answers")
    for why, hops in asked.not_asked.items():
        page.say(f"Not asked: {human.counted(hops, 'hop')}: {why}")


def _advice(page: Page, advice: Advice) -> None:
    """What each kind of change achieves, then the changes."""
    page.section("Advice")
    before = "" if advice.busy_ns is None else human.duration(advice.busy_ns)
    if advice.fullest_link is None:
        page.say("No advice: no flow with a known path runs between switches.")
    else:
        page.say(
            f"Busiest link between switches: {advice.fullest_link}, busy for {before}. "
            "Review the changes; nothing is applied."
        )
    if advice.flows_left_out:
        page.say(
            f"{page.glyphs.warning} {human.counted(advice.flows_left_out, 'flow')} left out: "
            "their paths are not known",
            "yellow",
        )
    if not advice.options and advice.fullest_link is not None:
        page.say("No tested change reduces its load.")
    for option in advice.options:
        page.say(
            f"{option.kind}, {human.counted(len(option.changes), 'change')}: {before} to "
            f"{human.duration(option.busy_ns)} ({option.fullest_link})"
        )
        for change in option.changes[:_MOST_CHANGES]:
            page.line(f"  {change}")
        page.left_out(len(option.changes) - _MOST_CHANGES, "change")


def _taps(page: Page, check: TapCheck, top: int) -> None:
    """The verdict first, then disagreeing hops, then what was not checked."""
    page.section("Verified with taps")
    hops = human.counted(check.hops_checked, "predicted hop")
    page.say(
        f"{human.count(check.hops_agreeing)} of {hops} on captured links agree; "
        f"{human.counted(check.disagreeing_flows, 'flow')} disagree."
    )
    places: dict[tuple[str, str], int] = {}
    for hop in check.disagreements:
        captured = ", ".join(hop.captured) or "no captured link"
        places[hop.predicted, captured] = places.get((hop.predicted, captured), 0) + 1
    worst = sorted(places.items(), key=lambda place: -place[1])
    for (predicted, captured), flows in worst[:top]:
        page.say(
            f"{page.glyphs.bad} {human.counted(flows, 'flow')} predicted on "
            f"{predicted}, captured on {captured}",
            "red",
        )
    if len(worst) > top:
        page.say(f"  and {human.count(len(worst) - top)} more hops")
    _not_checked(page, check.links_not_checked, top, "no tap")
    if check.taps_not_used:
        names = ", ".join(check.taps_not_used[:top])
        page.say(
            f"{page.glyphs.warning} {human.counted(len(check.taps_not_used), 'tap')} not used: "
            f"the name is no link of the fabric: {names}",
            "yellow",
        )


def _counters(page: Page, check: CounterCheck, top: int) -> None:
    page.section("Verified with port counters")
    page.say(
        f"{human.count(check.links_agreeing)} of {human.counted(check.links_checked, 'link')} grew "
        f"by the predicted bytes; {human.size(check.background_bytes)} of other traffic per port."
    )
    wrong = sorted(
        check.disagreements, key=lambda entry: -abs(entry.measured_bytes - entry.predicted_bytes)
    )
    for entry in wrong[:top]:
        page.say(
            f"{page.glyphs.bad} {entry.link}: {human.size(entry.predicted_bytes)} "
            f"predicted, {human.size(entry.measured_bytes)} measured at {entry.device} "
            f"{entry.port}",
            "red",
        )
    if len(wrong) > top:
        page.say(f"  and {human.count(len(wrong) - top)} more links")
    if check.flows_too_small:
        page.say(
            f"{page.glyphs.warning} {human.counted(check.flows_too_small, 'flow')} too small to "
            "be checked: on another link they would not show in the counters",
            "yellow",
        )
    why = "no counters, paths that are not known, or other traffic that could hide a flow"
    _not_checked(page, check.links_not_checked, top, why, "")


def _not_checked(
    page: Page, links: list[str], top: int, why: str, which: str = " with predicted flows"
) -> None:
    if links:
        more = f" and {human.count(len(links) - top)} more" if len(links) > top else ""
        page.say(
            f"Not checked ({why}): {human.counted(len(links), 'link')}{which}: "
            f"{', '.join(links[:top])}{more}"
        )


def _reductions(loads: ReplayResult) -> list[str]:
    """How much the FIM of other strategies differs, in points and in percent."""
    traced, *others = loads.strategies
    lines = []
    for other in others:
        if traced.fim_percent and other.fim_percent is not None:
            points = other.fim_percent - traced.fim_percent
            percent = 100 * points / traced.fim_percent
            lines.append(
                f"{other.name} changes the FIM of flows from {traced.fim_percent:.1f} % to "
                f"{other.fim_percent:.1f} %: {points:+.1f} points, {percent:+.0f} %."
            )
    return lines


def _devices(table: Table, layers: list[LayerLoad]) -> None:
    texts(table, "device", "layer")
    numbers(table, "links", "flows", "FIM %", "bound", "FIM % bytes", "x fair")
    for layer in layers:
        for device in layer.devices:
            table.add_row(
                Text(device.switch),
                layer.layer,
                human.count(device.links),
                human.count(device.flows),
                fim(device.fim_flows_percent),
                fim(device.fim_flows_best_percent),
                fim(device.fim_bytes_percent),
                factor(device.max_over_mean),
            )


def _flows(table: Table, flows: list[TracedFlow], of_hosts: bool) -> None:
    ranks = any(flow.src_rank is not None or flow.dst_rank is not None for flow in flows)
    texts(table, "flow", *["ranks"] * ranks)
    numbers(table, "port", "processes" if of_hosts else "bytes")
    folded(table, "path", "evidence")
    for flow in flows:
        evidence = ", ".join(dict.fromkeys(flow.evidence))
        table.add_row(
            Text(f"{flow.src}>{flow.dst} {human.queue_pair(flow.dest_qp)}"),
            *[ranks_text(flow.src_rank, flow.dst_rank) or NONE] * ranks,
            str(flow.src_port),
            Text(_processes(flow)) if flow.wire_bytes is None else human.size(flow.wire_bytes),
            Text(" ".join(flow.links) + ("" if flow.complete else " ?")),
            Text(evidence if flow.reason is None else f"{evidence}; {flow.reason}"),
        )


def _processes(flow: TracedFlow) -> str:
    """`python 7>python 9`: name and number of both processes, as far as they are known."""
    ends = ((flow.src_process, flow.src_pid), (flow.dst_process, flow.dst_pid))
    return ">".join(" ".join(str(part) for part in end if part is not None) or NONE for end in ends)
