"""CNPs compared with CE marks: their causes and their pacing scope.

A notification point sends at most one CNP per minimum interval and scope: the port, a pair of
addresses, the notified address, or a queue pair (DCQCN; Lumina, SIGCOMM 2023, measured that
adapters differ in the scope). Per scope this module counts the CNPs seen and the CNPs that the CE
marks should have caused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Int, Record, RecordArray, inlined, subkernel
from ...statistics.per_flow import roomier
from ...track.batch import MIRROR_DUPLICATE, TAP_COPY, Rows, TrackedBatch
from ...wire.bth import ACKNOWLEDGE, OPCODE_CLASS, SYNDROME_KIND_MASK, SYNDROME_NAK
from .rules import CNP_CAUSE, CNP_CLOSE, CNP_INTERVAL, CNP_UNCAUSED, NO_MARKS, UNSEEN
from .state import Book, SeenAt, breaks, keeps, leaves_open

_CE = 3
_CNP_OPCODE = 0x81
PORT, PAIR, DESTINATION, QUEUE_PAIR = range(4)
SCOPE_NAMES = ("port", "ip_pair", "destination", "queue_pair")
_OF_HOSTS = (PORT, PAIR, DESTINATION)
_NAK_SEQUENCE = 0

SCOPE = np.dtype(
    [
        ("marks", "i8"),
        ("expected", "i8"),
        ("due", "i8"),  # time of the latest CNP expected
        ("cnps", "i8"),
        ("last", "i8"),  # time of the latest CNP
        ("close", "i8"),  # CNPs earlier than the interval after the previous one
        ("least", "i8"),  # ns, shortest time between two CNPs, if there are two
    ],
    align=True,
)


@inlined
def _is_nak(rows: Rows, row: Int) -> bool:
    """Whether a row is a NAK for a lost packet."""
    syndrome = np.int64(rows.aeth[row]) >> 24
    return bool(
        OPCODE_CLASS[rows.opcode[row]] & ACKNOWLEDGE
        and syndrome & SYNDROME_KIND_MASK == SYNDROME_NAK
        and syndrome & 0x1F == _NAK_SEQUENCE
    )


@subkernel
def _cause(s: Record, time: Int, interval: Int) -> None:
    """A CE mark or NAK that requires a CNP, unless one was sent within the interval."""
    if s.expected == 0 or time - s.due >= interval:
        s.due = time
        s.expected += 1


@subkernel
def _notify(s: Record, time: Int, interval: Int) -> Int:
    """Time since the previous CNP, -1 for the first."""
    gap = np.int64(-1)
    if s.cnps:
        gap = np.int64(max(time - s.last, 0))
        s.least = gap if s.cnps == 1 else min(np.int64(s.least), gap)
        s.close += gap < interval
    s.cnps += 1
    s.last = time
    return gap


@subkernel
def pace(
    book: Book,
    scopes: tuple[RecordArray, ...],
    keys: NDArray[np.int32],
    interval: Int,
    for_nak: bool,
    rows: Rows,
) -> None:
    """Count the marks and CNPs of a batch.

    `scopes`: four SCOPE arrays. `keys`: int32[flows, 2, 3], the port, the pair and the
    destination scopes of a CE mark on the flow (0) or of a CNP that it carries (1). The scope of a
    queue pair is that of the flow with its CNPs. `for_nak`: a NAK is a cause like a CE mark.
    """
    for i in range(len(rows.flow)):
        f = np.int64(rows.flow[i])
        is_cnp = rows.opcode[i] == _CNP_OPCODE
        marked = rows.traffic_class[i] & 3 == _CE
        nak = for_nak and _is_nak(rows, i)
        if rows.verdict[i] == TAP_COPY or rows.verdict[i] == MIRROR_DUPLICATE:
            continue
        if not (is_cnp or marked or nak):
            continue
        time = rows.time_ns[i]
        other = np.int64(rows.peer[f])
        if nak:
            _cause(scopes[PORT][keys[f, 1, PORT]], time, interval)
            _cause(scopes[PAIR][keys[f, 1, PAIR]], time, interval)
            _cause(scopes[DESTINATION][keys[f, 1, DESTINATION]], time, interval)
            _cause(scopes[QUEUE_PAIR][f], time, interval)
        if marked and not is_cnp:
            scopes[PORT][keys[f, 0, PORT]].marks += 1
            scopes[PAIR][keys[f, 0, PAIR]].marks += 1
            _cause(scopes[PORT][keys[f, 0, PORT]], time, interval)
            _cause(scopes[PAIR][keys[f, 0, PAIR]], time, interval)
            _cause(scopes[DESTINATION][keys[f, 0, DESTINATION]], time, interval)
            if other >= 0:
                _cause(scopes[QUEUE_PAIR][other], time, interval)
        if not is_cnp:
            continue
        seen_at = SeenAt(np.int64(rows.tap[i]), time, rows.frame_number[i])
        if scopes[QUEUE_PAIR][f].expected:
            keeps(book, f, CNP_CAUSE)
        elif scopes[PAIR][keys[f, 1, PAIR]].expected == 0:
            leaves_open(book, f, CNP_CAUSE, NO_MARKS)
        elif other < 0:
            leaves_open(book, f, CNP_CAUSE, UNSEEN)
        else:
            breaks(book, f, CNP_UNCAUSED, seen_at, 0, 0, 0, 0)
        _notify(scopes[PORT][keys[f, 1, PORT]], time, interval)
        _notify(scopes[PAIR][keys[f, 1, PAIR]], time, interval)
        _notify(scopes[DESTINATION][keys[f, 1, DESTINATION]], time, interval)
        gap = _notify(scopes[QUEUE_PAIR][f], time, interval)
        if 0 <= gap < interval:  # hence also in the wider scopes
            breaks(book, f, CNP_CLOSE, seen_at, 0, 0, interval, gap)
        elif gap >= 0:
            keeps(book, f, CNP_INTERVAL)


class CnpPacing:
    """CE marks and CNPs of one tap in every scope."""

    def __init__(
        self,
        interval_ns: int,
        for_nak: bool = False,
        same_port: Sequence[Sequence[str]] = (),
        address_of: Callable[[int], str] = str,
    ) -> None:
        """`same_port`: groups of addresses; `address_of` gives the address of an endpoint."""
        self.interval_ns = interval_ns
        self._for_nak = for_nak
        self._group_of = {a: n for n, group in enumerate(same_port) for a in group}
        self._port_of_group: dict[int, int] = {}
        self._address_of = address_of
        self._destinations: dict[tuple[int, int], int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._ports: dict[int, int] = {}
        self._keys = np.zeros((0, 2, len(_OF_HOSTS)), np.int32)
        self._known = 0
        self.scopes = tuple(np.zeros(0, SCOPE) for _ in SCOPE_NAMES)

    def update(self, batch: TrackedBatch, flows: NDArray[np.void], book: Book) -> None:
        """Count a batch; `flows` are the FLOW records of its tracker."""
        self._grow(batch.n_flows, flows)
        pace(book, self.scopes, self._keys, self.interval_ns, self._for_nak, batch.rows)

    def _grow(self, n_flows: int, flows: NDArray[np.void]) -> None:
        self._keys = roomier(self._keys, n_flows)
        for f in range(self._known, n_flows):
            src, dst = int(flows[f]["src"]), int(flows[f]["dst"])
            for way, (sender, notifier) in enumerate(((src, dst), (dst, src))):
                port = self._port(notifier)
                pair = self._pairs.setdefault((sender, notifier), len(self._pairs))
                known = self._destinations
                destination = known.setdefault((sender, port), len(known))
                self._keys[f, way] = port, pair, destination
        self._known = n_flows
        needed = (len(self._ports), len(self._pairs), len(self._destinations), n_flows)
        self.scopes = tuple(
            scope if n <= len(scope) else np.concatenate([scope, np.zeros(n, SCOPE)])
            for scope, n in zip(self.scopes, needed, strict=True)
        )

    def _port(self, host: int) -> int:
        """The port of an endpoint: its own or that of its group."""
        if host not in self._ports:
            port = len(self._ports)
            group = self._group_of.get(self._address_of(host)) if self._group_of else None
            if group is not None:
                port = self._port_of_group.setdefault(group, port)
            self._ports[host] = port
        return self._ports[host]
