"""The HTML reports, one function per command."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UnsetType
from msgspec.structs import replace

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.compare import Comparison
from ...analyzer.results.diagnosis import Affected, Finding, Place
from ...analyzer.words import printable
from ...discovery.tracing.results import TraceResult
from ...replay.results import AggregationResult, ReplayResult, SweepResult
from .. import human
from .. import notes as words
from ..hops import clock, short_taps
from ..jobs import heading, sources, training
from ..overview import overview
from ..terminal.aggregate import fill_aggregation
from ..terminal.compare import fill_comparison
from ..terminal.jobs import print_job
from ..terminal.replay import fill_replay
from ..terminal.report import Report
from ..terminal.sweep import fill_sweep
from ..terminal.trace import fill_trace
from .analysis_charts import (
    changes,
    extents,
    fabric,
    hops,
    links,
    over_time,
    paths,
    rank_completions,
    rank_losses,
    ranks,
    ranks_in_steps,
    taps_over_time,
)
from .fabric_chart import MOST_FAULTY, fabric_chart, fault_table, faulty_links
from .page import Chart, HtmlPage, escape
from .replay_charts import (
    completions,
    completions_aggregation,
    occupancy,
    on_links,
    queues,
    seeds,
    strategies,
    varied,
)

# The report of `aggregate`.


def aggregation_html(result: AggregationResult, top: int = 5) -> bytes:
    """The verdict, completion times, memory and links of the schemes, then their tables."""
    page = HtmlPage(f"rocescope: aggregation on {result.fabric.spec}")

    def charts() -> None:
        for chart in (completions_aggregation(result), occupancy(result), on_links(result)):
            page.chart(chart)

    page.section("Result")
    fill_aggregation(page, result, top, charts)
    return page.document()


# The report of `compare`.


def comparison_html(result: Comparison, top: int = 20) -> bytes:
    """The verdict, the figures of both analyses, and what changed."""
    page = HtmlPage(f"rocescope: {result.before} compared with {result.after}")
    fill_comparison(page, result, top, lambda: page.chart(changes(result)))
    return page.document()


# The reports of `replay`, `sweep` and `trace`.

_STRATEGIES = 4
"""Strategies whose links have their own pictures."""


def replay_html(result: ReplayResult, top: int = 5) -> bytes:
    """Strategies compared, the loads of links, then the worst links of each strategy."""
    page = HtmlPage(f"rocescope: replay on {result.fabric.spec}")
    page.section("Result")
    fill_replay(page, result, top, lambda: _loads(page, result))
    return page.document()


def sweep_html(result: SweepResult) -> bytes:
    """The distribution of imbalance over seeds."""
    page = HtmlPage(f"rocescope: hash seeds on {result.fabric.spec}")
    page.section("Result")
    fill_sweep(page, result, lambda: page.chart(seeds(result)))
    return page.document()


def trace_html(result: TraceResult, top: int = 5) -> bytes:
    """How much of the paths is known, the loads of links, and the largest flows."""
    where = f" on {result.loads.fabric.spec}" if result.loads is not None else ""
    page = HtmlPage(f"rocescope: paths of flows{where}")
    page.section("Result")
    fill_trace(page, result, top, lambda loads: _loads(page, loads))
    return page.document()


def _loads(page: HtmlPage, result: ReplayResult) -> None:
    """Pictures of the links between which hashing chooses, by packet of completion and of queues;
    with `--vary` of completion alone."""
    if result.varied:
        page.chart(varied(result))
        return
    page.chart(completions(result))
    page.chart(strategies(result))
    for strategy in result.strategies[:_STRATEGIES]:
        page.chart(queues(strategy))
        for layer in strategy.layers:
            if layer.choice:
                page.chart(links(strategy, layer.layer))
                page.chart(fabric(strategy, layer.layer))
    page.more(len(result.strategies) - _STRATEGIES, "strategy", "strategies")


# The report of `analyze`: diagnosis, charts, tables, and how far the data can be trusted.

_FINDINGS, _AFFECTED, _EVIDENCE, _SETS = 50, 10, 10, 2
"""Maximum number of findings; of each, this many flows and frames; sets of parallel paths."""


def analysis_html(analysis: Analysis, top: int = 20, sort: bool = False) -> bytes:
    """The report of an analysis; arguments as those of `Report`."""
    names = [capture.name for capture in analysis.captures]
    name = names[0] if len(names) == 1 else human.counted(len(names), "capture")
    page = HtmlPage(f"rocescope: {printable(name)}")
    report = Report(analysis, page, top, sort)
    page.say(words.captured(analysis), "dim")
    _diagnosis(page, analysis)
    _jobs(page, analysis, top)
    _charts(page, analysis)
    report.tables()
    page.section("How far the data can be trusted")
    report.captures()
    _clocks(page, analysis)
    _list(page, "Not checked, or not known from these captures", analysis.diagnosis.limits)
    return page.document()


def _overview(page: HtmlPage, analysis: Analysis) -> None:
    """Where and when: the fabric as captured, and one axis of time with findings and steps."""
    shown = overview(analysis)
    if shown.time is None:
        return
    fabric = shown.fabric
    if fabric is None:
        page.say(f"No fabric: {shown.why}.", "dim")
    else:
        page.chart(fabric_chart(fabric))
        if faulty := faulty_links(fabric):
            page.draw(lambda table: fault_table(table, faulty[:MOST_FAULTY]))
            page.more(len(faulty) - MOST_FAULTY, "link")
    page.chart(over_time(analysis))


def _diagnosis(page: HtmlPage, analysis: Analysis) -> None:
    diagnosis = analysis.diagnosis
    page.section("Diagnosis")
    page.add(f'<p class="lead"><strong>{escape(words.heading(diagnosis))}</strong></p>')
    if not analysis.complete:
        page.warn(["The analysis was interrupted: this is a part of the captures."])
    begin = words.first_ns(analysis)
    if diagnosis.findings:
        page.say(f"{printable(diagnosis.summary).rstrip('.')}.")
    _overview(page, analysis)
    if diagnosis.findings:
        cards = (
            _card(number, finding, begin)
            for number, finding in enumerate(diagnosis.findings[:_FINDINGS], 1)
        )
        page.add(f'<ol class="findings">{"".join(cards)}</ol>')
        page.more(len(diagnosis.findings) - _FINDINGS, "finding")
    healthy = words.healthy(diagnosis)
    _list(page, words.passed(diagnosis).capitalize(), healthy, "good" if diagnosis.complete else "")
    if not healthy and not diagnosis.findings:
        page.say(words.NO_CHECK)
    if analysis.warnings or diagnosis.limits:
        limits = [
            human.counted(len(analysis.warnings), "warning") if analysis.warnings else "",
            human.counted(len(diagnosis.limits), "question") + " not answered"
            if diagnosis.limits
            else "",
        ]
        page.say(f"Limits of trust: {', '.join(filter(None, limits))}; see the last section.")


def _card(number: int, finding: Finding, begin_ns: int) -> str:
    """A finding: its sentence, next step, place, time and victims."""
    sentence, step = (printable(text).rstrip(".") for text in (finding.sentence, finding.next_step))
    since = f"{human.duration(max(0, finding.from_ns - begin_ns))} after the first packet"
    if finding.onset_uncertainty_ns:
        since += f" (onset at most {human.duration(finding.onset_uncertainty_ns)} earlier)"
    until = (
        "the end"
        if finding.until_ns is None
        else human.duration(max(0, finding.until_ns - begin_ns))
    )
    part = human.percent(finding.share_percent / 100)
    pairs = human.counted(finding.queue_pairs, "queue pair")
    facts = (
        ("where", _where(finding.place)),
        ("time", f"from {since} until {until}"),
        ("UTC", words.utc_span(finding.from_ns, finding.until_ns, 9)),
        (
            "hit",
            f"{human.count(finding.packets)} of {human.count(finding.of_packets)} packets ({part})"
            if finding.of_packets
            else "",
        ),
        ("suffering", "" if finding.queue_pairs is None else pairs),
        ("cost", "" if not finding.cost_ns else human.duration(finding.cost_ns)),
        ("confidence", finding.confidence),
    )
    mark = human.UNICODE.severities[("critical", "warning", "note").index(finding.severity)]
    listed = "".join(f"<dt>{word}</dt><dd>{escape(text)}</dd>" for word, text in facts if text)
    next_ = f"<p><strong>Next:</strong> {escape(step)}.</p>" if step else ""
    return (
        f'<li class="{escape(finding.severity)}"><p><span class="mark">{number} {mark} '
        f"{escape(finding.severity)}</span> {escape(sentence)}.</p>{next_}<dl>{listed}</dl>"
        f"{_victims(finding)}</li>"
    )


def _where(place: Place) -> str:
    """The device or the taps first, then the host: a fault seen at a tap is not the host's own."""
    if not place.host or place.device or not (place.from_tap or place.to_tap):
        return words.place(place)
    taps = words.place(replace(place, host=None, dest_qp=None))
    host = words.place(replace(place, from_tap=None, to_tap=None, direction=None))
    return f"{taps}; {host}"


