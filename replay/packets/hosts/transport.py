"""How hosts send: parameters with their sources, recovery of losses, congestion controls.

Every packet of a flow is in at most one of two lists: packets in flight, ordered by their
last transmission, or packets to retransmit. Both are threaded through
`packets`, so every step is O(1).

- IDEAL: the zero-overhead erasure code of arXiv 2507.21372: one more packet for every lost packet,
  at once. (Any packet would serve; the lost packet itself is retransmitted.)
- SACK: a packet is lost when a packet sent `threshold` packets later was acknowledged, or
  after the timeout.
- GO_BACK_N: the receiver accepts packets in order only and requests the rest once per gap; all
  packets in flight are retransmitted (RoCE, InfiniBand specification volume 1, 9.7.5.2).

| parameter | source |
|---|---|
| recovery `ideal` | paper: zero-overhead erasure code; assumed: hosts learn of losses at once |
| reordering threshold 32 (6 for all-to-all) | paper (arXiv 2507.21372, section 8), SACK |
| timeout 70 us | paper (REPS, arXiv 2407.21625); the value of MRC is not public |
| 7 equal timeouts, then doubling | MRC's public API: linear at most 7, then exponential |
| retries | InfiniBand specification, volume 1, 9.9.2: a counter of 0 to 7, reset by progress |
| MPR 1,024 packets | MRC's public API: 8 units of 128 in the examples; default: no limit |
| go-back-N | InfiniBand specification, volume 1: one NAK per gap |
| congestion control NSCC | UET reference simulator, see nscc.py |
| congestion control DCQCN | paper (SIGCOMM 2015): see dcqcn.py |
| congestion control Swift | paper (SIGCOMM 2020): see swift.py |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Int, inlined, subkernel
from ..model.model import Workload
from ..model.records import CACHE_LINE, Records, layout, table
from .congestion import Algorithm
from .dcqcn import DCQCN, DCQCN_CLAMP
from .nscc import NSCC
from .swift import SWIFT

NO_RECOVERY, IDEAL, SACK, GO_BACK_N = range(4)


class Tracked:
    """A packet that its sender tracks; one cache line."""

    tx: int
    """Transmission number in the flow, of the last transmission like the following two."""
    sent_ps: int
    ev: int
    prev: int
    """Neighbours in the list."""
    after: int
    state: int
    message: int


UNSENT, UNDER_WAY, DONE, AGAIN_DUE = range(4)
"""Values of `Tracked.state`."""


class PacketList:
    """A list of packets, -1 for none."""

    head: int
    tail: int


class Sender:
    """A flow at its sender, and in part at its receiver; three cache lines."""

    first: int
    """First packet."""
    under_way: PacketList
    """Packets in flight."""
    again: PacketList
    """Packets to retransmit."""
    tx_count: int
    """Transmissions so far."""
    highest_tx: int
    """Highest acknowledged transmission."""
    way_packets: int
    """Packets in flight."""
    next_ps: int
    """Earliest time of the next transmission."""
    log_seen: int
    """Entries of the receiver's log that the sender knows."""
    logged: int
    """All entries of the receiver's log."""
    expected: int
    """At the receiver: next packet in order (go-back-N)."""
    asked: int
    """At the receiver: whether it was requested; without go-back-N the last packet that requested
    an ACK (only for MPR)."""
    notice_head: int
    """Slots of packets whose loss the EV selection learns by timeout."""
    notice_tail: int
    loss_head: int
    """Slots of packets whose loss is new (ideal)."""
    peer_mask: int
    """Usable ports of the peer (bit mask)."""
    new_ports: int
    """1 when these or the host's own ports changed."""
    unacknowledged: int
    """First unacknowledged packet (only for MPR)."""
    marked_ev: int
    """At the receiver: 1 + EV of the latest marked packet since the last ACK, 0 for none."""
    retries: int
    """Timeouts since the last new acknowledgement."""
    retried_ps: int
    """Time of the latest: a timeout counts if its packet was sent after the previous timeout."""
    cnp_at: int
    """At the receiver: earliest time of the next CNP."""
    asking: int
    """The latest packet that requested an ACK, -1 for none."""


TRACKED, SENDER = layout(Tracked, CACHE_LINE), layout(Sender, CACHE_LINE)


