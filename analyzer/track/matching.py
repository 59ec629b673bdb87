"""Which queue pairs of two hosts belong together, where neither ports nor first PSNs tell.

NVSHMEM and UCX open many queue pairs between two hosts with one UDP source port and one first PSN:
a single ACK then fits several of them. Here all answers of a batch are compared with the requests
of all queue pairs of the other host, before the tracker judges the batch.

What contradicts a pair: an answer to a PSN that is not sent yet; an MSN that does not grow by the
messages sent; a READ response without its READ, an ACK for a READ (InfiniBand specification 9.7);
a NAK that another queue pair retransmits for. Contradicted pairs are dropped, and what remains is
paired where it is the only way; else two queue pairs belong together if the delay of the answers is
far steadier than with any other. Queue pairs in lock-step stay without a peer.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import (
    Array,
    Bools,
    Int,
    Int32s,
    Ints,
    Record,
    RecordArray,
    inlined,
    kernel,
    subkernel,
)
from ..statistics.per_flow import Kept, longer
from ..wire.bth import (
    ACKNOWLEDGE,
    ATOMIC,
    BEGINS,
    ENDS,
    OPCODE_CLASS,
    PSN_MASK,
    RC,
    READ_REQUEST,
    REQUEST,
    RESPONSE_DATA,
    SYNDROME_ACK,
    SYNDROME_KIND_MASK,
    SYNDROME_NAK,
    TRANSPORT_OF,
    XRC,
    psn_add,
    psn_distance,
)
from ..wire.packets import ACK_REQUEST, HAS_AETH, PacketTable, TableArrays
from .sequence import TWIN_WITHIN_NS
from .state import RESTART_DISTANCE, TAPS, USED_FLOWS, State
from .window import reserved_psns

ENDS_KEPT = 256
"""Latest ends of messages that are kept per queue pair: more than a sender has unacknowledged."""
OUTSTANDING = 1 << 16
"""Approximate limit of PSNs in flight: responses to older PSNs are ignored."""
RESEND_WITHIN_NS = 100_000_000
"""A rewind to the PSN of a NAK this soon reacts to it."""
PROOF = 3
"""Contradictions more than of the best partner that exclude a pair: a capture may miss requests."""
DOUBT = 4
"""A pair is no candidate if more than one answer in N contradicts it."""
LEAST_ANSWERS = 3
LEAST_DELAYS = 8
STEADIER = (4, 100, 1000)
"""The variance of the delays of a pair must be this many times below that of any other pair of both
queue pairs: at least the first number, and one plus the others by the number of delays and by its
square. By chance this happens in about one of 10,000 comparisons."""
CLOCK_NS = 20
"""Delays are not compared more finely, nor than times of the capture are given."""
_MORE = 1.2
MOST_COMPARED = 1 << 16
"""Possible pairs of two hosts; with more queue pairs only single answers are compared."""
MOST_WORK = 1 << 27
"""Comparisons for two hosts (a second); queue pairs that are open then are not compared again."""

SIDE = np.dtype(
    [
        ("flow", "i4"),
        ("paired", "u1"),
        # its requests
        ("started", "u1"),
        ("first", "u4"),  # PSN of the first one seen
        ("next", "u4"),  # PSN after the highest one
        ("last", "u4"),  # PSN of the latest one
        ("last_time", "i8"),
        ("messages", "i8"),  # ended so far
        ("ends", "i8"),  # entries written to its ring
        ("gaps", "i8"),  # before a request: lost, or missed by the capture
        # its answers
        ("answers", "i8"),
        ("psn", "u4"),  # of the latest one
        ("msn", "u4"),
        ("syndrome", "u1"),
        ("time", "i8"),
        ("nak_open", "u1"),  # 1: a NAK is not reacted to; 2: some flow began again at its PSN
        ("nak_psn", "u4"),
        ("nak_time", "i8"),
    ],
    align=True,
)
END = np.dtype(
    [
        ("psn", "u4"),
        ("is_read", "u1"),  # READ or atomic request
        ("resent", "u1"),
        ("messages", "i8"),  # ended up to this PSN
        ("time", "i8"),  # of its latest transmission
    ],
    align=True,
)
"""A request that ends a message or asks for an ACK."""
FIT = np.dtype(
    [
        ("compared", "i8"),  # answers
        ("against", "i8"),  # contradictions
        ("msn_known", "u1"),
        ("ahead", "u4"),  # MSN minus messages seen
        ("rewound", "u1"),  # began again at the PSN of the open NAK
        ("delays", "i8"),
        ("mean_delay", "f8"),  # ns; a field named "mean" would be hidden by the method of arrays
        ("squares", "f8"),  # ns^2, sum of squared deviations
    ],
    align=True,
)
"""How the answers of one queue pair fit the requests of another."""


class SideRecord(Record):
    """An element of SIDE."""


class FitRecord(Record):
    """An element of FIT."""


@inlined
def _find_end(ends: RecordArray, side: SideRecord, psn: Int) -> Int:
    """Position of the latest end with a PSN up to `psn`, -1 if none is kept."""
    above = np.int64(side.ends)
    before_all = above - min(above, np.int64(ENDS_KEPT)) - 1
    at, step = above - 1, np.int64(1)
    # In ever longer steps, then by halves: most answers name a recent end, hostile ones the oldest.
    while at > before_all and psn_distance(np.int64(ends[at % ENDS_KEPT].psn), psn) > 0:
        above = at
        at -= step
        step *= 2
    at = max(at, before_all)
    while above - at > 1:
        middle = (above + at) // 2
        if psn_distance(np.int64(ends[middle % ENDS_KEPT].psn), psn) > 0:
            above = middle
        else:
            at = middle
    return at if at > before_all else np.int64(-1)


@inlined
def _add_end(ends: RecordArray, side: SideRecord, psn: Int, bits: Int, time: Int) -> None:
    """Keep an end in the order of PSNs; a late one moves later ones."""
    at = np.int64(side.ends)
    oldest = at - min(at, np.int64(ENDS_KEPT - 1))
    counts = 1 if bits & ENDS else 0
    while at > oldest:
        before = ends[(at - 1) % ENDS_KEPT]
        if psn_distance(np.int64(before.psn), psn) < 0:
            break
        ends[at % ENDS_KEPT] = before
        ends[at % ENDS_KEPT].messages += counts
        at -= 1
    side.ends += 1
    side.messages += counts
    end = ends[at % ENDS_KEPT]
    end.psn = psn
    end.is_read = bits & (READ_REQUEST | ATOMIC) != 0
    end.resent = 0
    end.time = time
    end.messages = counts
    if at > oldest:
        end.messages += ends[(at - 1) % ENDS_KEPT].messages
    elif at == np.int64(side.ends) - 1:
        end.messages = side.messages


@subkernel
def _send(
    sides: RecordArray, ends: RecordArray, fits: RecordArray, low: Int, s: Int, psn: Int, bits: Int,
    wants_ack: bool, span: Int, time: Int,
) -> None:  # fmt: skip
    """Take in a request of side `s` that reserves `span` PSNs."""
    side = sides[s]
    if not -RESTART_DISTANCE <= psn_distance(psn, np.int64(side.next)) <= RESTART_DISTANCE:
        side.started = 0
    if not side.started:
        side.started = 1
        side.first = psn
        side.next = psn
        side.last = psn_add(psn, -1)
        side.messages = 0
        side.ends = 0
    again = psn_distance(psn, np.int64(side.next)) < 0
    twin = psn == side.last and time - side.last_time < TWIN_WITHIN_NS
    continues = psn == psn_add(np.int64(side.last), 1)
    side.last = psn
    side.last_time = time
    if twin:
        return
    if not again:
        side.gaps += psn != side.next
        side.next = psn_add(psn, span)
        if bits & ENDS or wants_ack:
            _add_end(ends[s], side, psn, bits, time)
        return
    at = _find_end(ends[s], side, psn)
    if at >= 0 and ends[s, at % ENDS_KEPT].psn == psn:
        ends[s, at % ENDS_KEPT].resent = 1
        ends[s, at % ENDS_KEPT].time = time
    elif bits & ENDS or wants_ack:
        _add_end(ends[s], side, psn, bits, time)  # its first transmission was not seen
        ends[s, _find_end(ends[s], side, psn) % ENDS_KEPT].resent = 1
    if continues:
        return
    first, stop = (low, len(sides)) if s < low else (np.int64(0), low)
    for a in range(first, stop):
        answering = sides[a]
        if answering.paired or not answering.nak_open or answering.nak_psn != psn:
            continue
        if time - answering.nak_time < RESEND_WITHIN_NS:
            answering.nak_open = 2
            _fit(fits, low, a, s).rewound = 1


@inlined
def _fit(fits: RecordArray, low: Int, answering: Int, asking: Int) -> FitRecord:
    """How answers of one side fit the requests of another: fits is FIT[2, low, high]."""
    if answering < low:
        return fits[0, answering, asking - low]
    return fits[1, asking, answering - low]


@subkernel
def _hear(
    sides: RecordArray, ends: RecordArray, fits: RecordArray, low: Int, s: Int, psn: Int, bits: Int,
    aeth: Int, time: Int,
) -> Int:  # fmt: skip
    """Compare an answer of side `s` with the requests of the other side; how many it is compared
    with. aeth: -1 where the capture does not hold it."""
    side = sides[s]
    response = bits & ACKNOWLEDGE == 0
    syndrome = np.int64(0) if aeth < 0 else aeth >> 24
    kind, msn = syndrome & SYNDROME_KIND_MASK, aeth & PSN_MASK
    ack = not response and aeth >= 0 and kind == SYNDROME_ACK
    nak = not response and syndrome & 0x7F == SYNDROME_NAK
    counts = not response and aeth >= 0 and (ack or nak)
    same = psn == side.psn and msn == side.msn and syndrome == side.syndrome
    if side.answers and same and time - side.time < TWIN_WITHIN_NS:
        return np.int64(0)
    counts = counts and (side.answers == 0 or msn != side.msn)
    settles = side.nak_open == 2 and not nak and psn_distance(psn, np.int64(side.nak_psn)) >= 0
    covered = psn if ack or response else psn_add(psn, -1)
    first, stop = (low, len(sides)) if s < low else (np.int64(0), low)
    for a in range(first, stop):
        asking = sides[a]
        fit = _fit(fits, low, s, a)
        if settles and not asking.paired and asking.started and not fit.rewound:
            fit.against += PROOF
        if settles or nak:
            fit.rewound = 0
        if asking.paired or not asking.started or psn_distance(psn, np.int64(asking.first)) < 0:
            continue
        at = _find_end(ends[a], asking, covered)
        behind = psn_distance(psn_add(psn, 1 if nak else 0), np.int64(asking.next))
        if at < 0 and asking.ends > ENDS_KEPT and behind >= -OUTSTANDING:
            continue  # what was sent then is not kept
        fit.compared += 1
        if behind >= 0 or behind < -OUTSTANDING:
            fit.against += 1
            continue
        end = ends[a, max(at, 0) % ENDS_KEPT]
        exact = at >= 0 and end.psn == psn and (ack or response)
        if (response and not (exact and end.is_read)) or (ack and exact and end.is_read):
            fit.against += 1
            continue
        if counts:
            ahead = (msn - (end.messages if at >= 0 else 0)) & PSN_MASK
            if fit.msn_known and ahead != fit.ahead:
                fit.against += 1
            fit.msn_known = 1
            fit.ahead = ahead
        if exact and not end.resent:
            fit.delays += 1
            off = (time - end.time) - fit.mean_delay
            fit.mean_delay += off / fit.delays
            fit.squares += off * ((time - end.time) - fit.mean_delay)
    if nak:
        side.nak_open = 1
        side.nak_psn = psn
        side.nak_time = time
    elif settles:
        side.nak_open = 0
    side.answers += 1
    side.psn = psn
    side.msn = msn
    side.syndrome = syndrome
    side.time = time
    return stop - first


@kernel
def _compare(
    sides: RecordArray, ends: RecordArray, fits: RecordArray, low: Int, path_mtu: Int,
    table: TableArrays, rows: Ints, side_of_row: Int32s,
) -> Int:  # fmt: skip
    """Take in rows of one pair of hosts, in capture order; the number of comparisons.

    sides: SIDE[n], the first `low` of them send from the host with the lower number; ends:
    END[n, ENDS_KEPT]; fits: FIT[2, low, n - low].
    """
    work: Int = np.int64(0)
    for k in range(len(rows)):
        i, s = rows[k], np.int64(side_of_row[k])
        opcode = table.opcode[i]
        if TRANSPORT_OF[opcode] != RC and TRANSPORT_OF[opcode] != XRC:
            continue
        bits, psn, time = np.int64(OPCODE_CLASS[opcode]), np.int64(table.psn[i]), table.time_ns[i]
        if bits & REQUEST:
            span: Int = np.int64(1)
            if bits & READ_REQUEST and path_mtu > 0:
                span = reserved_psns(np.int64(table.dma_length[i]), path_mtu)
            wants_ack = table.bth_flags[i] & ACK_REQUEST != 0
            _send(sides, ends, fits, low, s, psn, bits, wants_ack, span, time)
        elif bits & ACKNOWLEDGE or (bits & RESPONSE_DATA and bits & BEGINS):
            aeth = np.int64(table.aeth[i]) if table.decode_flags[i] & HAS_AETH else np.int64(-1)
            work += _hear(sides, ends, fits, low, s, psn, bits, aeth, time)
    return work


class Group:
    """Queue pairs of two hosts without a peer, and how they fit each other."""

    def __init__(self) -> None:
        self.low = 0
        self.sides: RecordArray = np.zeros(0, SIDE)
        self.ends: RecordArray = np.zeros((0, ENDS_KEPT), END)
        self.fits: RecordArray = np.zeros((2, 0, 0), FIT)
        self.taps: list[int | None] = [None, None]
        """Where requests and answers of each direction are compared: of copies at several taps,
        those of one."""
        self.clock_ns = 0
        """Largest step of which all times are multiples."""
        self.work = 0
        self.decided_at = 0
        """`work` when the pairs were decided last."""

    def add(self, lows: Ints, highs: Ints) -> None:
        """Take in further flows of the host with the lower number, and of the other."""
        low, high = self.low, len(self.sides) - self.low
        at = np.r_[np.full(len(lows), low), np.full(len(highs), low + high)]
        new = np.zeros(len(at), SIDE)
        new["flow"] = np.r_[lows, highs]
        self.sides = np.insert(self.sides, at, new)
        self.ends = np.insert(self.ends, at, np.zeros((len(at), ENDS_KEPT), END), axis=0)
        self.fits = np.pad(self.fits, ((0, 0), (0, len(lows)), (0, len(highs))))
        self.low += len(lows)

    def size_with(self, lows: Bools) -> int:
        """Possible pairs with further flows, of which these are of the host with the lower
        number."""
        low, high = self.low + int(lows.sum()), len(self.sides) - self.low + int((~lows).sum())
        return low * high

    def of_one_tap(self, taps: Array, sides: Int32s) -> Bools:
        """Which of these rows count. One tap of both directions, where there is one, else one tap
        of each: a packet counts once, and times of one clock are compared."""
        is_high = sides >= self.low
        seen = [np.unique(taps[is_high == way], return_counts=True) for way in (False, True)]
        for way in (0, 1):
            if self.taps[way] is None and len(seen[way][0]):
                common = np.isin(seen[way][0], seen[1 - way][0])
                self.taps[way] = int(seen[way][0][np.argmax(seen[way][1] + (common << 40))])
        low, high = (-1 if tap is None else tap for tap in self.taps)
        mine: Bools = taps == np.where(is_high, high, low)
        return mine

    def decide(self) -> list[tuple[int, int, bool]]:
        """Pairs of flows that belong together, and whether only their delays tell."""
        low = self.low
        lows, highs = self.sides[:low], self.sides[low:]
        pairs = match(lows, highs, self.fits, max(CLOCK_NS, self.clock_ns))
        for x, y, _ in pairs:
            lows["paired"][x] = highs["paired"][y] = 1
        return [(int(lows["flow"][x]), int(highs["flow"][y]), timed) for x, y, timed in pairs]


def match(
    lows: RecordArray, highs: RecordArray, fits: RecordArray, clock_ns: int = CLOCK_NS
) -> list[tuple[int, int, bool]]:
    """The pairs (low side, high side, by delays only) that the evidence decides.

    lows, highs: SIDE; fits: FIT[2, lows, highs]; clock_ns: resolution of times.
    """
    compared = fits["compared"].sum(axis=0)
    against = sum(
        np.maximum(fits[way]["against"] - PROOF * gaps, 0)
        for way, gaps in enumerate((highs["gaps"][None, :], lows["gaps"][:, None]))
    )
    open_, shown = np.ones(compared.shape, np.bool_), compared >= LEAST_ANSWERS
    for which, (answering, asking) in enumerate(((lows, highs), (highs, lows))):
        cannot = np.multiply.outer(answering["answers"] > 0, asking["started"] == 0)
        open_ &= ~(cannot if which == 0 else cannot.T)
    active = [(side["paired"] == 0) & ((side["answers"] > 0) | (side["started"] > 0)) for side in
              (lows, highs)]  # fmt: skip
    open_ &= active[0][:, None] & active[1][None, :]
    open_ &= ~shown | (against * DOUBT <= compared)
    fewest = np.where(open_ & shown, against, np.iinfo(np.int64).max // 2)
    if not fewest.size:
        return []
    best = np.maximum(fewest.min(axis=1)[:, None], fewest.min(axis=0)[None, :])
    open_ &= ~shown | (against < best + PROOF)
    counts = [int(side.sum()) for side in active]
    pairs: list[tuple[int, int, bool]] = []
    timed = False
    sure = 0
    """Number of pairs that do not depend on others."""
    while True:
        new = _only_ways(open_, shown, counts)
        by_delays = [] if new else _steadiest(open_, fits, clock_ns)
        if not new and not by_delays:
            break
        timed = timed or not new
        for x, y in new or by_delays:
            pairs.append((x, y, timed))
            open_[x, :] = open_[:, y] = False
        sure = sure or len(pairs)
    # A queue pair whose answers fit nothing that is left: an earlier step was wrong.
    left = np.ones(compared.shape, np.bool_)
    for x, y, _ in pairs:
        left[x, :] = left[:, y] = False
    stuck = left.any(axis=1) & shown.any(axis=1) & active[0] & ~open_.any(axis=1)
    return pairs[:sure] if counts[0] <= counts[1] and stuck.any() else pairs


def _only_ways(open_: Bools, shown: Bools, counts: list[int]) -> list[tuple[int, int]]:
    """Pairs of which one side has no other partner; none if two sides have only the same one.

    The side with more queue pairs has some whose partner is not captured.
    """
    ways = []
    for axis in (0, 1):
        if counts[axis] > counts[1 - axis]:
            continue
        table = open_ if axis == 0 else open_.T
        single = np.flatnonzero(table.sum(axis=1) == 1)
        partner = table[single].argmax(axis=1)
        ways += list(zip(*((single, partner) if axis == 0 else (partner, single)), strict=True))
    both = {(int(x), int(y)) for x, y in ways}
    rows, columns = [x for x, _ in both], [y for _, y in both]
    return sorted((x, y) for x, y in both if shown[x, y] and rows.count(x) == columns.count(y) == 1)


def _steadiest(open_: Bools, fits: RecordArray, clock_ns: int) -> list[tuple[int, int]]:
    """Pairs whose answers have a far steadier delay than with any other partner, from both
    sides."""
    count = fits["delays"]
    variance = fits["squares"] / np.maximum(count - 1, 1) + clock_ns**2 / 6
    spread = np.where(count >= LEAST_DELAYS, variance, -1.0).max(axis=0)
    spread[~open_] = np.inf
    spread[spread < 0] = 0  # unknown: not the steadiest, and nothing else is
    known = np.where(count >= LEAST_DELAYS, count, 1 << 20).min(axis=0)
    factor = np.maximum(STEADIER[0], 1 + STEADIER[1] / known + STEADIER[2] / known**2)
    alone = open_ & (spread > 0)
    for axis in (0, 1):
        least = np.sort(np.insert(spread, 0, np.inf, axis=axis), axis=axis).take((0, 1), axis=axis)
        first, second = (np.expand_dims(row, axis) for row in np.moveaxis(least, axis, 0))
        alone &= (spread == first) & (second >= factor * spread)
    return [(x, y) for x, y in np.argwhere(alone).tolist()]


class Matching:
    """Groups of queue pairs that need more than single answers, by the number of the host pair."""

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._closed: set[int] = set()
        """Host pairs with too much to compare."""
        self._flows_of: Ints = np.zeros((0, 2), np.int64)
        """int64[host pairs, 2]: flows of each direction."""
        self._waiting: Bools = np.zeros(0, np.bool_)
        """bool[host pairs]: has new flows, of which no answer came yet."""

    def look_ahead(
        self, state: State, flow_of_row: Int32s, table: PacketTable, known: int
    ) -> list[tuple[int, int, bool]]:
        """Compare the rows of a batch before it is judged; the pairs of flows that are decided, and
        whether only delays tell.

        known: number of flows before this batch.
        """
        flows = state.flows[: int(state.used[USED_FLOWS])]
        if known < len(flows):
            self._note_new(flows[known:])
        if self._waiting.any():
            answers = OPCODE_CLASS[table.opcode] & (ACKNOWLEDGE | RESPONSE_DATA) != 0
            answered = np.zeros(len(self._waiting), np.bool_)
            answered[flows["pair"][flow_of_row[answers]]] = True
            answered &= self._waiting
            if answered.any():
                self._waiting &= ~answered
                self._open(flows, answered)
        if not self._groups:
            return []
        side_of = np.full(len(flows), -1, np.int32)
        for group in self._groups.values():
            side_of[group.sides["flow"]] = np.arange(len(group.sides))
        rows = np.flatnonzero(side_of[flow_of_row] >= 0)
        pair_of_row = flows["pair"][flow_of_row[rows]]
        in_order = np.argsort(pair_of_row, kind="stable")
        rows, pair_of_row = rows[in_order], pair_of_row[in_order]
        decided = []
        for number in np.unique(pair_of_row).tolist():
            first, stop = np.searchsorted(pair_of_row, (number, number + 1))
            group, its_rows = self._groups[number], rows[first:stop]
            its_sides = side_of[flow_of_row[its_rows]]
            group.sides["paired"] |= flows["peer"][group.sides["flow"]] >= 0
            if state.used[TAPS] > 1:
                seen = group.of_one_tap(table.tap[its_rows], its_sides)
                its_rows, its_sides = its_rows[seen], its_sides[seen]
            group.clock_ns = int(np.gcd.reduce(np.r_[group.clock_ns, table.time_ns[its_rows]]))
            group.work += _compare(
                group.sides, group.ends, group.fits, group.low,
                int(state.pairs["path_mtu"][number]), table.arrays, its_rows, its_sides,
            )  # fmt: skip
            if group.work >= _MORE * group.decided_at:  # small batches: not the same again
                group.decided_at = group.work
                decided += group.decide()
            if group.work > MOST_WORK:
                self._closed.add(number)
            if group.work > MOST_WORK or group.sides["paired"].all():
                del self._groups[number]
        return decided

    def _note_new(self, new: RecordArray) -> None:
        """Count new flows of each host pair; only several of them leave a choice."""
        pairs = new["pair"]
        most = int(pairs.max()) + 1
        self._flows_of, self._waiting = longer(self._flows_of, most), longer(self._waiting, most)
        np.add.at(self._flows_of, (pairs, _is_high(new)), 1)
        flows_of = self._flows_of[pairs]
        self._waiting[pairs] = (flows_of.min(axis=1) > 0) & (flows_of.max(axis=1) > 1)
        self._waiting[list(self._closed)] = False

    def _open(self, flows: RecordArray, due: Bools) -> None:
        """Make groups of the flows of these host pairs that their ports do not pair, or add them to
        a group. due: bool[host pairs]."""
        alone = due[flows["pair"]] & (flows["peer"] < 0)
        for group in self._groups.values():
            alone[group.sides["flow"]] = False
        members = np.flatnonzero(alone)
        members = members[~_ports_pair(flows[members])]
        for number in np.unique(flows["pair"][members]).tolist():
            mine = members[flows["pair"][members] == number]
            is_high = _is_high(flows[mine]) == 1
            group = self._groups.get(number) or Group()
            if group.size_with(~is_high) > MOST_COMPARED:
                self._groups.pop(number, None)
                self._closed.add(number)
            elif number in self._groups or 0 < is_high.sum() < len(mine):
                group.add(mine[~is_high], mine[is_high])
                self._groups[number] = group

    def keep(self, kept: Kept, flows: RecordArray) -> None:
        """Follow new numbers of flows; flows: FLOW records of the kept ones."""
        groups = [g for g in self._groups.values() if kept.holds(g.sides["flow"]).all()]
        for group in groups:
            group.sides["flow"] = kept.number[group.sides["flow"]]
        self._groups = {int(flows["pair"][group.sides["flow"][0]]): group for group in groups}
        self._closed.clear()
        self._flows_of, self._waiting = np.zeros((0, 2), np.int64), np.zeros(0, np.bool_)
        if len(flows):
            self._note_new(flows)


def _is_high(flows: RecordArray) -> Ints:
    """1 for FLOW records from the host with the higher number."""
    return (flows["src"] > flows["dst"]).astype(np.int64)


def _ports_pair(flows: RecordArray) -> Bools:
    """Whether exactly one of these flows in each direction of the host pair has the same port."""
    key = flows["pair"].astype(np.int64) << 16 | flows["udp_sport"]
    _, place = np.unique(key, return_inverse=True)
    count = np.zeros((len(flows), 2), np.int64)
    np.add.at(count, (place, _is_high(flows)), 1)
    one_each: Bools = (count[place] == 1).all(axis=1)
    return one_each
