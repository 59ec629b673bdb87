"""The report of `analyze`: diagnosis, charts, tables, and how far the data can be trusted."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UnsetType

from ....analyzer.results.analysis import Analysis
from ....analyzer.results.diagnosis import Affected, Finding
from ....analyzer.words import printable
from ...terminal.report import Report
from ...words import diagnosis as words
from ...words import human
from ...words.hops import clock, short_taps
from ..chart import Chart
from ..charts.extents import extents
from ..charts.heat import hops, rank_completions, rank_losses, ranks
from ..charts.over_time import over_time, taps_over_time
from ..charts.shares import paths
from ..escape import escape
from ..page import HtmlPage

_FINDINGS, _AFFECTED, _EVIDENCE, _SETS = 50, 10, 10, 2
"""Maximum number of findings; of each, this many flows and frames; sets of parallel paths."""


def analysis_html(analysis: Analysis, top: int = 20, sort: bool = False) -> bytes:
    """The report of an analysis; arguments as those of `Report`."""
    names = [capture.name for capture in analysis.captures]
    name = names[0] if len(names) == 1 else human.counted(len(names), "capture")
    page = HtmlPage(f"rocescope: {printable(name)}")
    report = Report(analysis, page, top, sort)
    _diagnosis(page, analysis)
    _charts(page, analysis)
    report.tables()
    page.section("How far the data can be trusted")
    report.captures()
    _clocks(page, analysis)
    _list(page, "Not checked, or not known from these captures", analysis.diagnosis.limits)
    return page.document()


def _diagnosis(page: HtmlPage, analysis: Analysis) -> None:
    found = analysis.diagnosis
    page.section("Diagnosis")
    page.add(f'<p class="lead"><strong>{escape(words.heading(found))}</strong></p>')
    if not analysis.complete:
        page.warn(["The analysis was interrupted: this is a part of the captures."])
    begin = words.first_ns(analysis)
    if found.findings:
        cards = (
            _card(number, one, begin) for number, one in enumerate(found.findings[:_FINDINGS], 1)
        )
        page.add(f'<ol class="findings">{"".join(cards)}</ol>')
        page.more(len(found.findings) - _FINDINGS, "finding")
    healthy = words.healthy(found)
    _list(page, words.passed(found).capitalize(), healthy, "good" if found.complete else "")
    if not healthy and not found.findings:
        page.say(words.NO_CHECK)
    if analysis.warnings or found.limits:
        told = [
            human.counted(len(analysis.warnings), "warning") if analysis.warnings else "",
            human.counted(len(found.limits), "question") + " not answered" if found.limits else "",
        ]
        page.say(f"Limits of trust: {', '.join(filter(None, told))}; see the last section.")


def _card(number: int, one: Finding, begin_ns: int) -> str:
    """A finding: its sentence, next step, place, time and victims."""
    sentence, step = (printable(text).rstrip(".") for text in (one.sentence, one.next_step))
    since = f"{human.duration(max(0, one.from_ns - begin_ns))} after the first packet"
    if one.onset_uncertainty_ns:
        since += f" (onset at most {human.duration(one.onset_uncertainty_ns)} earlier)"
    until = "the end" if one.until_ns is None else human.duration(max(0, one.until_ns - begin_ns))
    share = human.percent(one.share_percent / 100)
    pairs = human.counted(one.queue_pairs, "queue pair")
    facts = (
        ("where", words.place(one.place)),
        ("time", f"from {since} until {until}"),
        ("hit", f"{human.count(one.packets)} of {human.count(one.of_packets)} packets ({share})"),
        ("suffering", "" if one.queue_pairs is None else pairs),
        ("cost", "" if not one.cost_ns else human.duration(one.cost_ns)),
        ("confidence", one.confidence),
    )
    mark = human.UNICODE.severities[("critical", "warning", "note").index(one.severity)]
    told = "".join(f"<dt>{word}</dt><dd>{escape(text)}</dd>" for word, text in facts if text)
    next_ = f"<p><strong>Next:</strong> {escape(step)}.</p>" if step else ""
    return (
        f'<li class="{escape(one.severity)}"><p><span class="mark">{number} {mark} '
        f"{escape(one.severity)}</span> {escape(sentence)}.</p>{next_}<dl>{told}</dl>"
        f"{_victims(one)}</li>"
    )


def _victims(one: Finding) -> str:
    """Flows and frames of a finding, folded."""
    flows = [_victim(affected) for affected in one.affected[:_AFFECTED]]
    frames = [
        f"{printable(frame.tap)}, frame {frame.frame_number}"
        for frame in one.evidence[:_EVIDENCE]
        if frame.frame_number >= 0
    ]
    parts = [
        f"<p>{head}</p><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        for head, texts in (
            (f"Most affected of {human.counted(len(one.flows), 'flow')}:", flows),
            ("Frames that show it:", frames),
        )
        if texts
    ]
    if not parts:
        return ""
    return f"<details><summary>Flows and frames</summary>{''.join(parts)}</details>"


def _victim(one: Affected) -> str:
    text = f"{one.src} > {one.dst} QP {human.queue_pair(one.dest_qp)}"
    text += f": {human.counted(one.packets, 'packet')}"
    text += "" if not one.cost_ns else f", {human.duration(one.cost_ns)} lost"
    return text if one.owner is None else f"{text}; {human.owner(one.owner)}"


def _charts(page: HtmlPage, analysis: Analysis) -> None:
    sets = sorted(analysis.imbalance, key=lambda record: -record.max_over_mean)
    charts = [
        over_time(analysis),
        *(paths(record) for record in sets[:_SETS] if record.shares),
        extents(analysis.flows),
        hops(analysis.hops),
        *_of_ranks(analysis),
        taps_over_time(analysis),
    ]
    if any(charts):
        page.section("Charts")
        for chart in charts:
            page.chart(chart)


def _of_ranks(analysis: Analysis) -> list[Chart | None]:
    found = analysis.ranks
    if isinstance(found, UnsetType):
        return []
    return [ranks(found), rank_losses(found), rank_completions(found)]


def _clocks(page: HtmlPage, analysis: Analysis) -> None:
    if analysis.clocks:
        short = short_taps(tap for one in analysis.clocks for tap in (one.tap, one.relative_to))
        _list(page, "Clocks", [clock(one, short) for one in analysis.clocks])


def _list(page: HtmlPage, head: str, texts: Iterable[str], kind: str = "") -> None:
    """A heading and at most _FINDINGS texts, if any."""
    told = [printable(text) for text in texts]
    if not told:
        return
    items = "".join(f"<li>{escape(text)}</li>" for text in told[:_FINDINGS])
    head = f'<h3 class="{kind}">{escape(head)}</h3>' if kind else f"<h3>{escape(head)}</h3>"
    page.add(f"{head}<ul>{items}</ul>")
    page.more(len(told) - _FINDINGS, "line")
