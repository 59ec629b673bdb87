"""The ranks of the job: what passes between each two, losses, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.errors import UsageError
from ...analyzer.results.analysis import CommunicatorTiming, RankPair, Ranks
from ...analyzer.words import printable
from ...report import human
from ...report.human import UNICODE
from ...report.terminal.ranks import Matrix, gone, overview, timing_table
from ..grid import Cell, Grid, GridColumn
from ..session import words
from ..session.snapshot import Snapshot
from .base import RoceScreen, own_bindings

COLUMNS = (
    GridColumn("from", "FROM", 6, True),
    GridColumn("to", "TO", 6, True),
    GridColumn("bytes", "BYTES", 8, True),
    GridColumn("retrans", "RETRANS", 8, True),
    GridColumn("lost", "LOST", 7, True),
    GridColumn("p50", "DONE p50", 9, True),
    GridColumn("max", "max", 9, True),
    GridColumn("messages", "MESSAGES", 9, True, 2),
    GridColumn("flows", "QPs", 5, True, 1),
    GridColumn("comm", "COMMUNICATOR", 12, priority=3, grows=True),
)
NOTHING = "No flow has two known ranks."
ASK = {
    "capture": """Logs of the job name them (NCCL, RCCL, UCX, perftest), see docs/ranks.md:

rocescope tui capture.pcap --nccl-log 'logs/*'""",
    "live": """Logs of the job name them (NCCL, RCCL, UCX, perftest), see docs/ranks.md:

rocescope live eth2 --nccl-log 'logs/*'""",
}
"""How to give logs, by the kind of the session."""
_TIMED = 4
"""Ranks of the arrival table."""
_AROUND, _ROWS_EACH = 9, 3
"""Lines around the rows of the matrix, and those of a rank in it."""
_TALL = 30
"""Lines from which list and matrix are shown together."""


class RanksScreen(RoceScreen):
    """Pairs of ranks, worst first, the matrix, and the arrival order."""

    name_ = "ranks"
    of_record = False
    BINDINGS = own_bindings("ranks")

    def __init__(self) -> None:
        super().__init__()
        self._pairs: Sequence[RankPair] = ()
        self._only_matrix = False

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="pairs")
        yield Static(id="about")
        yield Static(id="map")

    def draw(self, snapshot: Snapshot) -> str:
        judged = snapshot.judged
        ranks = judged.job_ranks
        self._pairs = () if ranks is None else ranks.pairs
        self.without_effect = frozenset() if self._pairs else frozenset({"deeper", "matrix"})
        grid = self.query_one("#pairs", Grid)
        logs = bool(self.view.session.options.job_logs)
        width = max(20, self.size.width - 6)
        notes = [fill(printable(note), width) for note in judged.job_notes]
        notes = notes if logs else [ASK[self.view.session.kind]]
        nothing = "\n\n".join([NOTHING, *notes])
        grid.empty = nothing if judged.diagnosis is not None else printable(judged.why)
        grid.show(len(self._pairs), lambda row: pair_cells(self._pairs[row]))
        about, drawn = self.query_one("#about", Static), self.query_one("#map", Static)
        timing = None if ranks is None else next((top for top in ranks.timing if top.ranks), None)
        if timing is not None:
            about.update(arrivals(timing))
        matrix = None if ranks is None else Matrix.of(ranks, self.size.width - 2, self._room())
        grid.display = not (self._only_matrix and matrix is not None)
        about.display = grid.display and timing is not None
        drawn.display = matrix is not None and (self.size.height > _TALL or not grid.display)
        if matrix is not None:
            drawn.update(drawn_matrix(matrix))
        if why := words.nothing(snapshot):
            return why
        return sentence(ranks, logs)

    def _room(self) -> int:
        """Ranks whose three rows fit below the sentence, and below the list on tall screens."""
        share = 2 if self.size.height > _TALL and not self._only_matrix else 1
        return (self.size.height // share - _AROUND) // _ROWS_EACH

    def action_matrix(self) -> None:
        """The matrix in place of the list, or the list again."""
        self._only_matrix = not self._only_matrix
        self.redraw()

    def action_deeper(self) -> None:
        """Show the flows of the pair under the cursor."""
        row = self.query_one("#pairs", Grid).cursor
        if row >= len(self._pairs):
            return
        pair = self._pairs[row]
        text = f"src_rank == {pair.sender} and dst_rank == {pair.receiver}"
        try:
            self.view.session.set_filter(f'{text} and comm == "{pair.comm}"')
        except UsageError as error:  # a communicator that is no word
            self.notify(printable(str(error)))
            return
        self.host.go("qps")


def sentence(ranks: Ranks | None, logs: bool) -> str:
    """The first line. logs: whether logs of the job were given."""
    if ranks is not None:
        return overview(ranks)
    if logs:
        return "The logs of the job name no two ranks of a flow here."
    return "No logs of the job were given: --nccl-log names ranks."


def pair_cells(pair: RankPair) -> Sequence[Cell]:
    """One row, in the order of COLUMNS."""
    lost = gone(pair)
    return (
        str(pair.sender),
        str(pair.receiver),
        human.size(pair.wire_bytes),
        human.count(pair.retransmitted_packets),
        (f"{UNICODE.bad} {human.count(lost)}", "bad") if lost else human.count(lost),
        human.duration(pair.completion_p50_ns),
        human.duration(pair.completion_max_ns),
        human.count(pair.messages),
        human.count(pair.flows),
        printable(pair.comm),
    )


def arrivals(timing: CommunicatorTiming) -> RenderableType:
    """The ranks that others wait for longest."""
    table = _table()
    timing_table(table, timing, _TIMED)
    table.columns = [c for c in table.columns if any(cell != "-" for cell in c.cells)]
    left = len(timing.ranks) - _TIMED
    if left <= 0:
        return table
    return Group(table, Text(f"{human.counted(left, 'rank')} not shown: JSON has all", "dim"))


def drawn_matrix(matrix: Matrix) -> RenderableType:
    """The matrix with what it leaves out."""
    table = _table()
    matrix.fill(table, UNICODE)
    return Group(table, Text(printable(matrix.words), "dim"))


def _table() -> Table:
    return Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
