"""The result of `compare` on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TextIO

from rich.table import Table
from rich.text import Text

from ...analyzer.results.compare import (
    CHANGES,
    Comparison,
    Figures,
    FindingChange,
    FlowChange,
    HopChange,
    HopFigures,
)
from ...analyzer.results.diagnosis import SEVERITIES, Finding
from ...analyzer.words import printable
from ..compare import GOODPUT, QUEUEING, SHARES
from ..words import diagnosis as words
from ..words import human
from .diagnosis import STYLES
from .replay import NONE, Page

NAMES = {
    "lost_packets": "lost",
    "reordered_packets": "reordered",
    "retransmitted_packets": "retransmitted",
    "duplicate_packets": "duplicated",
    "ecn_marked_packets": "marked CE",
    GOODPUT: "goodput",
    QUEUEING: "queueing p99",
}
_COLORS = {"new": "red", "worse": "red", "better": "green", "gone": "green", "unchanged": ""}


def print_comparison(
    result: Comparison,
    stream: TextIO,
    top: int = 20,
    color: Literal["auto", "always", "never"] = "auto",
) -> None:
    """Print the verdict, the findings, the key figures, and the `top` flows that changed."""
    page = Page(stream, color)
    glyphs = page.glyphs
    names = f"{printable(result.before)} {glyphs.arrow} {printable(result.after)}"
    page.console.print(Text(f"{names}: {verdict(result)}", "bold"), soft_wrap=True)
    for line in result.warnings[:top]:
        page.say(f"{glyphs.warning} {printable(line)}", "yellow")
    page.section("Findings", "" if result.findings else "Neither analysis has a finding.")
    for one in result.findings:
        mark = glyphs.severities[SEVERITIES.index(_latest(one).severity)]
        style = STYLES[_latest(one).severity] if one.change in ("new", "worse") else ""
        page.say(f"{mark} {one.change}: {finding_text(one)}", style)
    page.section("Figures of all flows")
    page.draw(lambda table: _figures(table, result))
    if result.hops:
        _hop_section(page, result.hops, top)
    changed = [flow for flow in result.flows if flow.change != "unchanged"]
    same = human.counted(len(result.flows) - len(changed), "flow is", "flows are")
    page.section("Flows", f"{same} unchanged." if len(changed) < len(result.flows) else "")
    if changed:
        page.draw(lambda table: _flows(table, changed[:top], glyphs.arrow))
    if len(changed) > top:
        left = human.counted(len(changed) - top, "changed flow")
        page.say(f"... {left} not shown (--top)", "dim", 2)


def verdict(result: Comparison) -> str:
    """`worse: 1 finding is new, 2 are gone; retransmitted packets and goodput are worse`."""
    found = Counter(one.change for one in result.findings)
    counts = [f"{found[change]} {change}" for change in CHANGES if found[change]]
    parts = [f"findings: {', '.join(counts)}"] if counts else ["no finding"]
    for change, figures in (("worse", result.worse), ("better", result.better)):
        if figures:
            parts.append(f"{change}: {', '.join(NAMES[name] for name in figures)}")
    return f"{result.change} ({'; '.join(parts)})"


def _latest(one: FindingChange) -> Finding:
    finding = one.after or one.before
    assert finding is not None
    return finding


def finding_text(one: FindingChange) -> str:
    """The latest sentence; the former share where it is worse or better."""
    latest = _latest(one)
    if one.change == "gone":
        return printable(latest.sentence)
    text = words.sentence(latest)
    if one.before is not None and one.after is not None and one.change != "unchanged":
        text += f" (before: {_share(one.before)}, after: {_share(one.after)})"
    return text


def _share(finding: Finding) -> str:
    share = human.percent(finding.share_percent / 100)
    return f"{share}, {human.count(finding.packets)} of {human.count(finding.of_packets)}"


def _figures(table: Table, result: Comparison) -> None:
    table.add_column("figure", no_wrap=True)
    for heading in ("before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("change", no_wrap=True)
    sides = result.figures_before, result.figures_after
    table.add_row("packets", *(human.count(side.packets) for side in sides), "")
    for name in SHARES:
        change = _named(name, result.worse, result.better)
        table.add_row(NAMES[name], *(_counted(side, name) for side in sides), change)
    rates = (human.rate(side.goodput_bits_per_second) for side in sides)
    table.add_row(NAMES[GOODPUT], *rates, _named(GOODPUT, result.worse, result.better))


def _hop_section(page: Page, hops: Sequence[HopChange], top: int) -> None:
    """The hops that changed; those that are worse first."""
    changed = [hop for hop in hops if hop.change != "unchanged"]
    same = human.counted(len(hops) - len(changed), "hop is", "hops are")
    page.section("Hops", f"{same} unchanged." if len(changed) < len(hops) else "")
    if changed:
        page.draw(lambda table: _hops(table, changed[:top], page.glyphs.arrow))
    if len(changed) > top:
        left = human.counted(len(changed) - top, "changed hop")
        page.say(f"... {left} not shown (--top)", "dim", 2)


def _hops(table: Table, hops: Sequence[HopChange], arrow: str) -> None:
    for heading in ("from", "to", "change"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", overflow="fold")
    for hop in hops:
        table.add_row(
            printable(hop.from_tap),
            "?" if hop.to_tap is None else printable(hop.to_tap),
            Text(hop.change, _COLORS[hop.change] if hop.worse or hop.better else ""),
            _what_of_hop(hop, arrow),
        )


def _what_of_hop(hop: HopChange, arrow: str) -> str:
    """`lost 71 (0.90 %) → 0 (0 %), queueing p99 12 us → 1.2 ms`"""
    if hop.before is None or hop.after is None:
        side = hop.after or hop.before
        lost = f", {human.count(side.lost_packets)} lost" if side and side.lost_packets else ""
        return human.counted(side.packets, "packet") + lost if side else NONE
    sides = hop.before, hop.after
    parts = []
    for name in (*hop.worse, *hop.better):
        was, now = (
            human.duration(side.queueing_p99_ns) if name == QUEUEING else _counted(side, name)
            for side in sides
        )
        parts.append(f"{NAMES[name]} {was} {arrow} {now}")
    return ", ".join(parts)


def _named(name: str, worse: Sequence[str], better: Sequence[str]) -> Text:
    change = "worse" if name in worse else "better" if name in better else ""
    return Text(change, _COLORS.get(change, ""))


def _counted(figures: Figures | HopFigures, name: str) -> str:
    """`71 (0.90 %)`"""
    packets: int | None = getattr(figures, name)
    if packets is None or not figures.packets:
        return human.UNKNOWN
    return f"{human.count(packets)} ({human.percent(packets / figures.packets)})"


def _flows(table: Table, flows: Sequence[FlowChange], arrow: str) -> None:
    table.add_column("source and destination", no_wrap=True)
    table.add_column("QP", no_wrap=True)
    table.add_column("change", no_wrap=True)
    table.add_column("what", overflow="fold")
    for flow in flows:
        table.add_row(
            f"{flow.src} {arrow} {flow.dst}",
            human.queue_pair(flow.dest_qp),
            Text(flow.change, _COLORS[flow.change]),
            _what(flow, arrow),
        )


def _what(flow: FlowChange, arrow: str) -> str:
    """`lost 71 (0.90 %) → 0 (0 %), goodput 1.2 Gb/s → 2.4 Gb/s`"""
    if flow.before is None or flow.after is None:
        side = flow.after or flow.before
        return human.counted(side.packets, "packet") if side else NONE
    before, after = flow.before, flow.after
    parts = []
    for name in (*flow.worse, *flow.better):
        if name == GOODPUT:
            sides = (
                human.rate(before.goodput_bits_per_second),
                human.rate(after.goodput_bits_per_second),
            )
        else:
            sides = _counted(before, name), _counted(after, name)
        parts.append(f"{NAMES[name]} {sides[0]} {arrow} {sides[1]}")
    return ", ".join(parts)
