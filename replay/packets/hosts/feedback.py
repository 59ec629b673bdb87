"""State of the event-driven driver beside `RunState`: senders with feedback, failing links."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Floats, Int, Int32s, Ints, NamedTuple, inlined
from ..model.draws import mixed
from ..model.model import AGAIN, NUMBER_MASK, Workload, pace_of
from ..model.records import CACHE_LINE, Records, layout, table
from ..model.state import RunState, Slot
from ..model.wheel import Wheel
from .congestion import Congestion, at_once
from .transport import (
    ALGORITHMS,
    NO_RECOVERY,
    NONE,
    RECOVERIES,
    Transport,
    new_packets,
    new_senders,
)

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


class FeedbackSlot(Slot):
    """A packet in flight of a run with feedback, in one line of the caches."""

    stamp: int
    """Time at which the data packet left its host."""
    echo: int
    """Its EV."""
    position: int
    """Entries of the receiver's log at the time of the ACK."""
    trail: int
    """1 if its link lost the packet, plus 2 per switch that it has passed, plus FORTH per switch
    that the data packet of an ACK has passed."""


FORTH = 1 << 32


class Wire:
    """The ends and faults of a link; one cache line."""

    owner: int
    """Host at the start of the link (-1: a switch)."""
    down: int
    """1 if down."""
    loss: int
    """Chance of loss in 2^-32."""
    paced: int
    """Earliest time of the next data packet of a NIC that is below line rate or whose flows are all
    paced."""
    target: int
    """Node at the end of the link."""


class Nic:
    """Masks of the ports of a host."""

    blocked: int
    """Free but without a packet to send."""
    up: int
    """With a link that is up."""


class Control:
    """Parameters and state of the driver; one record."""

    recovery: int
    threshold: int
    """Of reordering, packets."""
    rto: int
    selects: int
    """Hosts select EVs."""
    can_lose: int
    """Packets can be lost."""
    epoch: int
    """Routing state in force."""
    next_change: int
    margin: int
    """Maximum of free slots that one event needs."""
    pace: int
    """Sending interval of data over its service time, in 2^-20 (1 << 20: line rate)."""
    controlled: int
    """Congestion control is on."""
    reflects: int
    """ACKs return by the path of their packet."""
    timers: int
    """Items of the calendar: 0 is the next change, then links, flows' timers from `timers` on,
    hosts from `host_items` on."""
    host_items: int
    now_ps: int
    """Time of the current event."""
    linear: int
    """Timeouts before they double."""
    mpr: int
    """Maximum of packets beyond the first unacknowledged packet (0: no limit)."""
    paced_flows: int
    """Congestion control paces."""
    cnp_ps: int
    """Least interval of CNPs of a flow (0: none)."""
    several: int
    """An ACK is for several packets, and window or MPR may wait for it."""
    most_retries: int
    """Consecutive timeouts after which the next one makes the flow fail."""
    tracks: int
    """Single packets are tracked in `packets`, `log` and `got` (not where nothing is retransmitted
    and only their number counts)."""
    passages: int
    """Packets of watched links that the caller of the driver has not taken yet."""


class Tally(NamedTuple):
    """Counts of a run; one record."""

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


FEEDBACK_SLOT, WIRE, NIC = layout(FeedbackSlot), layout(Wire, CACHE_LINE), layout(Nic)
CONTROL, TALLY = layout(Control), layout(Tally)


class Feedback(NamedTuple):
    """Arrays of a run with feedback; F flows, N tracked packets, H hosts, L links."""

    senders: Records
    """SENDER[F] (transport.py)."""
    packets: Records
    """TRACKED[N]"""
    log: Int32s
    """int32[N]: packets of each flow in the order of their first arrival."""
    got: Bytes
    """uint8[N]: 1 for packets that have arrived."""
    slots: Records
    """Those of `RunState`."""
    wires: Records
    """WIRE[L]"""
    nics: Records
    """NIC[H]"""
    ports: Ints
    """int64[F, P]: data bytes that each flow sent over each port of its host."""
    routes: Int32s
    """int32[states, S, E]: `FabricArrays.route` of each routing state."""
    changes: Ints
    ends: Ints
    """Scratch space: messages that an ACK completes."""
    control: Records
    tally: Records
    window: Floats
    """Congestion control: rows and parameters of congestion.py."""
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
    wires = table(len(run.links), WIRE)
    wires["owner"] = -1
    wires["target"] = target
    host = np.arange(hosts)
    nics = table(hosts, NIC)
    for port in range(ports):
        there = run.access[:, port] >= 0
        wires["owner"][run.access[there, port]] = host[there]
        nics["up"][there] |= 1 << port
    control = table(1, CONTROL)
    control["recovery"] = RECOVERIES[transport.recovery]
    control["threshold"] = transport.reordering_packets
    control["rto"], control["linear"] = transport.rto_ps, transport.linear_retries
    control["mpr"] = transport.mpr_packets
    control["selects"], control["can_lose"], control["margin"] = selects, can_lose, margin
    control["reflects"] = reflects
    control["timers"], control["host_items"] = 1 + len(run.links), 1 + len(run.links) + flows
    control["pace"] = pace_of(transport.rate_share)
    control["controlled"] = transport.congestion != NONE
    control["paced_flows"] = ALGORITHMS[transport.congestion].on_send is not at_once
    control["cnp_ps"] = control_of_congestion.cnp_ps
    waits = transport.congestion != NONE or bool(transport.mpr_packets)
    several = waits and run.settings["ack_every"][0] > 1
    tracks = RECOVERIES[transport.recovery] != NO_RECOVERY or bool(transport.mpr_packets) or several
    control["several"], control["tracks"] = several, tracks
    tracked = total if tracks else 0
    control["most_retries"] = 1 << 40 if transport.retries is None else transport.retries
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
        tally=table(1, TALLY),
        window=control_of_congestion.rows,
        window_params=control_of_congestion.params,
        wheel=wheel,
    )
