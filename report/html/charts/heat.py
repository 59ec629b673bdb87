"""Heat maps: hops by what happened on them, links by their load, ranks by their bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ....analyzer.results.hops import Hop
from ....analyzer.results.ranks import RankPair, Ranks
from ....replay.results.replay import StrategyResult
from ...terminal.ranks import gone
from ...words import human
from ...words.hops import short_taps
from ..chart import Chart, Value
from ..drawing import WIDTH, Drawing, shorten

MOST_HOPS = 32
MOST_SIDE = 32
"""Rows and columns of the heat map of a fabric or of ranks."""
_LEFT, _TOP, _ROW = 200.0, 26.0, 22.0


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
    drawing = Drawing(_TOP + _ROW * len(rows) + 12)
    width = (WIDTH - 8 - _LEFT) / max(1, len(columns))
    most = [
        max((row[i] or 0.0 for row in values), default=0.0) for i in range(len(columns))
    ]  # fmt: skip
    if not per_column:
        most = [max(most, default=0.0)] * len(columns)
    every = max(1, -(-len(columns) * 52 // int(WIDTH - _LEFT)))
    for i, column in enumerate(columns):
        if i % every == 0:
            fits = max(3, int(width * every / 7))
            drawing.text(_LEFT + width * (i + 0.5), _TOP - 8, shorten(column, fits), "soft",
                         "middle")  # fmt: skip
    for j, (row, cells) in enumerate(zip(rows, values, strict=True)):
        y = _TOP + _ROW * j
        drawing.text(_LEFT - 6, y + 15, shorten(row, 28), "", "end")
        for i, value in enumerate(cells):
            shade = (value or 0.0) / most[i] if most[i] else 0.0
            drawing.rect(_LEFT + width * i, y, width, _ROW, "one cell", 0.03 + 0.52 * shade)
            text = "" if show is None and value is not None else "?" if value is None else \
                show(value) if show else ""  # fmt: skip
            if text and len(text) * 7 <= width:
                drawing.text(_LEFT + width * (i + 0.5), y + 15, text, "", "middle")
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