def new_senders(workload: Workload) -> Records:
    """SENDER[flows]: the state before the first packet."""
    senders = table(len(workload.src), SENDER)
    for packets in ("under_way", "again"):
        senders[packets]["head"] = senders[packets]["tail"] = -1
    for name in ("highest_tx", "asking", "notice_head", "notice_tail", "loss_head", "peer_mask"):
        senders[name] = -1
    senders["first"] = workload.packet_start[workload.flow_start[:-1]]
    senders["expected"] = senders["unacknowledged"] = senders["first"]
    return senders


def new_packets(total: int) -> Records:
    """TRACKED[total]: the state before the first packet."""
    packets = table(total, TRACKED)
    packets["prev"] = packets["after"] = -1
    return packets


@inlined
def _append(ends: Any, packets: Records, packet: Int) -> None:
    """Append to the list with these ends."""
    last = ends.tail
    packets[packet].prev = last
    packets[packet].after = -1
    if last < 0:
        ends.head = packet
    else:
        packets[last].after = packet
    ends.tail = packet


@inlined
def _unlink(ends: Any, packets: Records, packet: Int) -> None:
    """Remove from the list with these ends."""
    before, after = packets[packet].prev, packets[packet].after
    if before < 0:
        ends.head = after
    else:
        packets[before].after = after
    if after < 0:
        ends.tail = before
    else:
        packets[after].prev = before


@inlined
def now_under_way(
    senders: Records, packets: Records, flow: Int, packet: Int, ev: Int, time: Int
) -> None:
    """Record the transmission of a packet that is UNSENT or AGAIN_DUE."""
    if packets[packet].state == AGAIN_DUE:
        _unlink(senders[flow].again, packets, packet)
    packets[packet].state = UNDER_WAY
    packets[packet].tx = senders[flow].tx_count
    packets[packet].sent_ps = time
    packets[packet].ev = ev
    senders[flow].tx_count += 1
    senders[flow].way_packets += 1
    _append(senders[flow].under_way, packets, packet)


@inlined
def now_done(senders: Records, packets: Records, flow: Int, packet: Int) -> None:
    """Record the first acknowledgement of a packet."""
    if packets[packet].state == UNDER_WAY:
        _unlink(senders[flow].under_way, packets, packet)
        senders[flow].way_packets -= 1
    elif packets[packet].state == AGAIN_DUE:
        _unlink(senders[flow].again, packets, packet)
    packets[packet].state = DONE
    senders[flow].highest_tx = max(senders[flow].highest_tx, packets[packet].tx)


@inlined
def now_lost(senders: Records, packets: Records, flow: Int, packet: Int) -> None:
    """Append a packet in flight to the packets to retransmit."""
    _unlink(senders[flow].under_way, packets, packet)
    senders[flow].way_packets -= 1
    packets[packet].state = AGAIN_DUE
    _append(senders[flow].again, packets, packet)


@inlined
def overtaken(senders: Records, packets: Records, flow: Int, threshold: Int) -> Int:
    """The first packet in flight that SACK considers lost, -1 for none."""
    packet = senders[flow].under_way.head
    if packet >= 0 and packets[packet].tx + threshold <= senders[flow].highest_tx:
        return packet
    return np.int64(-1)


@inlined
def timeout_ps(senders: Records, flow: Int, rto_ps: Int, linear: Int) -> Int:
    """The timeout of a flow: doubled at each consecutive timeout after `linear`, to 2^16-fold."""
    more = min(max(np.int64(0), senders[flow].retries - linear), np.int64(16))
    return min(rto_ps << more, np.int64(10**13))


@subkernel
def abandon(senders: Records, packets: Records, flow: Int) -> None:
    """Forget all packets of a flow that has failed: late ACKs no longer count."""
    _forget(senders[flow].under_way, packets)
    _forget(senders[flow].again, packets)
    senders[flow].way_packets = 0


@inlined
def _forget(ends: Any, packets: Records) -> None:
    """Empty the list with these ends; its packets are done."""
    packet = ends.head
    while packet >= 0:
        packets[packet].state = DONE
        packet = packets[packet].after
    ends.head = ends.tail = -1


