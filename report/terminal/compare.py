"""The result of `compare` on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from rich.table import Table
from rich.text import Text

from ...analyzer.results.base import facts_of
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
from .. import human
from .. import notes as words
from ..compare import GOODPUT, QUEUEING, SHARES
from .diagnosis import STYLES
from .page import Page, folded, numbers, texts
from .replay_packets import NONE

NAMES = {fact.name: fact.title for kind in (Figures, HopFigures) for fact in facts_of(kind)}
_HEADINGS = {"Hops": ("from", "to"), "Flows": ("source and destination", "QP")}
_COLORS = {"new": "red", "worse": "red", "better": "green", "gone": "green", "unchanged": ""}

One = TypeVar("One", HopChange, FlowChange)
Cells: TypeAlias = tuple[str, str, bool]
"""What identifies a hop or flow, and whether its change is good or bad."""


def fill_comparison(
    page: Page, result: Comparison, top: int, charts: Callable[[], object] = bool
) -> None:
    """The verdict, the findings, the key figures, and the `top` flows that changed; charts: called
    below the figures."""
    glyphs = page.glyphs
    names = f"{result.before} {glyphs.arrow} {result.after}"
    page.line(f"{names}: {verdict(result)}", "bold")
    page.warn(result.warnings[:top])
    page.section("Findings", "" if result.findings else "Neither analysis has a finding.")
    for pair in result.findings:
        mark = glyphs.severities[SEVERITIES.index(_latest(pair).severity)]
        style = STYLES[_latest(pair).severity] if pair.change in ("new", "worse") else ""
        page.say(f"{mark} {pair.change}: {finding_text(pair)}", style)
    page.section("Figures of all flows")
    page.draw(lambda table: _figures(table, result))
    charts()
    if result.hops:
        _changed(page, "Hops", result.hops, top, _hop_cells)
    _changed(page, "Flows", result.flows, top, _flow_cells)


def _changed(
    page: Page, title: str, all_: Sequence[One], top: int, cells: Callable[[One, str], Cells]
) -> None:
    """The section of the hops or flows that changed."""
    what = title.lower()[:-1]
    changed = [pair for pair in all_ if pair.change != "unchanged"]
    same = human.counted(len(all_) - len(changed), f"{what} is", f"{what}s are")
    page.section(title, f"{same} unchanged." if len(changed) < len(all_) else "")

    def fill(table: Table) -> None:
        texts(table, *_HEADINGS[title], "change")
        folded(table, "what")
        for pair in changed[:top]:
            first, second, judged = cells(pair, page.glyphs.arrow)
            change = Text(pair.change, _COLORS[pair.change] if judged else "")
            table.add_row(first, second, change, _what(pair, page.glyphs.arrow))

    if changed:
        page.draw(fill)
    page.more(len(changed) - top, f"changed {what}")


def _hop_cells(hop: HopChange, _arrow: str) -> Cells:
    to = "?" if hop.to_tap is None else hop.to_tap
    return hop.from_tap, to, bool(hop.worse or hop.better)


def _flow_cells(flow: FlowChange, arrow: str) -> Cells:
    return f"{flow.src} {arrow} {flow.dst}", human.queue_pair(flow.dest_qp), True


def verdict(result: Comparison) -> str:
    """`worse: 1 finding is new, 2 are gone; retransmitted packets and goodput are worse`."""
    by_change = Counter(pair.change for pair in result.findings)
    counts = [f"{by_change[change]} {change}" for change in CHANGES if by_change[change]]
    parts = [f"findings: {', '.join(counts)}"] if counts else ["no finding"]
    for change, figures in (("worse", result.worse), ("better", result.better)):
        if figures:
            parts.append(f"{change}: {', '.join(NAMES[name] for name in figures)}")
    return f"{result.change} ({'; '.join(parts)})"


def _latest(pair: FindingChange) -> Finding:
    finding = pair.after or pair.before
    assert finding is not None
    return finding


def finding_text(pair: FindingChange) -> str:
    """The latest sentence; the former share where it is worse or better."""
    latest = _latest(pair)
    if pair.change == "gone":
        return latest.sentence
    text = words.sentence(latest)
    if pair.before is not None and pair.after is not None and pair.change != "unchanged":
        text += f" (before: {_share(pair.before)}, after: {_share(pair.after)})"
    return text


def _share(finding: Finding) -> str:
    share = human.percent(finding.share_percent / 100)
    return f"{share}, {human.count(finding.packets)} of {human.count(finding.of_packets)}"


def _figures(table: Table, result: Comparison) -> None:
    texts(table, "figure")
    numbers(table, "before", "after")
    texts(table, "change")
    sides = result.figures_before, result.figures_after
    table.add_row("packets", *(human.count(side.packets) for side in sides), "")
    for name in (*SHARES, GOODPUT):
        if name == "lost_retransmissions" and not any(getattr(side, name) for side in sides):
            continue
        change = _named(name, result.worse, result.better)
        table.add_row(NAMES[name], *(_figure(side, name) for side in sides), change)


def _what(pair: HopChange | FlowChange, arrow: str) -> str:
    """`lost 71 (0.90 %) → 0 (0 %), queueing p99 12 us → 1.2 ms`"""
    before, after = pair.before, pair.after
    if before is None or after is None:
        side = after or before
        if side is None:
            return NONE
        lost = side.lost_packets if isinstance(side, HopFigures) else 0
        more = f", {human.count(lost)} lost" if lost else ""
        return human.counted(side.packets, "packet") + more
    return ", ".join(
        f"{NAMES[name]} {_figure(before, name)} {arrow} {_figure(after, name)}"
        for name in (*pair.worse, *pair.better)
    )


def _named(name: str, worse: Sequence[str], better: Sequence[str]) -> Text:
    change = "worse" if name in worse else "better" if name in better else ""
    return Text(change, _COLORS.get(change, ""))


def _figure(side: Figures | HopFigures, name: str) -> str:
    """`71 (0.90 %)`, `1.2 Gb/s` or `12 us`"""
    value: Any = getattr(side, name)
    if name == GOODPUT:
        return human.rate(value)
    if name == QUEUEING:
        return human.duration(value)
    if value is None or not side.packets:
        return human.UNKNOWN
    return f"{human.count(value)} ({human.percent(value / side.packets)})"
