"""Columns of the table of flows on screen 2."""

from ..analyzer.results.base import facts_of
from ..analyzer.results.flow import Flow
from .session.snapshots.snapshot import MRC_FACTS
from .widgets.grid_columns import GridColumn

FEW_BARS, MAX_BARS, MANY_BARS = 8, 16, 64
"""Number of path bars on narrow, medium and wide terminals."""
LONG_LINE = 60
"""Most columns of a sparkline."""

DECLARED = tuple(fact for fact in facts_of(Flow) if fact.short)
"""Counts that are shown as they are."""

COLUMNS = (
    GridColumn("src", "SOURCE", 10, grows=True, ends=True),
    GridColumn("dst", "DESTINATION", 11, grows=True, ends=True),
    GridColumn("qp", "QP", 8),
    GridColumn("state", "STATE", 9),
    GridColumn("transport", "TYPE", 4, priority=9),
    GridColumn("rate", "b/s", 7, True),
    GridColumn("packets", "PACKETS", 8, True, 5),
    GridColumn("bytes", "BYTES", 7, True, 7),
    GridColumn("paths", "PATHS", 5, True, 6),
    GridColumn("width", "WIDTH", 7, True),
    GridColumn("spray", "SPRAY (bar=path)", MAX_BARS, priority=2, grows=True),
    GridColumn("late", "LATE %", 6, True),
    GridColumn("extent", "EXT", 5, True, 4),
    *(GridColumn(fact.key, fact.short, fact.width, True, fact.priority) for fact in DECLARED),
    GridColumn("naks", "NAK", 4, True, 3),
    GridColumn("cnps", "CNP", 5, True, 4),
    GridColumn("ce", "CE %", 6, True, 8),
    GridColumn("activity", "BYTES OVER TIME", 16, priority=10, grows=True, most=LONG_LINE),
)

RANKS = GridColumn("ranks", "RANKS", 9)
"""After the queue pair, where a rank is known."""

MRC_COLUMNS = tuple(
    GridColumn(fact.key, fact.title, fact.width, True, fact.priority) for fact in MRC_FACTS
)