@subkernel
def go_back(senders: Records, packets: Records, flow: Int, packet: Int) -> Int:
    """Retransmit all packets in flight from this packet on, before other retransmissions; returns
    their number."""
    count = np.int64(0)
    last = senders[flow].under_way.tail
    while last >= 0:
        before = packets[last].prev
        if last >= packet:
            _unlink(senders[flow].under_way, packets, last)
            head = senders[flow].again.head
            packets[last].prev = -1
            packets[last].after = head
            if head < 0:
                senders[flow].again.tail = last
            else:
                packets[head].prev = last
            senders[flow].again.head = last
            packets[last].state = AGAIN_DUE
            senders[flow].way_packets -= 1
            count += 1
        last = before
    return count


NONE = "none"
"""Hosts send at line rate."""
ALGORITHMS: Mapping[str, Algorithm] = {
    NONE: Algorithm(),
    "nscc": NSCC,
    "dcqcn": DCQCN,
    "dcqcn-clamp": DCQCN_CLAMP,
    "swift": SWIFT,
}


RECOVERIES: Final = {
    "none": NO_RECOVERY,
    "ideal": IDEAL,
    "sack": SACK,
    "go-back-n": GO_BACK_N,
}

MOST_RETRIES: Final = 255


@dataclass(frozen=True)
class Transport:
    """How hosts send. UsageError names an invalid parameter."""

    recovery: str = "none"
    """none, ideal, sack, go-back-n."""
    congestion: str = NONE
    """One of ALGORITHMS; none: line rate."""
    reordering_packets: int = 32
    """SACK: a packet is lost when a packet sent N packets later is acknowledged."""
    rto_ps: int = 70_000_000
    """A packet that is not acknowledged within this time is lost."""
    linear_retries: int = 7
    """Number of consecutive timeouts without doubling; each further timeout doubles the time."""
    retries: int | None = None
    """A flow whose packets time out again after this many consecutive timeouts has failed: it sends
    nothing more, as a queue pair in the error state. None: it continues forever."""
    mpr_packets: int = 0
    """Maximum of packets sent beyond the first unacknowledged packet; 0: no limit."""
    rate_share: float = 1.0
    """Share of the line rate at which a NIC sends data (rho_max)."""

    def __post_init__(self) -> None:
        for name, known in (("recovery", RECOVERIES), ("congestion", ALGORITHMS)):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} must be one of {', '.join(known)}, not {getattr(self, name)}"
                )
        if not 1 <= self.reordering_packets <= 1 << 20:
            raise UsageError(f"reordering_packets must be 1 or more, not {self.reordering_packets}")
        if not 1_000 <= self.rto_ps <= 10**13:
            raise UsageError("rto_ps must be 1 ns to 10 s")
        if not 0 <= self.linear_retries <= 1 << 20:
            raise UsageError(f"linear_retries must be 0 or more, not {self.linear_retries}")
        if self.retries is not None:
            if not 0 <= self.retries <= MOST_RETRIES:
                raise UsageError(f"retries must be 0 to {MOST_RETRIES}, not {self.retries}")
            if self.recovery not in ("sack", "go-back-n"):
                raise UsageError("retries needs recovery=sack or recovery=go-back-n")
        if not 0 <= self.mpr_packets <= 1 << 20:
            raise UsageError(
                f"mpr_packets must be 1 or more, or 0 for no limit, not {self.mpr_packets}"
            )
        if not 0.01 <= self.rate_share <= 1.0:
            raise UsageError(f"rate_share must be 0.01 to 1, not {self.rate_share}")

    def described(self) -> dict[str, str]:
        """The relevant parameters, in the words of `replay --transport`."""
        settings = {"recovery": self.recovery}
        if self.congestion != NONE:
            settings["congestion"] = self.congestion
        if self.recovery == "sack":
            settings["reordering"] = str(self.reordering_packets)
        if self.recovery != "none":
            settings["rto"] = f"{self.rto_ps / 1e6:g}us"
        if self.recovery in ("sack", "go-back-n"):
            settings["linear"] = str(self.linear_retries)
        if self.retries is not None:
            settings["retries"] = str(self.retries)
        if self.mpr_packets:
            settings["mpr"] = str(self.mpr_packets)
        if self.rate_share != 1.0:
            settings["rate"] = f"{100 * self.rate_share:g}%"
        return settings
