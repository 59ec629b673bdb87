"""The cells of one flow, and the line of its paths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from ...analyzer.results.base import Fact
from ...analyzer.wire.opcodes import TRANSPORT_NAMES
from ...report.words import human
from ...report.words.human import UNICODE
from ..flow_columns import DECLARED, MAX_BARS
from ..session.snapshots.snapshot import (
    MRC_FACTS,
    UNKNOWN,
    MrcColumns,
    MrcFact,
    PathColumns,
    Snapshot,
)
from ..widgets.grid_columns import Cell


def count(value: int) -> str:
    """A count; `?` if it is unknown."""
    return human.UNKNOWN if value == UNKNOWN else human.count(value)


def path_line(paths: PathColumns, f: int) -> Text:
    """The flow's busiest paths, and its fair share: an equal part for each path."""
    rows = paths.of(f)
    loads = paths.wire_bytes[rows]
    text = Text(f"{'its paths':>16} ", "dim", no_wrap=True, overflow="ellipsis")
    if paths.counts is not None:
        return text.append("results have no paths")
    if not len(loads) or not loads.sum():
        return text.append("none")
    for row in np.argsort(-loads, kind="stable")[:6]:
        text.append(f"{paths.name(int(paths.key[rows][row]))} ", "bold not dim")
        text.append(f"{human.percent(loads[row] / loads.sum())}  ", "not dim")
    if len(loads) > 6:
        text.append(f"and {len(loads) - 6} more  ")
    return text.append(f"fair {human.percent(1 / len(loads))}, {paths.trust}")


def flow_cells(
    snapshot: Snapshot, paths: PathColumns, f: int, bars: int = MAX_BARS, line: int = MAX_BARS
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS; `bars`, `line`: widths of the spray bars and sparkline."""
    flows = snapshot.flows
    rows = paths.of(f)
    seen = rows.stop - rows.start if paths.counts is None else int(paths.counts[f])
    late, arrivals = int(flows.late[f]), int(flows.arrivals[f])
    naks = int(flows.naks[f] + flows.rnr_naks[f])
    ce = int(flows.ecn_marked[f])
    width = float(paths.width[f]) if f < len(paths.width) else 0.0
    activity: Cell = ""
    if f < snapshot.activity.shape[1] if snapshot.activity.ndim == 2 else False:
        activity = (UNICODE.sparkline(snapshot.activity[:, f].tolist(), line), "accent")
    return (
        snapshot.addresses[flows.src[f]],
        snapshot.addresses[flows.dst[f]],
        human.queue_pair(int(flows.qp[f])),
        state(snapshot, f),
        TRANSPORT_NAMES[flows.transport[f]],
        human.rate(float(flows.rate[f])).removesuffix("b/s").rstrip() or "0",
        human.count(int(flows.packets[f])),
        human.size(int(flows.wire_bytes[f])).removesuffix("B").rstrip(),
        str(int(np.count_nonzero(paths.packets[rows])) if paths.counts is None else seen),
        f"{width:.1f}/{seen}",
        (spray(paths, f, bars), "accent"),
        share(late, arrivals),
        bad(int(flows.max_extent[f]) if late > 0 else late),
        *(declared(fact, int(flows.counts_of(fact)[f])) for fact in DECLARED),
        bad(naks),
        bad(int(flows.cnps[f])),
        share(ce, int(flows.packets[f])),
        activity,
    )


def mrc_cells(mrc: MrcColumns, f: int) -> list[Cell]:
    """Cells of one flow, in the order of MRC_COLUMNS; empty without MRC data."""
    if mrc.values[f] == UNKNOWN:
        return [("·", "dim")] * len(MRC_FACTS)
    return [_mrc_cell(fact, int(getattr(mrc, fact.name)[f])) for fact in MRC_FACTS]


def _mrc_cell(fact: MrcFact, value: int) -> Cell:
    if value == UNKNOWN:
        return (human.UNKNOWN, "dim")
    return bad(value) if fact.is_trouble else human.count(value)


def state(snapshot: Snapshot, f: int) -> Cell:
    """The worst finding that hit the flow."""
    rank, name = snapshot.judged.states.get(f, (0, ""))
    return name, "" if rank <= 1 else "warn" if rank == 2 else "bad"


def bad(value: int) -> Cell:
    """A count that should be 0."""
    return (count(value), "bad") if value > 0 else (count(value), "dim")


def declared(fact: Fact, value: int) -> Cell:
    """A count of a declared column."""
    return bad(value) if fact.is_trouble else count(value)


def share(part: int, of: int) -> Cell:
    """A share in percent that should be 0."""
    if part == UNKNOWN:
        return (human.UNKNOWN, "dim")
    if part == 0:
        return ("0", "dim")
    percent = 100 * part / max(of, 1)
    return (f"{percent:.2f}" if percent >= 0.01 else "<0.01", "bad" if percent >= 1 else "warn")


def spray(paths: PathColumns, f: int, bars: int = MAX_BARS) -> str:
    """One bar per path in the order of their keys, height relative to the busiest."""
    rows = paths.of(f)
    loads = paths.wire_bytes[rows]
    if len(loads) > bars:  # sums of neighbours
        edges = np.arange(bars) * len(loads) // bars
        loads = np.add.reduceat(loads, edges)
    if not len(loads):
        return ""
    return UNICODE.columns(loads.tolist()).replace(" ", "·")