def _victims(finding: Finding) -> str:
    """Flows and frames of a finding, folded."""
    flows = [_victim(affected) for affected in finding.affected[:_AFFECTED]]
    frames = [
        f"{printable(frame.tap)}, frame {frame.frame_number}"
        for frame in finding.evidence[:_EVIDENCE]
        if frame.frame_number >= 0
    ]
    parts = [
        f"<p>{head}</p><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        for head, texts in (
            (f"Most affected of {human.counted(len(finding.flows), 'flow')}:", flows),
            ("Frames that show it:", frames),
        )
        if texts
    ]
    if not parts:
        return ""
    return f"<details><summary>Flows and frames</summary>{''.join(parts)}</details>"


def _victim(victim: Affected) -> str:
    text = f"{victim.src} > {victim.dst} QP {human.queue_pair(victim.dest_qp)}"
    text += f": {human.counted(victim.packets, 'packet')}"
    text += "" if not victim.cost_ns else f", {human.duration(victim.cost_ns)} lost"
    return text if victim.owner is None else f"{text}; {human.owner(victim.owner)}"


def _jobs(page: HtmlPage, analysis: Analysis, most: int) -> None:
    """Training jobs in words, and what the ranks of each do in its steps."""
    jobs = training(analysis.jobs)
    if not jobs:
        return
    page.section("Jobs")
    page.say(heading(jobs), "bold")
    for job in jobs[:most]:
        print_job(page, job, analysis)
        page.chart(ranks_in_steps(job, analysis))
    page.more(len(jobs) - most, "job")
    page.say(sources(jobs), "dim")


def _charts(page: HtmlPage, analysis: Analysis) -> None:
    sets = sorted(analysis.imbalance, key=lambda record: -record.max_over_mean)
    charts = [
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
    summary = analysis.ranks
    if isinstance(summary, UnsetType):
        return []
    return [ranks(summary), rank_losses(summary), rank_completions(summary)]


def _clocks(page: HtmlPage, analysis: Analysis) -> None:
    if analysis.clocks:
        short = short_taps(tap for each in analysis.clocks for tap in (each.tap, each.relative_to))
        _list(page, "Clocks", [clock(each, short) for each in analysis.clocks])


def _list(page: HtmlPage, head: str, texts: Iterable[str], kind: str = "") -> None:
    """A heading and at most _FINDINGS texts, if any."""
    lines = [printable(text) for text in texts]
    if not lines:
        return
    items = "".join(f"<li>{escape(text)}</li>" for text in lines[:_FINDINGS])
    head = f'<h3 class="{kind}">{escape(head)}</h3>' if kind else f"<h3>{escape(head)}</h3>"
    page.add(f"{head}<ul>{items}</ul>")
    page.more(len(lines) - _FINDINGS, "line")
