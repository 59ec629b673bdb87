"""The streaming tracker: packet tables in, flows and verdicts out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from ...kernels.kernel import Bools, Int, Int32s, Ints, Records
from ..statistics.density import Densities
from ..statistics.histogram import HistogramPool
from ..statistics.keeping import Kept, longer, rows_of
from ..wire.packets import PacketTable
from . import state as st
from .assign import assign, known_rows, rebuild_slots
from .batch import TrackedBatch
from .walk import RECENTS_AHEAD, SLOTS_AHEAD, walk

PARTIAL_VIEW_SHARE = 0.2
"""Above this share of unseen PSNs, the tap is assumed to see only some of the paths."""
_FEW_KEYS = 32
_FEW_OPCODES = 8
_NOTHING: Final[Mapping[tuple[int, int, int], int]] = {}


class FlowTracker:
    """State of all flows, updated batch by batch.

    Batches must be in time order, taps merged. Batch boundaries have one effect: the PSNs that the
    first READs of a host pair reserve are certain only if a packet of the same or an earlier batch
    shows the path MTU.
    """

    def __init__(self, taps: int = 1) -> None:
        self.histograms = HistogramPool(st.HISTOGRAM_KINDS)
        self.densities = Densities()
        used = np.zeros(st.USED_KINDS, np.int64)
        used[st.TAPS] = taps
        used[st.FIRST_WINDOW] = (
            st.FIRST_WINDOW_BITS if taps == 1 else st.FIRST_WINDOW_BITS_OF_MANY_TAPS
        )
        self.state = st.State(
            flows=np.zeros(0, st.FLOW),
            pairs=np.zeros(0, st.PAIR),
            streams=np.zeros(0, st.STREAM),
            lates=np.zeros(16, st.LATE),
            slots=np.zeros(SLOTS_AHEAD + st.MAX_WINDOW, st.SLOT),
            recents=np.zeros(64 * st.RECENT_ENTRIES + RECENTS_AHEAD, st.RECENT),
            events=np.zeros(st.MAX_EVENTS, st.EVENT),
            copies=np.zeros((taps, taps), np.int64),
            began=np.full(taps, st.NOT_BEGUN, np.int64),
            used=used,
        )
        self._counts: Ints = np.zeros((0, _FEW_OPCODES), np.int64)
        """int64[flows, columns]: packets per opcode, in the order in which opcodes appeared."""
        self._column: Int32s = np.full(256, -1, np.int32)
        """The column of each opcode, -1 while it is unseen."""
        self._grow_flows(64)

    def __len__(self) -> int:
        return int(self.state.used[st.USED_FLOWS])

    @property
    def flows(self) -> Records:
        """FLOW records of the known flows, a view."""
        flows: Records = self.state.flows[: len(self)]
        return flows

    def opcodes(self, flows: Ints) -> Ints:
        """int64[flows, 256]: packets per opcode of these flows."""
        counts = np.zeros((len(flows), 256), np.int64)
        seen = np.flatnonzero(self._column >= 0)
        counts[:, seen] = self._counts[flows][:, self._column[seen]]
        return counts

    @property
    def copies(self) -> Ints:
        """int64[taps, taps]: packets first seen at one tap, then at another; a view."""
        taps = int(self.state.used[st.TAPS])
        copies: Ints = self.state.copies[:taps, :taps]
        return copies

    def stream(self, flow: int, which: int) -> Any:
        """The STREAM record of a flow's REQUESTS or RESPONSES."""
        return self.state.streams[2 * flow + which]

    def update(
        self, table: PacketTable, agreed: Mapping[tuple[int, int, int], int] = _NOTHING
    ) -> TrackedBatch:
        """Track the packets of one batch.

        agreed: the first PSN of flows by (source, destination, destination QPN), from CM messages.
        """
        known = len(self)
        verdict = np.empty(len(table), np.uint8)
        if len(table):
            self.see_taps(int(table.tap.max()) + 1)
        flow = self.index_flows(table)
        if agreed:
            for new in self.flows[known:]:
                psn = agreed.get((int(new["src"]), int(new["dst"]), int(new["dest_qp"])))
                if psn is not None:
                    new["agreed"], new["agreed_psn"] = 1, psn
        columns = table.arrays
        row: Int = 0
        while row < len(table):
            row = walk(
                self.state,
                self.histograms.arrays,
                self.densities.arrays,
                columns,
                self._counts,
                self._column,
                row,
                flow,
                verdict,
            )
            if row < len(table):
                opcode = int(table.opcode[row])
                if self._column[opcode] < 0:
                    self.see_opcodes(np.array([opcode]))
                else:
                    self._grow_pools()
        peer = self.flows["peer"].copy()
        return TrackedBatch(table, flow, verdict, peer, len(self))

    def pair(self, flow: int, peer: int, evidence: int) -> None:
        """Make two flows one connection on exact evidence (CM, host probe).

        Their inferred peers are released.
        """
        flows = self.state.flows
        for one, other in ((flow, peer), (peer, flow)):
            before = int(flows[one]["peer"])
            if before >= 0 and before != other:
                flows[before]["peer"] = -1
                flows[before]["evidence"] = 0
                flows[one]["evidence"] = 0
            flows[one]["peer"] = other
            flows[one]["evidence"] |= evidence

    def index_flows(self, table: PacketTable) -> Int32s:
        """The flow of each row, created when new."""
        columns, flow = table.arrays, np.empty(len(table), np.int32)
        row: Int = 0
        while row < len(table):
            row = assign(self.state, self._flow_slots, self._pair_slots, columns, row, flow)
            if row < len(table):
                self._grow_flows(2 * len(self.state.flows))
        self.histograms.grow(len(self))
        self.densities.grow(len(self))
        return flow

    def find(self, keys: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
        """Indices of the flows with these (source, destination, destination QPN), if known."""
        wanted = set(keys)
        flows = self.flows
        if len(wanted) > _FEW_KEYS:
            columns = (flows[name].tolist() for name in ("src", "dst", "dest_qp"))
            numbers = {key: flow for flow, key in enumerate(zip(*columns, strict=True))}
            return {key: numbers[key] for key in wanted & numbers.keys()}
        found = {}
        for src, dst, qp in wanted:
            hit = np.flatnonzero(
                (flows["dest_qp"] == qp) & (flows["src"] == src) & (flows["dst"] == dst)
            )
            if len(hit):
                found[src, dst, qp] = int(hit[0])
        return found

    def knows(self, table: PacketTable) -> Bools:
        """Which rows belong to known flows."""
        known = np.zeros(len(table), np.bool_)
        known_rows(self.state, self._flow_slots, table.arrays, known)
        return known

    def missing(self, flow: int, which: int) -> tuple[int, int]:
        """PSNs never seen so far, and how many of them the peer acknowledged."""
        s, f = self.stream(flow, which), self.state.flows[flow]
        missing = int(s["missing"] + s["missing_evicted"])
        if which == st.RESPONSES:
            return missing, 0  # ACKs name requests
        acknowledged = int(s["missing_evicted_acked"])
        if s["missing"] and f["acked"]:
            window = self.state.slots[s["window"] : s["window"] + (1 << int(s["window_bits"]))]
            psns = window["psn"][window["state"] == st.MISSING].astype(np.int64)
            distance = ((int(f["ack_psn"]) - psns + (1 << 23)) & 0xFFFFFF) - (1 << 23)
            acknowledged += int(np.count_nonzero(distance >= 0))
        return missing, acknowledged

    def in_part(self, flow: int) -> bool:
        """Whether the share of unseen PSNs shows that the taps see only some paths of the flow."""
        both = self.stream(flow, st.REQUESTS), self.stream(flow, st.RESPONSES)
        missing, seen = (
            sum(int(stream[name]) for stream in both for name in names)
            for names in (("missing", "missing_evicted"), ("new_packets", "reordered", "recovered"))
        )
        return missing > PARTIAL_VIEW_SHARE * (missing + seen)

    def see_taps(self, taps: int) -> None:
        """Grow the copy counts for taps that appear while reading."""
        used, known = self.state.used, len(self.state.began)
        if taps > used[st.TAPS]:
            used[st.TAPS] = taps
            used[st.FIRST_WINDOW] = st.FIRST_WINDOW_BITS_OF_MANY_TAPS
        if taps > known:
            room = max(taps, 2 * known)  # taps may appear one by one
            copies = np.zeros((room, room), np.int64)
            copies[:known, :known] = self.state.copies
            began = np.full(room, st.NOT_BEGUN, np.int64)
            began[:known] = self.state.began
            self.state = self.state._replace(copies=copies, began=began)

    def see_opcodes(self, opcodes: Ints) -> None:
        """Add a column for each of these opcodes: most captures use few of the 256."""
        new = opcodes[self._column[opcodes] < 0]
        if not len(new):
            return
        used = int(self._column.max()) + 1
        self._column[new] = np.arange(used, used + len(new))
        columns = self._counts.shape[1]
        if used + len(new) > columns:
            self._resize_counts(len(self._counts), max(2 * columns, used + len(new)))

    def add_opcodes(self, other: FlowTracker, flow_map: Int32s) -> None:
        """Add the counts of another tracker, whose flow i is our flow `flow_map[i]`."""
        opcodes = np.flatnonzero(other._column >= 0)
        self.see_opcodes(opcodes)
        mine, theirs = self._column[opcodes], other._column[opcodes]
        self._counts[flow_map[:, None], mine] += other._counts[: len(flow_map)][:, theirs]

    def keep_opcodes(self, kept: Kept) -> None:
        """Keep only these flows."""
        self._counts = rows_of(self._counts, kept)

    def ran(self, tap: int, time_ns: int) -> None:
        """Note that the capture of a known tap ran at this time."""
        self.state.began[tap] = min(int(self.state.began[tap]), time_ns)

    def expect(self, flows: int) -> None:
        """Grow to this many flows and their initial windows.

        Growing copies the used part; untouched memory costs nothing.
        """
        if flows > len(self.state.flows):
            self._grow_flows(flows)
        used = self.state.used
        slots = flows << st.LEAST_WINDOW_BITS
        recents = flows << st.FIRST_RECENT_BITS
        self.state = self.state._replace(
            slots=longer(self.state.slots, slots + SLOTS_AHEAD, int(used[st.USED_SLOTS])),
            recents=longer(self.state.recents, recents + RECENTS_AHEAD, int(used[st.USED_RECENTS])),
        )

    def n_counts(self, flow: int, which: int) -> Ints:
        """int64[STACK]: packets of a stream by their degree of n-reordering, see `state.LATE`."""
        late = int(self.stream(flow, which)["late"])
        counts: Ints = self.state.lates["n_counts"][late - 1] if late else np.zeros(st.STACK, int)
        return counts

    def late_of(self, flow: int, which: int) -> Any:
        """The LATE record of a stream, created if missing."""
        stream = self.stream(flow, which)
        if not stream["late"]:
            if self.state.used[st.USED_LATES] == len(self.state.lates):
                self._grow_pools()
            self.state.used[st.USED_LATES] += 1
            stream["late"] = self.state.used[st.USED_LATES]
        return self.state.lates[stream["late"] - 1]

    def reserve_slots(self, count: int) -> int:
        """Reserve a window of `count` slots; returns the first."""
        return self._reserve(st.USED_SLOTS, len(self.state.slots), count)

    def reserve_recents(self, count: int) -> int:
        """Reserve `count` unused recent packets of a flow; returns the first."""
        return self._reserve(st.USED_RECENTS, len(self.state.recents), count)

    def _reserve(self, used: int, room: int, count: int) -> int:
        start = int(self.state.used[used])
        self.state.used[used] += count
        if start + count > room:
            self._grow_pools()
        return start

    def _grow_flows(self, flows: int) -> None:
        self.state = self.state._replace(
            flows=longer(self.state.flows, flows, len(self)),
            pairs=longer(self.state.pairs, flows, int(self.state.used[st.USED_PAIRS])),
            streams=longer(self.state.streams, 2 * flows, 2 * len(self)),
        )
        self._resize_counts(flows, self._counts.shape[1])
        self.rebuild()

    def _resize_counts(self, flows: int, columns: int) -> None:
        counts = np.zeros((flows, columns), np.int64)
        known = len(self) if len(self._counts) else 0
        counts[:known, : self._counts.shape[1]] = self._counts[:known]
        self._counts = counts

    def rebuild(self) -> None:
        """Rebuild the hash tables of flows and host pairs from `state`."""
        flows = len(self.state.flows)
        self._flow_slots = np.full(2 * flows, -1, np.int32)
        self._pair_slots = np.full(2 * flows, -1, np.int32)
        rebuild_slots(self.state, self._flow_slots, self._pair_slots)

    def _grow_pools(self) -> None:
        used = self.state.used
        slots = int(used[st.USED_SLOTS]) + 2 * SLOTS_AHEAD
        recents = int(used[st.USED_RECENTS]) + 64 * st.RECENT_ENTRIES + RECENTS_AHEAD
        lates = int(used[st.USED_LATES])
        self.state = self.state._replace(
            lates=longer(self.state.lates, 2 * lates + 1, lates),
            slots=longer(
                self.state.slots,
                max(slots, 3 * int(used[st.USED_SLOTS]) // 2),
                int(used[st.USED_SLOTS]),
            ),
            recents=longer(
                self.state.recents,
                max(recents, 2 * int(used[st.USED_RECENTS])),
                int(used[st.USED_RECENTS]),
            ),
        )
