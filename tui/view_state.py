"""The state of the view: source, snapshot, selected flow, path key, filter and strategy.

Screens read it; keys change it by its methods. It does not use Textual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..analyzer.results.diagnosis import Finding
from ..analyzer.results.flow import Flow
from ..kernels.kernel import Ints
from ..report import human
from .clock import Clock
from .session.diagnosing import Span
from .session.matrix import at_one_place, known_sets
from .session.session import Session
from .session.snapshot import FlowKey, PathColumns, Snapshot, SourceState

if TYPE_CHECKING:
    from .session.packets import Late, Point
    from .session.placed import Placed, TracedOn
    from .session.replays import Aggregations, Replays


@dataclass(eq=False)
class ViewState:
    """The view of the terminal UI on one session."""

    session: Session
    columns: Sequence[str] = ()
    """Columns of the table of flows from the settings; empty: all."""
    snapshot: Snapshot = field(init=False)
    time_mode: str = "start"
    """One of `clock.MODES`."""
    frozen: bool = False
    chosen: bool = False
    """Whether the user has moved the cursor to a flow."""
    path_key: str = ""
    """The path key that the user chose; empty: taps where some are parallel, else source ports."""
    everything: bool = False
    """Whether flows without data are shown too."""
    strategy: str | None = None
    """The replayed strategy whose links are shown."""
    picked: set[str] = field(default_factory=set)
    """Strategies to compare with."""
    wanted_packet: Point | None = None
    """The packet for the cursor of the packets screen."""
    wanted_late: tuple[Late, str] | None = None
    """Late packets for the packets screen, and their name."""
    wanted_span: tuple[Span, str] | None = None
    """A time for the packets screen, and its name."""
    finding: Finding | None = None
    """The finding under the cursor of the diagnosis screen."""
    wanted_taps: tuple[str, ...] = ()
    """The taps of the link for the cursor of the hops screen."""
    fabric_measure: int = 0
    """What the cells of the observed fabric show: a place in `MEASURES`."""
    traced_on: TracedOn | None = None
    """The fabric on which flows are traced."""
    _record: Flow | None = None
    _tap_columns: tuple[Snapshot | None, PathColumns] = field(
        default_factory=lambda: (None, PathColumns.none())
    )
    _replays: Replays | None = None
    _aggregations: Aggregations | None = None

    def __post_init__(self) -> None:
        self.snapshot = Snapshot(SourceState(self.session.name, self.session.kind))

    def begin(self, session: Session) -> None:
        """Open another session."""
        self.end()
        self.session, self._record = session, None
        self._replays, self.strategy, self.picked = None, None, set()
        self._aggregations = None
        self.frozen = self.chosen = False
        self.finding = None
        self.snapshot = Snapshot(SourceState(session.name, session.kind))

    def end(self) -> None:
        """Close the session and stop its replays."""
        self.session.close()
        if self._replays is not None:
            self._replays.end()
        if self._aggregations is not None:
            self._aggregations.stop()

    @property
    def record(self) -> Flow | None:
        """The record of the selected flow; None while it is read."""
        record, key = self._record, self.session.selected
        if record is None or key is None:
            return None
        selected = (record.src, record.dst, record.dest_qp) == (key.src, key.dst, key.qp)
        return record if selected else None

    def put_record(self, record: Flow | None) -> bool:
        """Store the record of a flow; returns whether it differs from the previous one."""
        changed, self._record = record != self._record, record
        return changed

    def select(self, key: FlowKey, by_user: bool = False) -> bool:
        """Move the cursor to a flow; returns whether it was on another one."""
        changed = self.session.selected != key
        self.session.selected = key
        self.chosen = self.chosen or by_user
        return changed

    def select_first(self) -> None:
        """Select the flow with the most trouble unless a flow is selected."""
        shown = self.shown_flows()
        if self.session.selected is None and len(shown):
            self.select(self.snapshot.key(int(shown[np.argmax(self.snapshot.trouble()[shown])])))

    def select_passing(self) -> bool:
        """Move the cursor to the busiest flow that passes if the selected one does not."""
        shown = self.shown_flows()
        if not len(shown) or self.snapshot.find(self.session.selected) in shown:
            return False
        busiest = shown[np.argmax(self.snapshot.flows.wire_bytes[shown])]
        return self.select(self.snapshot.key(int(busiest)))

    def shown_flows(self) -> Ints:
        """Flows that pass the filter; flows without data only if `everything` is set."""
        mask = self.session.passing(self.snapshot)
        if not self.everything:
            data = self.snapshot.carries_data()
            if data.any():
                mask = mask & data
        return np.flatnonzero(mask)

    @property
    def visible_count(self) -> int:
        """How many flows are shown."""
        return len(self.shown_flows())

    def paths(self) -> PathColumns:
        """The paths by the selected key."""
        if self.path_key == "fabric" and (placed := self.placed()) is not None:
            return placed.path_columns(self.snapshot)
        key = self._key_of(self.snapshot)
        if key == "tap" and "tap" in self.snapshot.paths:
            return self._by_tap(self.snapshot)
        return self.snapshot.paths.get(key) or self.snapshot.paths["entropy"]

    def prepare(self, snapshot: Snapshot) -> None:
        """Compute derived data of a snapshot in the thread that made it, before it is drawn."""
        if self.path_key == "fabric" and not self.frozen and (placed := self.placed()) is not None:
            placed.path_columns(snapshot)
        if self._key_of(snapshot) == "tap" and not self.frozen and "tap" in snapshot.paths:
            self._by_tap(snapshot)

    def _key_of(self, snapshot: Snapshot) -> str:
        if self.path_key:
            return self.path_key
        only_ports = snapshot.paths.keys() == {"entropy", "tap"}
        return "tap" if only_ports and snapshot.judged.parallel_taps else "entropy"

    def _by_tap(self, snapshot: Snapshot) -> PathColumns:
        known, columns = self._tap_columns
        if known is not snapshot:
            sets = snapshot.judged.parallel_taps
            members = None if sets is None else known_sets(snapshot.source.tap_names, sets)
            columns = at_one_place(snapshot.paths["tap"], members)
            self._tap_columns = snapshot, columns
        return columns

    def next_path_key(self) -> bool:
        """Switch to the next path key; False if there is only one."""
        keys = list(self.snapshot.paths) + (["fabric"] if self.placed() is not None else [])
        key = self._key_of(self.snapshot)
        now = keys.index(key) if key in keys else 0
        self.path_key = keys[(now + 1) % len(keys)]
        return len(keys) > 1

    def trace_on(self, fabric: TracedOn | None) -> None:
        """Trace flows on a fabric; Paths then begins with the traced links."""
        self.traced_on = fabric
        if fabric is not None:
            self.path_key = "fabric"

    @property
    def replays(self) -> Replays:
        """The replays of the session's captures; created on first use."""
        if self._replays is None:
            from .session.replays import Replays  # loads the replay engine

            self._replays = Replays(self.session.paths, self.session.options)
            if self.session.paths and self.traced_on is not None:
                self._replays.set_fabric(self.traced_on.spec, "exact")
                self._replays.trace(self.traced_on.line, self.traced_on.dialects)
            elif self.session.paths and self.session.options.fabric is not None:
                self._replays.set_fabric(self.session.options.fabric.spec, "exact")
        return self._replays

    @property
    def aggregations(self) -> Aggregations:
        """In-network aggregation of the session's captures; created on first use."""
        if self._aggregations is None:
            from .session.replays import Aggregations  # loads the replay engine

            self._aggregations = Aggregations(self.session.paths, self.session.options)
        return self._aggregations

    def placed(self) -> Placed | None:
        """Placement by the strategy under the cursor of the replay screen."""
        if self._replays is None:
            return None
        by_strategy = self._replays.placed
        return by_strategy.get(self.strategy or "") or next(iter(by_strategy.values()), None)

    def take_packet(self) -> Point | None:
        """The packet for the cursor; cleared by this call."""
        packet, self.wanted_packet = self.wanted_packet, None
        return packet

    def take_late(self) -> tuple[Late, str] | None:
        """The late packets to show; cleared by this call."""
        late, self.wanted_late = self.wanted_late, None
        return late

    def take_span(self) -> tuple[Span, str] | None:
        """The time whose packets to show; cleared by this call."""
        span, self.wanted_span = self.wanted_span, None
        return span

    def window_text(self) -> str:
        """The time window from the start of the capture; in a live session its length."""
        session = self.session
        if session.kind == "live":
            length = session.length_ns
            return "" if length is None else f"last {human.duration(length)}"
        window, full = session.window, session.whole()
        if window is None or full is None:
            return ""
        if self.time_mode != "start":
            clock = Clock(full[0], self.time_mode)
            return " to ".join(map(clock.text, window))
        low, high = (human.duration(max(0, t - full[0])) for t in window)
        return f"{low} to {high}"

    def packet_window(self) -> Span | None:
        """The time span of the packets shown."""
        session, snapshot = self.session, self.snapshot
        if session.kind != "live":
            return session.window
        if session.looking_at is None:  # otherwise it would move while the user reads it
            return None
        start = snapshot.start_ns if session.length_ns is not None else 0
        return (start, snapshot.end_ns)
