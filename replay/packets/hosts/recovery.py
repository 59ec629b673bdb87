"""Loss recovery of senders: packets in flight and packets to retransmit.

Every packet of a flow is in at most one of two lists: packets in flight, ordered by their
last transmission, or packets to retransmit. Both are threaded through
`packets`, so every step is O(1).

- IDEAL: the zero-overhead erasure code of arXiv 2507.21372: one more packet for every lost packet,
  at once. (Any packet would serve; the lost packet itself is retransmitted.)
- SACK: a packet is lost when a packet sent `threshold` packets later was acknowledged, or
  after the timeout.
- GO_BACK_N: the receiver accepts packets in order only and requests the rest once per gap; all
  packets in flight are retransmitted (RoCE, InfiniBand specification volume 1, 9.7.5.2).
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined, subkernel
from ..model.aligned import aligned
from ..model.model import Workload

NO_RECOVERY, IDEAL, SACK, GO_BACK_N = range(4)

# packets
TX, SENT_PS, EV, PREV, AFTER, STATE, MESSAGE = range(7)
"""Transmission number in the flow, time and EV of the last transmission; neighbours in the list;
state; message."""
PACKET_COLUMNS = 8
UNSENT, UNDER_WAY, DONE, AGAIN_DUE = range(4)
"""Values of STATE."""

# senders
(
    FIRST,
    WAY_HEAD,
    WAY_TAIL,
    AGAIN_HEAD,
    AGAIN_TAIL,
    TX_COUNT,
    HIGHEST_TX,
    WAY_PACKETS,
    NEXT_PS,
    LOG_SEEN,
    LOGGED,
    EXPECTED,
    ASKED,
    NOTICE_HEAD,
    NOTICE_TAIL,
    LOSS_HEAD,
    PEER_MASK,
    NEW_PORTS,
    UNACKNOWLEDGED,
    MARKED_EV,
    RETRIES,
    RETRIED_PS,
    CNP_AT,
    ASKING,
) = range(24)
"""First packet; the two lists; transmissions so far, the highest acknowledged transmission; packets
in flight; earliest time of the next transmission; entries of the receiver's log that the sender
knows, and all entries; at the receiver: next packet in order (go-back-N), and whether it was
requested, or without go-back-N the last packet that requested an ACK (only for MPR); slots of
packets whose loss the EV selection learns by timeout, and of packets whose loss is new (ideal);
usable ports of the peer (bit mask), 1 when these or the host's own ports changed; first
unacknowledged packet (only for MPR); at the receiver: 1 + EV of the latest marked packet since the
last ACK, 0 for none; timeouts since the last new acknowledgement, and the time of the latest: a
timeout counts if its packet was sent after the previous timeout; at the receiver: earliest time of
the next CNP; the latest packet that requested an ACK, -1 for none."""
SENDER_COLUMNS = 24


def new_senders(workload: Workload) -> Ints:
    """int64[flows, SENDER_COLUMNS]: the state before the first packet."""
    senders = aligned(len(workload.src), SENDER_COLUMNS)
    senders[:, WAY_HEAD : AGAIN_TAIL + 1] = -1
    senders[:, HIGHEST_TX] = senders[:, ASKING] = -1
    senders[:, NOTICE_HEAD : PEER_MASK + 1] = -1
    senders[:, FIRST] = workload.packet_start[workload.flow_start[:-1]]
    senders[:, EXPECTED] = senders[:, UNACKNOWLEDGED] = senders[:, FIRST]
    return senders


def new_packets(total: int) -> Ints:
    """int64[total, PACKET_COLUMNS]: the state before the first packet."""
    packets = aligned(total, PACKET_COLUMNS)
    packets[:, PREV : AFTER + 1] = -1
    return packets


@inlined
def _append(senders: Ints, packets: Ints, flow: Int, packet: Int, head: Int) -> None:
    """Append to the list that begins at column `head`."""
    last = senders[flow, head + 1]
    packets[packet, PREV] = last
    packets[packet, AFTER] = -1
    if last < 0:
        senders[flow, head] = packet
    else:
        packets[last, AFTER] = packet
    senders[flow, head + 1] = packet


@inlined
def _unlink(senders: Ints, packets: Ints, flow: Int, packet: Int, head: Int) -> None:
    before, after = packets[packet, PREV], packets[packet, AFTER]
    if before < 0:
        senders[flow, head] = after
    else:
        packets[before, AFTER] = after
    if after < 0:
        senders[flow, head + 1] = before
    else:
        packets[after, PREV] = before


@inlined
def now_under_way(senders: Ints, packets: Ints, flow: Int, packet: Int, ev: Int, time: Int) -> None:
    """Record the transmission of a packet that is UNSENT or AGAIN_DUE."""
    if packets[packet, STATE] == AGAIN_DUE:
        _unlink(senders, packets, flow, packet, AGAIN_HEAD)
    packets[packet, STATE] = UNDER_WAY
    packets[packet, TX] = senders[flow, TX_COUNT]
    packets[packet, SENT_PS] = time
    packets[packet, EV] = ev
    senders[flow, TX_COUNT] += 1
    senders[flow, WAY_PACKETS] += 1
    _append(senders, packets, flow, packet, WAY_HEAD)


@inlined
def now_done(senders: Ints, packets: Ints, flow: Int, packet: Int) -> None:
    """Record the first acknowledgement of a packet."""
    if packets[packet, STATE] == UNDER_WAY:
        _unlink(senders, packets, flow, packet, WAY_HEAD)
        senders[flow, WAY_PACKETS] -= 1
    elif packets[packet, STATE] == AGAIN_DUE:
        _unlink(senders, packets, flow, packet, AGAIN_HEAD)
    packets[packet, STATE] = DONE
    senders[flow, HIGHEST_TX] = max(senders[flow, HIGHEST_TX], packets[packet, TX])


@inlined
def now_lost(senders: Ints, packets: Ints, flow: Int, packet: Int) -> None:
    """Append a packet in flight to the packets to retransmit."""
    _unlink(senders, packets, flow, packet, WAY_HEAD)
    senders[flow, WAY_PACKETS] -= 1
    packets[packet, STATE] = AGAIN_DUE
    _append(senders, packets, flow, packet, AGAIN_HEAD)


@inlined
def overtaken(senders: Ints, packets: Ints, flow: Int, threshold: Int) -> Int:
    """The first packet in flight that SACK considers lost, -1 for none."""
    packet = senders[flow, WAY_HEAD]
    if packet >= 0 and packets[packet, TX] + threshold <= senders[flow, HIGHEST_TX]:
        return packet
    return np.int64(-1)


@inlined
def timeout_ps(senders: Ints, flow: Int, rto_ps: Int, linear: Int) -> Int:
    """The timeout of a flow: doubled at each consecutive timeout after `linear`, to 2^16-fold."""
    more = min(max(np.int64(0), senders[flow, RETRIES] - linear), np.int64(16))
    return min(rto_ps << more, np.int64(10**13))


@subkernel
def abandon(senders: Ints, packets: Ints, flow: Int) -> None:
    """Forget all packets of a flow that has failed: late ACKs no longer count."""
    for head in (WAY_HEAD, AGAIN_HEAD):
        packet = senders[flow, head]
        while packet >= 0:
            packets[packet, STATE] = DONE
            packet = packets[packet, AFTER]
        senders[flow, head] = senders[flow, head + 1] = -1
    senders[flow, WAY_PACKETS] = 0


@subkernel
def go_back(senders: Ints, packets: Ints, flow: Int, packet: Int) -> Int:
    """Retransmit all packets in flight from this packet on, before other retransmissions; returns
    their number."""
    count = np.int64(0)
    last = senders[flow, WAY_TAIL]
    while last >= 0:
        before = packets[last, PREV]
        if last >= packet:
            _unlink(senders, packets, flow, last, WAY_HEAD)
            head = senders[flow, AGAIN_HEAD]
            packets[last, PREV] = -1
            packets[last, AFTER] = head
            if head < 0:
                senders[flow, AGAIN_TAIL] = last
            else:
                packets[head, PREV] = last
            senders[flow, AGAIN_HEAD] = last
            packets[last, STATE] = AGAIN_DUE
            senders[flow, WAY_PACKETS] -= 1
            count += 1
        last = before
    return count
