"""State of the event-driven driver beside `RunState`: senders with feedback, failing links."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Floats, Int, Int32s, Ints, inlined
from ....kernels.named import NamedTuple
from ..model import run_state as rs
from ..model.aligned import aligned
from ..model.draws import mixed
from ..model.model import AGAIN, NUMBER_MASK, Workload, pace_of
from ..model.run_state import RunState
from ..model.wheel import Wheel
from .congestion.algorithm import Congestion, at_once
from .congestion.registry import ALGORITHMS, NONE
from .parameters import RECOVERIES, Transport
from .recovery import NO_RECOVERY, new_packets, new_senders

PROBE = 1 << 60
"""Flag of a packet key: a probe of an EV; with ACK the answer to a probe."""
CNP = 1 << 61
"""Flag of a packet key, with ACK: a congestion notification packet (InfiniBand, annex A17)."""
ASKS = 1 << 62
"""Flag of a packet key: the sender requests an ACK at once (AckReq of a BTH)."""


@inlined
def drawn_key(key: Int, stamp: Int) -> Int:
    """The packet key from which labels and switch choices are drawn. A retransmission at another
    time (stamp), and its ACK, use another path."""
    if key & np.int64(AGAIN):
        return key ^ np.int64(mixed(stamp) & np.uint64(NUMBER_MASK))
    return key


# slots, after the columns of `RunState`: a packet is in one line of the caches
STAMP, ECHO, POSITION, TRAIL = range(rs.SLOT_COLUMNS, rs.SLOT_COLUMNS + 4)
SLOT_COLUMNS = rs.SLOT_COLUMNS + 4
"""Time at which the data packet left its host, its EV, entries of the receiver's log at the time of
the ACK; 1 if its link lost the packet, plus 2 per switch that it has passed, plus FORTH per switch
that the data packet of an ACK has passed."""
FORTH = 1 << 32

# wires, per link
OWNER, DOWN, LOSS, PACED, TARGET = range(5)
WIRE_COLUMNS = 8
"""Host at the start of the link (-1: a switch), 1 if down, chance of loss in 2^-32, earliest time
of the next data packet of a NIC that is below line rate or whose flows are all paced, node at the
end of the link."""

# nics, per host
BLOCKED, UP = range(2)
"""Masks of ports: free but without a packet to send; with a link that is up."""

# control
(
    RECOVERY,
    THRESHOLD,
    RTO,
    SELECTS,
    CAN_LOSE,
    EPOCH,
    NEXT_CHANGE,
    MARGIN,
    PACE,
    CONTROLLED,
    REFLECTS,
    TIMERS,
    HOST_ITEMS,
    NOW_PS,
    LINEAR,
    MPR,
    PACED_FLOWS,
    CNP_PS,
    SEVERAL,
    MOST_RETRIES,
    TRACKS,
) = range(21)
"""Recovery and its parameters; hosts select EVs; packets can be lost; routing state in force; index
of the next change; maximum of free slots that one event needs; sending interval of data over its
service time, in 2^-20 (1 << 20: line rate); congestion control is on; ACKs return by the path of
their packet; items of the calendar: 0 is the next change, then links, flows' timers from TIMERS on,
hosts from HOST_ITEMS on; time of the current event; timeouts before they double; maximum of packets
beyond the first unacknowledged packet (0: no limit); congestion control paces; least interval of
CNPs of a flow (0: none); an ACK is for several packets, and window or MPR may wait for it;
consecutive timeouts after which the next one makes the flow fail; single packets are tracked in
`packets`, `log` and `got` (not where nothing is retransmitted and only their number counts)."""
CONTROL = 21

# tally
SENT_AGAIN, GIVEN_UP, TIMEOUTS, TRIMS_SEEN, PROBES_SENT, LOST_ON_LINKS, DUPLICATES, OUT_OF_ORDER = (
    range(8)
)
DATA_SENT, DATA_RECEIVED, DATA_LOST, TRIMMED_RECEIVED, LAST_LOSS_PS, CNPS = range(8, 14)


class Tally(NamedTuple):
    """Counts of a run, in the order of these columns."""

    sent_again: int
    given_up: int
    """Packets that senders considered lost before their timeout."""
    timeouts: int
    trims_seen: int
    """NACKs that arrived at senders."""
    probes: int
    lost_on_links: int
    duplicates: int
    out_of_order: int
    """Packets that a go-back-N receiver rejected."""
    data_sent: int
    """Packets that hosts sent, retransmissions included."""
    data_received: int
    """Whole packets that arrived at their host, duplicates included."""
    data_lost: int
    """Dropped by queues, lost on links or without a route."""
    trimmed_received: int
    """Packets of which only the header arrived at the host."""
    last_loss_ps: int
    """Time of the last loss of a data packet, 0 without losses."""
    cnps: int
    """Congestion notification packets that receivers sent."""


class Feedback(NamedTuple):
    """Arrays of a run with feedback; F flows, N tracked packets, H hosts, L links."""

    senders: Ints
    """int64[F, SENDER_COLUMNS] (recovery.py)."""
    packets: Ints
    """int64[N, PACKET_COLUMNS]"""
    log: Int32s
    """int32[N]: packets of each flow in the order of their first arrival."""
    got: Bytes
    """uint8[N]: 1 for packets that have arrived."""
    slots: Ints
    """int64[slots, SLOT_COLUMNS]: those of `RunState`."""
    wires: Ints
    """int64[L, WIRE_COLUMNS]"""
    nics: Ints
    """int64[H, 2]"""
    ports: Ints
    """int64[F, P]: data bytes that each flow sent over each port of its host."""
    routes: Int32s
    """int32[states, S, E]: `FabricArrays.route` of each routing state."""
    changes: Ints
    ends: Ints
    """Scratch space: messages that an ACK completes."""
    control: Ints
    tally: Ints
    window: Floats
    """Congestion control: rows and parameters of congestion/algorithm.py."""
    window_params: Floats
    wheel: Wheel


def new_feedback(
    workload: Workload,
    run: RunState,
    target: Int32s,
    transport: Transport,
    control_of_congestion: Congestion,
    routes: Int32s,
    changes: Ints,
    wheel: Wheel,
    selects: bool,
    reflects: bool,
    can_lose: bool,
    margin: int,
) -> Feedback:
    """The state before the first packet."""
    total, flows = int(workload.packet_start[-1]), len(workload.src)
    hosts, ports = run.access.shape
    wires = aligned(len(run.links), WIRE_COLUMNS)
    wires[:, OWNER] = -1
    wires[:, TARGET] = target
    host = np.arange(hosts)
    nics = np.zeros((hosts, 2), np.int64)
    for port in range(ports):
        there = run.access[:, port] >= 0
        wires[run.access[there, port], OWNER] = host[there]
        nics[there, UP] |= 1 << port
    control = np.zeros(CONTROL, np.int64)
    control[RECOVERY] = RECOVERIES[transport.recovery]
    control[THRESHOLD] = transport.reordering_packets
    control[RTO], control[LINEAR] = transport.rto_ps, transport.linear_retries
    control[MPR] = transport.mpr_packets
    control[SELECTS], control[CAN_LOSE], control[MARGIN] = selects, can_lose, margin
    control[REFLECTS] = reflects
    control[TIMERS], control[HOST_ITEMS] = 1 + len(run.links), 1 + len(run.links) + flows
    control[PACE] = pace_of(transport.rate_share)
    control[CONTROLLED] = transport.congestion != NONE
    control[PACED_FLOWS] = ALGORITHMS[transport.congestion].on_send is not at_once
    control[CNP_PS] = control_of_congestion.cnp_ps
    waits = control[CONTROLLED] or control[MPR]
    control[SEVERAL] = waits and run.settings[rs.ACK_EVERY] > 1
    control[TRACKS] = control[RECOVERY] != NO_RECOVERY or control[MPR] or control[SEVERAL]
    tracked = total if control[TRACKS] else 0
    control[MOST_RETRIES] = 1 << 40 if transport.retries is None else transport.retries
    return Feedback(
        senders=new_senders(workload),
        packets=new_packets(tracked),
        log=np.zeros(tracked, np.int32),
        got=np.zeros(tracked, np.uint8),
        slots=run.slots,
        wires=wires,
        nics=nics,
        ports=np.zeros((flows, ports), np.int64),
        routes=routes,
        changes=changes,
        ends=np.zeros(int(np.diff(workload.flow_start).max(initial=1)), np.int64),
        control=control,
        tally=np.zeros(len(Tally._fields), np.int64),
        window=control_of_congestion.rows,
        window_params=control_of_congestion.params,
        wheel=wheel,
    )
