"""The charts of an analysis: over time, shares of paths, extents, heat maps, ranks in steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...analyzer.results.analysis import Analysis, Hop, RankPair, Ranks
from ...analyzer.results.base import Imbalance
from ...analyzer.results.compare import Comparison, Figures
from ...analyzer.results.diagnosis import Finding
from ...analyzer.results.flow import Flow
from ...analyzer.results.jobs import JobStep, TrainingJob
from ...analyzer.words import utc
from ...replay.results import StrategyResult
from .. import human, verdicts
from ..compare import SHARES
from ..hops import short_taps
from ..jobs import STATES, State, begin_of, in_order, intervals, rank_names
from ..notes import first_ns
from ..terminal.compare import NAMES
from ..terminal.ranks import gone
from .page import WIDTH, Chart, Drawing, Value, shorten, ticks

# Several lines over one axis of time, with a legend.

MOST = 4
"""Lines of a picture; each has a colour and a dash of its own."""
_KINDS = ("wire", "wire two", "wire three", "wire four")
_LEFT, _RIGHT, _TOP, _PLOT, _LEGEND = 92.0, WIDTH - 10.0, 12.0, 190.0, 18.0


def lines(
    named: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    most: float,
    show: Callable[[float], str],
    under: str,
) -> Drawing:
    """Lines through points of (time in ns, value); at most MOST. most: upper end of the values;
    show: a value in words; under: what the axis of time shows."""
    scale = ticks(most)
    longest = max((time for _, points in named for time, _ in points), default=0.0) or 1.0
    bottom = _TOP + _PLOT
    drawing = Drawing(bottom + 44 + _LEGEND * len(named))
    for tick in scale:
        y = bottom - _PLOT * tick / scale[-1]
        drawing.line(_LEFT, y, _RIGHT, y, "axis")
        drawing.text(_LEFT - 6, y + 4, show(tick), "soft", "end")
    for tick in ticks(longest, 6):
        x = _LEFT + (_RIGHT - _LEFT) * tick / longest
        if tick <= longest * 1.001:
            drawing.line(x, bottom, x, bottom + 4, "axis")
            near = "end" if x > _RIGHT - 20 else "middle"
            drawing.text(x, bottom + 17, human.duration(tick) if tick else "0", "soft", near)
    drawing.text((_LEFT + _RIGHT) / 2, bottom + 33, under, "soft", "middle")
    for number, (name, points) in enumerate(named):
        drawing.path(
            [
                (_LEFT + (_RIGHT - _LEFT) * time / longest, bottom - _PLOT * value / scale[-1])
                for time, value in points
            ],
            _KINDS[number],
        )
        y = bottom + 50 + _LEGEND * number
        drawing.path([(_LEFT, y), (_LEFT + 34, y)], _KINDS[number])
        drawing.text(_LEFT + 42, y + 4, shorten(name, 90))
    return drawing


# Heat maps: hops by what happened on them, links by their load, ranks by their bytes.

MOST_HOPS = 32
MOST_SIDE = 32
"""Rows and columns of the heat map of a fabric or of ranks."""
_HEAT_LEFT, _HEAT_TOP, _HEAT_ROW = 200.0, 26.0, 22.0


def heat_map(
    name: str,
    words: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    what: str,
    show: Callable[[float], str] | None = None,
    per_column: bool = False,
    left_out: str = "",
) -> Chart:
    """A cell per value, the larger the stronger its colour: of all, or of its column.

    values: a row per name in `rows`; None: unknown. show: text of a cell.
    """
    drawing = Drawing(_HEAT_TOP + _HEAT_ROW * len(rows) + 12)
    width = (WIDTH - 8 - _HEAT_LEFT) / max(1, len(columns))
    most = [
        max((row[i] or 0.0 for row in values), default=0.0) for i in range(len(columns))
    ]  # fmt: skip
    if not per_column:
        most = [max(most, default=0.0)] * len(columns)
    every = max(1, -(-len(columns) * 52 // int(WIDTH - _HEAT_LEFT)))
    for i, column in enumerate(columns):
        if i % every == 0:
            fits = max(3, int(width * every / 7))
            middle = _HEAT_LEFT + width * (i + 0.5)
            drawing.text(middle, _HEAT_TOP - 8, shorten(column, fits), "soft", "middle")
    for j, (row, cells) in enumerate(zip(rows, values, strict=True)):
        y = _HEAT_TOP + _HEAT_ROW * j
        drawing.text(_HEAT_LEFT - 6, y + 15, shorten(row, 28), "", "end")
        for i, value in enumerate(cells):
            shade = (value or 0.0) / most[i] if most[i] else 0.0
            drawing.rect(
                _HEAT_LEFT + width * i, y, width, _HEAT_ROW, "one cell", 0.03 + 0.52 * shade
            )
            text = "" if show is None and value is not None else "?" if value is None else \
                show(value) if show else ""  # fmt: skip
            if text and len(text) * 7 <= width:
                drawing.text(_HEAT_LEFT + width * (i + 0.5), y + 15, text, "", "middle")
    numbers: list[tuple[Value, ...]] = [
        (row, *cells) for row, cells in zip(rows, values, strict=True)
    ]
    return Chart(name, words, drawing, (what, *columns), numbers, left_out)


def hops(records: Sequence[Hop]) -> Chart | None:
    """Hops by loss, marks, reordering and queueing, the worst first; None without hops."""
    if not records:
        return None
    short = short_taps(tap for hop in records for tap in (hop.from_tap, hop.to_tap) if tap)
    worst = sorted(
        records,
        key=lambda hop: (-hop.lost_packets, -hop.ce_marked_packets, -hop.reordered_packets,
                         -hop.packets),
    )[:MOST_HOPS]  # fmt: skip
    names = [
        f"{short[hop.from_tap]} > {'?' if hop.to_tap is None else short[hop.to_tap]}"
        for hop in worst
    ]
    columns = ("lost %", "CE-marked %", "overtaken %", "copied %", "queue p99, us")
    values = [
        [
            hop.lost_percent,
            *(
                100 * count / hop.packets if hop.packets else None
                for count in (
                    hop.ce_marked_packets, hop.reordered_packets, hop.duplicate_packets
                )
            ),
            hop.queueing_ns.p99 / 1e3 if hop.queueing_ns else None,
        ]
        for hop in worst
    ]  # fmt: skip
    hidden = len(records) - len(worst)
    lossy = sum(1 for hop in records if hop.lost_packets)
    return heat_map(
        "Hops between taps",
        f"{human.counted(len(records), 'hop')}, {human.count(lossy)} with losses, the worst first. "
        "The closer a value is to the largest of its column, the stronger the colour; "
        "? is not known.",
        names,
        columns,
        values,
        "hop",
        lambda value: f"{value:.3g}" if 0 < value < 1000 else f"{value:,.0f}",
        per_column=True,
        left_out=f"{human.counted(hidden, 'hop')} not shown." if hidden else "",
    )


def fabric(strategy: StrategyResult, layer: str) -> Chart | None:
    """Links of a layer as a matrix of switches, by bytes over the fair share; None without load."""
    links = [link for link in strategy.links if link.layer == layer and ">" in link.name]
    if not any(link.wire_bytes for link in links):
        return None
    loads = {tuple(link.name.split(">", 1)): link.over_mean or 0.0 for link in links}
    rows = list(dict.fromkeys(ends[0] for ends in loads))
    columns = list(dict.fromkeys(ends[1] for ends in loads))
    if len(loads) < len(links) or min(len(rows), len(columns)) < 2:
        return None
    hidden = len(rows) > MOST_SIDE or len(columns) > MOST_SIDE
    rows, columns = rows[:MOST_SIDE], columns[:MOST_SIDE]
    values = [[loads.get((row, column)) for column in columns] for row in rows]
    return heat_map(
        f"Load of the links, {layer}, {strategy.title}",
        f"Bytes of each link over its fair share, from the switch of the row to that of the "
        f"column; 1 is fair, the strongest is {max(loads.values()):.2f}; ? is no link, or no link "
        "that this traffic can reach.",
        rows,
        columns,
        values,
        "from",
        lambda value: f"{value:.2f}",
        left_out=f"The first {MOST_SIDE} switches of each side are shown." if hidden else "",
    )


def ranks(summary: Ranks) -> Chart | None:
    """Bytes from rank to rank, of the communicator with most; None without pairs of ranks."""
    return _of_ranks(summary, "Bytes", lambda pair: pair.wire_bytes, human.size)


def rank_losses(summary: Ranks) -> Chart | None:
    """Packets lost before the tap or never seen, likewise; None without losses."""
    return _of_ranks(summary, "Packets lost or missing", gone, lambda lost: human.count(int(lost)))


def rank_completions(summary: Ranks) -> Chart | None:
    """Longest completion time of a message, likewise; None if no time is known."""
    return _of_ranks(
        summary,
        "Longest completion of a message",
        lambda pair: pair.completion_max_ns,
        human.duration,
    )


def _of_ranks(
    summary: Ranks,
    name: str,
    of: Callable[[RankPair], float | None],
    show: Callable[[float], str],
) -> Chart | None:
    sizes: Counter[str] = Counter()
    for pair in summary.pairs:
        sizes[pair.comm] += pair.wire_bytes
    if not sizes:
        return None
    comm, _ = sizes.most_common(1)[0]
    pairs = {(each.sender, each.receiver): each for each in summary.pairs if each.comm == comm}
    values = {ends: of(pair) for ends, pair in pairs.items()}
    if not any(values.values()):
        return None
    busy: Counter[int] = Counter()
    for ends, pair in pairs.items():
        busy.update(dict.fromkeys(ends, pair.wire_bytes))
    shown = sorted(rank for rank, _ in busy.most_common(MOST_SIDE))
    names = [f"rank {rank}" for rank in shown]
    hidden = len(busy) - len(shown)
    left_out = [f"{human.counted(hidden, 'rank')} with fewer bytes"] if hidden else []
    if len(sizes) > 1:
        left_out.append(human.counted(len(sizes) - 1, "other communicator"))
    worst = max(value for value in values.values() if value is not None)
    unknown = "; ? is not known" if None in values.values() else ""
    return heat_map(
        f"{name} from rank to rank, communicator {comm}",
        f"{human.counted(len(values), 'pair')} of ranks; rows send, columns receive; the strongest "
        f"is {show(worst)}{unknown}.",
        names,
        names,
        [[values.get((sender, receiver), 0) for receiver in shown] for sender in shown],
        "from",
        lambda value: show(value) if value else "",
        left_out=f"Left out: {', '.join(left_out)}." if left_out else "",
    )


# Traffic and its troubles over time, with the findings.

POINTS = 240
"""Windows of a chart; of longer series, neighbours are summed."""
_SPANS = 20
"""Findings with their spans in the picture."""
_TROUBLES = (
    ("reordered_packets", "reordered"),
    ("retransmitted_packets", "retransmitted"),
    ("duplicate_packets", "duplicate"),
    ("ecn_marked_packets", "CE-marked"),
    ("cnps", "CNPs"),
    ("naks", "NAKs"),
)
_OVER_TIME_LEFT, _OVER_TIME_RIGHT, _RATE, _ROW = 92.0, WIDTH - 10.0, 150.0, 46.0
_JOBS, _TICKS, _STEPS = 4, 200, 16.0
"""Jobs whose steps are on the axis of time; ticks of each; height of their row."""


def over_time(analysis: Analysis) -> Chart | None:
    """Wire rate, the counts that are not zero, and the findings; None without packets."""
    series = analysis.series
    if not sum(series.packets):
        return None
    step = -(-len(series.packets) // POINTS)
    window_ns = series.window_ns * step
    rates = _rates(series.wire_bytes, step, series.window_ns)
    seen = [
        (word, summed(values, step))
        for name, word in _TROUBLES
        if sum(values := getattr(series, name))
    ]
    findings = analysis.diagnosis.findings[:_SPANS]
    top = 22.0 + 14 * len(findings)
    stepped = [job for job in analysis.jobs if job.iterations is not None][:_JOBS]
    begin_ns = first_ns(analysis)
    length_ns = max(1, series.start_ns + window_ns * len(rates) - begin_ns)
    below = top + _RATE + _ROW * len(seen)
    bottom = below + (_STEPS * len(stepped) + 8 if stepped else 0)
    drawing = Drawing(bottom + 40)

    def x(time_ns: float) -> float:
        share = (time_ns - begin_ns) / length_ns
        return _OVER_TIME_LEFT + (_OVER_TIME_RIGHT - _OVER_TIME_LEFT) * min(1.0, max(0.0, share))

    _spans(drawing, findings, begin_ns + length_ns, bottom, x)
    scale = ticks(max(rates))
    for tick in scale:
        y = top + _RATE - (_RATE - 12) * tick / scale[-1]
        drawing.line(_OVER_TIME_LEFT, y, _OVER_TIME_RIGHT, y, "axis")
        drawing.text(_OVER_TIME_LEFT - 6, y + 4, human.rate(tick), "soft", "end")
    starts = [series.start_ns + window_ns * i for i in range(len(rates))]
    points = [
        (x(start + window_ns * side), top + _RATE - (_RATE - 12) * rate / scale[-1])
        for start, rate in zip(starts, rates, strict=True)
        for side in (0, 1)
    ]
    drawing.path(points, "wire")
    for number, (word, counts) in enumerate(seen):
        base = top + _RATE + _ROW * (number + 1)
        drawing.line(_OVER_TIME_LEFT, base, _OVER_TIME_RIGHT, base, "axis")
        drawing.text(_OVER_TIME_LEFT - 6, base - 14, word, "", "end")
        drawing.text(_OVER_TIME_LEFT - 6, base, f"max {human.count(max(counts))}", "soft", "end")
        for start, count in zip(starts, counts, strict=True):
            if count:
                height = max(1.5, (_ROW - 10) * count / max(counts))
                left, right = x(start), x(start + window_ns)
                drawing.rect(left, base - height, max(1, right - left - 0.5), height, "two")
    for number, job in enumerate(stepped):
        _step_ticks(drawing, job, below + 8 + _STEPS * (number + 1), x)
    moment = utc(begin_ns, 3)
    since = "" if moment is None else f", {' '.join(moment)} UTC"
    _time_axis(drawing, length_ns, bottom, since)
    words = f"Wire rate in windows of {human.duration(window_ns)}, at most {human.rate(max(rates))}"
    words += (
        f"; below it the packets of each window: {', '.join(w for w, _ in seen)}" if seen else ""
    )
    words += "; each tick of a job is the end of a step" if stepped else ""
    words += "." if not findings else (
        f". {human.counted(len(findings), 'finding is', 'findings are')} marked from onset to end, "
        "with the numbers of the diagnosis."
    )  # fmt: skip
    rows = [
        (max(0, starts[number] - begin_ns) / 1e9, rate, *(counts[number] for _, counts in seen))
        for number, rate in enumerate(rates)
    ]
    hidden = len(analysis.diagnosis.findings) - len(findings)
    return Chart(
        "Traffic over time",
        words,
        drawing,
        ("from, s", "wire rate, b/s", *(word for word, _ in seen)),
        rows,
        f"{human.counted(hidden, 'further finding')} not marked." if hidden else "",
    )


def taps_over_time(analysis: Analysis) -> Chart | None:
    """Wire rate of every tap over time as a heat map; None with one tap or without a packet."""
    series, begin_ns = analysis.series, first_ns(analysis)
    if len(series.tap_wire_bytes) < 2 or not series.packets:
        return None
    step = -(-len(series.packets) // 48)
    window_ns = series.window_ns * step
    busiest = sorted(series.tap_wire_bytes, key=lambda tap: -sum(series.tap_wire_bytes[tap]))[:32]
    taps = [tap for tap in series.tap_wire_bytes if tap in busiest]
    short = short_taps(series.tap_wire_bytes)
    rates = [_rates(series.tap_wire_bytes[tap], step, series.window_ns) for tap in taps]
    starts = [
        human.duration(max(0, series.start_ns + i * window_ns - begin_ns))
        for i in range(len(rates[0]))
    ]
    hidden = len(series.tap_wire_bytes) - len(taps)
    return heat_map(
        "Wire rate per tap over time",
        f"{human.counted(len(taps), 'tap')}, windows of {human.duration(window_ns)}; the strongest "
        f"colour is {human.rate(max(map(max, rates)))}.",
        [short[tap] for tap in taps],
        starts,
        rates,
        "tap",
        left_out=f"{human.counted(hidden, 'tap')} with less traffic not shown." if hidden else "",
    )


def summed(values: Sequence[int], step: int) -> list[int]:
    """Sums of `step` neighbours each."""
    return [sum(values[i : i + step]) for i in range(0, len(values), step)]


def _rates(sizes: Sequence[int], step: int, window_ns: int) -> list[float]:
    """Bits per second of `step` neighbours each; the last may be fewer."""
    counts = (min(step, len(sizes) - first) for first in range(0, len(sizes), step))
    return [
        8e9 * size / (window_ns * count)
        for size, count in zip(summed(sizes, step), counts, strict=True)
    ]


def _spans(
    drawing: Drawing,
    findings: Sequence[Finding],
    end_ns: int,
    bottom: float,
    x: Callable[[float], float],
) -> None:
    """A numbered bar per finding above the plots, and its span below the bar."""
    for number, finding in enumerate(findings):
        y = 8.0 + 14 * number
        begin, end = x(finding.from_ns), x(end_ns if finding.until_ns is None else finding.until_ns)
        end = max(end, begin + 2)
        kind = f"span {finding.severity}"
        drawing.rect(begin, y, end - begin, bottom - y, kind, 0.06)
        drawing.rect(begin, y, end - begin, 5, kind)
        drawing.line(begin, y, begin, bottom, f"mark {finding.severity}")
        drawing.text(_OVER_TIME_LEFT - 6, y + 7, f"finding {number + 1}", "soft", "end")


def _step_ticks(
    drawing: Drawing, job: TrainingJob, base: float, x: Callable[[float], float]
) -> None:
    """A tick at the end of every step; where they are too dense, a bar from the first to the
    last."""
    ends = [] if job.iterations is None else [step.last_message_ns for step in job.iterations.steps]
    drawing.text(_OVER_TIME_LEFT - 6, base - 3, f"steps of {shorten(job.name, 8)}", "soft", "end")
    if len(ends) > _TICKS:
        drawing.rect(x(ends[0]), base - 8, x(ends[-1]) - x(ends[0]), 5, "three")
        return
    for end in ends:
        drawing.line(x(end), base - 10, x(end), base, "axis tick")


def _time_axis(drawing: Drawing, length_ns: float, bottom: float, since: str) -> None:
    scale = [tick for tick in ticks(length_ns, 6) if tick <= length_ns * 1.001]
    for tick in scale:
        x = _OVER_TIME_LEFT + (_OVER_TIME_RIGHT - _OVER_TIME_LEFT) * tick / length_ns
        drawing.line(x, bottom, x, bottom + 4, "axis")
        drawing.text(x, bottom + 17, human.duration(tick) if tick else "0", "soft", "middle")
    drawing.text(
        (_OVER_TIME_LEFT + _OVER_TIME_RIGHT) / 2,
        bottom + 33,
        f"time since the first packet{since}",
        "soft",
        "middle",
    )


# Bytes per path beside the fair share: columns, and the line that an even split would give.

SHARES_MOST = 64
"""Columns of a chart; the busiest paths come first where there are more."""
_HOT, _COLD = 1.25, 0.75
"""Times the fair share from which a path counts as overloaded or underused."""
_SHARES_LEFT, _SHARES_TOP, _SHARES_PLOT = 56.0, 22.0, 200.0
_LETTER, _LABEL_LINES = 7, 4
"""Width of a letter; names below the columns take up to this many lines: they do not overlap."""


def paths(record: Imbalance) -> Chart:
    """Bytes of each parallel path of a set."""
    short = verdicts.path_names(record)
    fair = record.wire_bytes / record.paths
    loads = [(short[share.path], share.wire_bytes, fair, None) for share in record.shares]
    inferred = " The paths are inferred." if record.inferred else ""
    words = f"{human.counted(record.paths, 'path')}, {human.counted(record.flows, 'flow')}"
    name = f"Bytes per path of {verdicts.set_name(record)}"
    return _columns(name, f"{words}.{inferred}", loads, "path")


def links(strategy: StrategyResult, layer: str) -> Chart | None:
    """Bytes of each link of a layer with a strategy; None without load."""
    of_layer = [link for link in strategy.links if link.layer == layer]
    loads = [
        (
            link.name,
            link.wire_bytes,
            link.wire_bytes / link.over_mean if link.over_mean else None,
            link.flows,
        )
        for link in of_layer
    ]
    if not any(link.wire_bytes for link in of_layer):
        return None
    from ...replay.results import AS_CAPTURED  # slow to load: only reports of replays

    how = strategy.title if strategy.name == AS_CAPTURED else f"placed by {strategy.title}"
    words = f"{human.counted(len(of_layer), 'link')} of layer {layer}, {how}."
    return _columns(f"Bytes per link, {layer}, {strategy.title}", words, loads, "link")


def _columns(
    name: str, words: str, loads: Sequence[tuple[str, int, float | None, int | None]], what: str
) -> Chart:
    """loads: name, bytes, fair share in bytes or None, flows or None."""
    by_load = sorted(loads, key=lambda load: -load[1])
    shown = by_load[:SHARES_MOST]
    if len(loads) <= SHARES_MOST:
        shown = sorted(loads, key=lambda load: (not load[0].isdigit(), load[0].zfill(8)))
    fair = [share for _, _, share, _ in shown if share]
    level = fair[0] if fair and max(fair) - min(fair) <= 0.01 * max(fair) else None
    if level is not None:
        shown = [(label, size, share or level, flows) for label, size, share, flows in shown]
    scale = ticks(max(*(size for _, size, _, _ in shown), *fair, 1))
    step = (WIDTH - 8 - _SHARES_LEFT) / max(1, len(shown))
    lines = min(_LABEL_LINES, -(-_LETTER * max(len(load[0]) for load in shown) // int(step)))
    drawing = Drawing(_SHARES_TOP + _SHARES_PLOT + 16 + 15 * lines)
    base = _SHARES_TOP + _SHARES_PLOT
    for tick in scale:
        y = base - _SHARES_PLOT * tick / scale[-1]
        drawing.line(_SHARES_LEFT, y, WIDTH - 8, y, "axis")
        drawing.text(_SHARES_LEFT - 6, y + 4, human.size(tick), "soft", "end")
    for number, (label, size, share, _) in enumerate(shown):
        x, height = _SHARES_LEFT + step * (number + 0.12), _SHARES_PLOT * size / scale[-1]
        times = size / share if share else 1.0
        kind, mark = ("two", "++") if times > _HOT else ("three", "--") if times < _COLD else \
            ("one", "")  # fmt: skip
        drawing.rect(x, base - height, step * 0.76, height, kind)
        if step >= 14:
            drawing.text(x + step * 0.38, base - height - 4, mark, "strong", "middle")
        fits = int(step * lines / _LETTER)
        if fits >= 3:
            y = base + 16 + 15 * (number % lines)
            shown_name, half = shorten(label, fits), _LETTER * min(len(label), fits) / 2
            if x + step * 0.38 + half > WIDTH:
                drawing.text(WIDTH - 2, y, shown_name, "soft", "end")
            else:
                drawing.text(x + step * 0.38, y, shown_name, "soft", "middle")
        if share and level is None:
            y = base - _SHARES_PLOT * share / scale[-1]
            drawing.line(x - step * 0.1, y, x + step * 0.86, y, "fair")
    if level is not None:
        y = base - _SHARES_PLOT * level / scale[-1]
        drawing.line(_SHARES_LEFT, y, WIDTH - 8, y, "fair")
        drawing.text(WIDTH - 8, 14, f"dashed: fair share {human.size(level)}", "strong", "end")
    drawing.text(_SHARES_LEFT, 14, "bytes", "soft")
    busiest = by_load[0]
    text = f"{words} The busiest is {busiest[0]} with {human.size(busiest[1])}"
    if busiest[2]:
        text += f", {busiest[1] / busiest[2]:.2f} times its fair share (dashed line)"
    text += "; ++ is above 1.25 times the fair share, -- below 0.75 times."
    rows = [
        (label, size, share, size / share if share else None, flows)
        for label, size, share, flows in shown
    ]
    left = len(loads) - len(shown)
    return Chart(
        name,
        text,
        drawing,
        (what, "bytes", "fair share, bytes", "times fair", "flows"),
        rows,
        f"The {SHARES_MOST} busiest of {human.counted(len(loads), what)} are shown."
        if left
        else "",
    )


# The distribution of the reordering extent over all flows.

_EXTENTS_LEFT, _EXTENTS_TOP, _EXTENTS_PLOT = 56.0, 22.0, 180.0


def extents(flows: Iterable[Flow]) -> Chart | None:
    """Late packets by extent, in powers of two; None without late packets."""
    octaves: Counter[int] = Counter()
    most = late_flows = 0
    for flow in flows:
        if flow.reordering is None or not flow.reordering.extent_histogram:
            continue
        late_flows += 1
        most = max(most, flow.reordering.max_extent)
        for bucket in flow.reordering.extent_histogram:
            octaves[max(1, bucket.low).bit_length() - 1] += bucket.count
    total = sum(octaves.values())
    if not total:
        return None
    last = max(octaves)
    counts = [octaves[k] for k in range(last + 1)]
    labels = ["1"] + [f"{1 << k} to {(2 << k) - 1}" for k in range(1, last + 1)]
    scale = ticks(max(counts))
    drawing, base = Drawing(_EXTENTS_TOP + _EXTENTS_PLOT + 44), _EXTENTS_TOP + _EXTENTS_PLOT
    for tick in scale:
        y = base - _EXTENTS_PLOT * tick / scale[-1]
        drawing.line(_EXTENTS_LEFT, y, WIDTH - 48, y, "axis")
        drawing.text(_EXTENTS_LEFT - 6, y + 4, human.count(round(tick)), "soft", "end")
    step = (WIDTH - 48 - _EXTENTS_LEFT) / len(counts)
    rows: list[tuple[str, int, float, float]] = []
    below, line = 0, []
    for number, (label, count) in enumerate(zip(labels, counts, strict=True)):
        below += count
        x, height = _EXTENTS_LEFT + step * number, _EXTENTS_PLOT * count / scale[-1]
        drawing.rect(x + step * 0.1, base - height, step * 0.8, height, "one")
        if step > 34 or number % 2 == 0:
            drawing.text(x + step / 2, base + 16, label, "soft", "middle")
        line.append((x + step, base - _EXTENTS_PLOT * below / total))
        rows.append((label, count, 100 * count / total, 100 * below / total))
    drawing.path([(_EXTENTS_LEFT, base), *line], "fair")
    drawing.text(WIDTH - 44, _EXTENTS_TOP + 4, "100 %", "soft")
    drawing.text(WIDTH - 44, base + 4, "0 %", "soft")
    drawing.text(_EXTENTS_LEFT, 14, "late packets", "soft")
    drawing.text((_EXTENTS_LEFT + WIDTH - 48) / 2, base + 36, "extent in packets", "soft", "middle")
    half = next(row[0] for row in rows if row[3] >= 50)
    return Chart(
        "Distribution of the reordering extent",
        f"{human.counted(total, 'late packet')} of {human.counted(late_flows, 'flow')}; half have "
        f"an extent of at most {half.split()[-1]} packets, the largest is {human.count(most)}. "
        "The dashed line is the share at or below each extent.",
        drawing,
        ("extent, packets", "late packets", "% of them", "% up to here"),
        rows,
    )


# Figures of two analyses side by side.

_CHANGES_LEFT, _CHANGES_ROW = 130.0, 44.0


def changes(result: Comparison) -> Chart | None:
    """Shares of troubled packets before and after; None if both have none."""
    sides = result.figures_before, result.figures_after
    shares = [(name, _percent(sides[0], name), _percent(sides[1], name)) for name in SHARES]
    shown = [row for row in shares if row[1] or row[2]]
    if not shown:
        return None
    scale = ticks(max(value or 0 for row in shown for value in row[1:]))
    bottom = 26 + _CHANGES_ROW * len(shown)
    drawing = Drawing(bottom + 38)
    wide = WIDTH - 90 - _CHANGES_LEFT
    for tick in scale:
        x = _CHANGES_LEFT + wide * tick / scale[-1]
        drawing.line(x, 22, x, bottom, "axis")
        drawing.text(x, bottom + 16, f"{tick:g}", "soft", "middle")
    drawing.text(_CHANGES_LEFT + wide / 2, bottom + 33, "% of all packets", "soft", "middle")
    for number, (kind, word) in enumerate((("one", "before"), ("two", "after"))):
        drawing.rect(_CHANGES_LEFT + 90 * number, 4, 12, 12, kind)
        drawing.text(_CHANGES_LEFT + 90 * number + 17, 14, word)
    for number, (name, before, after) in enumerate(shown):
        y = 30 + _CHANGES_ROW * number
        drawing.text(_CHANGES_LEFT - 8, y + 20, NAMES[name], "", "end")
        for half, (value, kind) in enumerate(((before, "one"), (after, "two"))):
            length = wide * (value or 0) / scale[-1]
            drawing.rect(_CHANGES_LEFT, y + 17 * half, length, 15, kind)
            text = human.percent(None if value is None else value / 100)
            drawing.text(_CHANGES_LEFT + length + 5, y + 17 * half + 12, text)
    rows: list[tuple[Value, ...]] = [(NAMES[name], *values) for name, *values in shares]
    return Chart(
        "Packets with anomalies, before and after",
        f"Shares of all packets of {result.before} (before) and {result.after} (after).",
        drawing,
        ("figure", "before, %", "after, %"),
        rows,
    )


def _percent(side: Figures, name: str) -> float | None:
    value: int | None = getattr(side, name)
    return None if value is None or not side.packets else 100 * value / side.packets


MOST_STEPS, MOST_RANKS = 8, 32
"""Steps and ranks of a picture."""
_JOB_LEFT, _JOB_TOP, _JOB_ROW = 150.0, 40.0, 20.0
_JOB_KINDS: dict[State, tuple[str, float, float]] = {
    "computing": ("span note", 0.15, 3),
    "waiting": ("span warning", 0.55, 8),
    "sending": ("one", 1, 14),
    "waited for": ("span", 1, 14),
    "sends within": ("one", 0.4, 14),
}
"""Class, opacity and height: the states differ in height, too, where colours do not show."""


def ranks_in_steps(job: TrainingJob, analysis: Analysis) -> Chart | None:
    """The steps before, in and after the first wait for a rank, else the longest ones; None if no
    step says what its ranks do."""
    steps = shown_steps(job)
    if not steps:
        return None
    ranks = in_order(job, steps[-1])[:MOST_RANKS]
    names = rank_names(job)
    begin_ns, end_ns = begin_of(steps[0]), steps[-1].last_message_ns
    bottom = _JOB_TOP + _JOB_ROW * len(ranks)
    seen = {part.state for step in steps for one in step.ranks for part in intervals(step, one)}
    used = [state for state in STATES if state in seen]
    drawing = Drawing(bottom + 46 + 18 * len(used))

    def x(time_ns: float) -> float:
        return _JOB_LEFT + (WIDTH - 10 - _JOB_LEFT) * (time_ns - begin_ns) / max(
            1, end_ns - begin_ns
        )

    row = {rank.address: number for number, rank in enumerate(ranks)}
    for rank in ranks:
        label = f"{names.get(rank.address, 'rank ?')} {rank.address}"
        drawing.text(
            _JOB_LEFT - 6,
            _JOB_TOP + _JOB_ROW * row[rank.address] + 14,
            shorten(label, 22),
            "",
            "end",
        )
    numbers: list[tuple[Value, ...]] = []
    since = first_ns(analysis)
    for step in steps:
        end = x(step.last_message_ns)
        drawing.line(end, _JOB_TOP - 6, end, bottom, "axis")
        middle = (x(begin_of(step)) + end) / 2
        drawing.text(middle, _JOB_TOP - 22, f"step {step.index}", "strong", "middle")
        lasted = "" if step.duration_ns is None else human.duration(step.duration_ns)
        drawing.text(middle, _JOB_TOP - 8, lasted, "soft", "middle")
        for one in step.ranks:
            if one.address not in row:
                continue
            top = _JOB_TOP + _JOB_ROW * row[one.address]
            total = dict.fromkeys(STATES, 0)
            for part in intervals(step, one):
                kind, opacity, height = _JOB_KINDS[part.state]
                left, right = x(part.from_ns), x(part.until_ns)
                y = top + (_JOB_ROW - height) / 2
                drawing.rect(left, y, max(0.5, right - left), height, kind, opacity)
                total[part.state] += part.until_ns - part.from_ns
            spent = (total[state] / 1e6 for state in used)
            numbers.append((step.index, names.get(one.address, "rank ?"), one.address, *spent))
    for tick in ticks(end_ns - begin_ns, 6):
        if tick <= (end_ns - begin_ns) * 1.001:
            near = "end" if x(begin_ns + tick) > WIDTH - 30 else "middle"
            text = human.duration(tick) if tick else "0"
            drawing.text(x(begin_ns + tick), bottom + 16, text, "soft", near)
    after = f"time since {human.duration(max(0, begin_ns - since))} after the first packet"
    drawing.text((_JOB_LEFT + WIDTH) / 2, bottom + 32, after, "soft", "middle")
    for number, state in enumerate(used):
        y = bottom + 42 + 18 * number
        kind, opacity, height = _JOB_KINDS[state]
        drawing.rect(_JOB_LEFT, y + (14 - height) / 2, 34, height, kind, opacity)
        drawing.text(_JOB_LEFT + 42, y + 11, STATES[state])
    hidden = [
        human.counted(left, what)
        for left, what in (
            (len(steps[-1].ranks) - len(ranks), "rank"),
            (0 if job.iterations is None else len(job.iterations.steps) - len(steps), "step"),
        )
        if left > 0
    ]
    return Chart(
        f"Ranks of job {job.name} in steps {steps[0].index} to {steps[-1].index}",
        "A row per rank; vertical lines are the ends of steps, with their durations. The times are"
        " those at the taps.",
        drawing,
        ("step", "rank", "address", *(f"{state}, ms" for state in used)),
        numbers,
        f"{' and '.join(hidden)} not shown." if hidden else "",
    )


def shown_steps(job: TrainingJob) -> Sequence[JobStep]:
    """At most MOST_STEPS consecutive steps with ranks."""
    if job.iterations is None:
        return []
    steps = job.iterations.steps
    known = [step for step in steps if step.ranks]
    if not known:
        return []
    if job.stragglers:
        first = max(0, job.stragglers[0].from_step - 2)
    else:
        longest = max(known, key=lambda step: step.duration_ns or 0)
        first = max(0, longest.index - MOST_STEPS // 2)
    first = max(0, min(first, len(steps) - MOST_STEPS))
    chosen: list[JobStep] = []
    for step in steps[first : first + MOST_STEPS]:
        if step.ranks and (not chosen or step.epoch == chosen[-1].epoch):
            chosen.append(step)
    return chosen or known[-1:]
