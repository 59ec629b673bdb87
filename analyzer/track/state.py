"""State of the tracker per flow, per PSN stream and per recent PSN. Layouts only.

Each item is one numpy record, so that a packet touches few cache lines. Memory is bounded by the
number of flows: windows grow only while PSNs are missing, and never beyond `MAX_WINDOW` slots each
and `MAX_SLOTS` in total.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import NamedTuple, Record, RecordArray

# --- per flow ---------------------------------------------------------------

FLOW = np.dtype(
    [
        ("src", "u4"),
        ("dst", "u4"),
        ("dest_qp", "u4"),
        ("pair", "i4"),  # its host pair, index into `pairs`
        ("next_in_pair", "i4"),  # next flow of the same host pair and direction, -1 at the end
        ("peer", "i4"),  # other flow of its connection, -1 while unknown
        ("evidence", "u1"),  # EVIDENCE_ bits of the peer
        ("transport", "u1"),  # top three bits of the first sequenced opcode, else of the first
        ("has_transport", "u1"),
        ("no_ids", "u1"),  # its IPv4 identifications are unusable: IPv6, or MRC
        ("udp_sport", "u2"),  # of its latest packet
        ("ports_vary", "u1"),  # it has several
        ("path_mtu", "u2"),  # largest First or Middle payload, 0 while unknown
        ("agreed", "u1"),  # CM messages of this capture name its first PSN
        ("agreed_psn", "u4"),
        # the IPv4 identification: does it distinguish transmissions?
        ("last_id", "u2"),
        ("id_started", "u1"),
        ("ids_ascending", "u4"),  # steps that move a little forward
        ("ids_other", "u4"),  # other steps
        ("ids_same", "u4"),  # steps of 0 between different packets
        # the same for packets without a PSN order, which may come from another counter
        ("loose_psn", "u4"),  # of the latest
        ("loose_id", "u2"),
        ("loose_ids_same", "u4"),
        ("loose_ids_different", "u4"),
        # counts without copies at other taps
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("payload_bytes", "i8"),
        ("request_packets", "i8"),
        ("read_requests", "i8"),
        ("atomic_requests", "i8"),
        ("response_packets", "i8"),
        ("ack_packets", "i8"),
        ("tap_copies", "i8"),
        ("naks", "i8"),
        ("rnr_naks", "i8"),
        ("cnps", "i8"),
        ("ecn_marked", "i8"),
        ("first_time", "i8"),
        ("last_time", "i8"),
        # pairing in progress, on the responding side
        ("candidate", "i4"),
        ("candidate_hits", "u2"),
        ("pairing_tries", "u2"),
        ("early_naks", "u4"),  # PSN sequence errors that came before it had a peer
        ("answers", "u4"),  # ACKs and responses since it has a peer
        ("mismatches", "u4"),  # of these, with a PSN the peer did not send
        ("mismatches_in_row", "u1"),
        # feedback of the responding side to this flow
        # ring of the latest NAKs to which the sender has not reacted
        ("nak_next", "u1"),
        ("nak_kind", "u1", (4,)),  # NAK_PSN, NAK_RNR, or NAK_NONE after a reaction
        ("nak_psn", "u4", (4,)),
        ("nak_time", "i8", (4,)),
        ("asked_psn", "u4"),  # recently repeated READs and atomics: the PSNs of their responses
        ("asked_count", "u4"),
        ("acked", "u1"),
        ("ack_psn", "u4"),  # highest PSN acknowledged
        ("nak_codes", "u4", (8,)),  # NAKs received by low bits of the code; 7 = any other
        # what the snap length cuts off
        ("cut_answers", "i8"),  # ACKs or NAKs of this flow without their AETH
        ("cut_reads", "i8"),  # READ requests without their length
        ("cut_to", "u4"),  # captured bytes of the longest of these frames
        ("cut_needs", "u4"),  # bytes that would hold their headers
        ("rnr_received", "u4"),
        # go-back-N
        ("in_rewind", "u1"),
        ("rewind_trigger", "u1"),
        ("rewind_next", "u4"),
        ("rewind_time", "i8"),  # of its first packet
        ("rewinds", "i8"),
        ("heeded_naks", "u4"),  # rewinds to the PSN of a NAK
        ("rewound_bytes", "i8"),
        ("last_request_time", "i8"),
        ("retransmitted_by", "i8", (5,)),
        # recent packets without a PSN order, to detect copies: slots in `recents`
        ("recent", "i8"),  # -1 until needed
        ("recent_bits", "u1"),  # log2 of these slots
    ],
    align=True,
)

COPY_WITHIN_NS = 2_000
"""A packet without identification that comes again within this time is a copy: a mirror of both
directions of a port makes them 50 ns to 1 us apart, and a sender learns of a loss later. Unless a
retransmission is known to be due."""

NAK_NONE, NAK_PSN, NAK_RNR = range(3)
NAKS_KEPT = 4

BY_NAK, BY_RNR, BY_TIMEOUT, BY_IMPLIED, BY_UNKNOWN = range(5)
TRIGGER_NAMES = ("nak", "rnr", "timeout", "implied", "unknown")

EVIDENCE_ACK_PSN = 0x01
EVIDENCE_READ_RESPONSE_PSN = 0x02
EVIDENCE_NAK_PSN = 0x04
EVIDENCE_UDP_SOURCE_PORT = 0x08
EVIDENCE_CM = 0x10
EVIDENCE_HOST_PROBE = 0x20
EVIDENCE_DELAYS = 0x40
EVIDENCE_NAMES = (
    (EVIDENCE_CM, "cm"),
    (EVIDENCE_HOST_PROBE, "host_probe"),
    (EVIDENCE_ACK_PSN, "ack_psn"),
    (EVIDENCE_READ_RESPONSE_PSN, "read_response_psn"),
    (EVIDENCE_NAK_PSN, "nak_psn"),
    (EVIDENCE_UDP_SOURCE_PORT, "udp_source_port"),
    (EVIDENCE_DELAYS, "answer_delays"),
)

# --- per host pair: the two directions side by side --------------------------

PAIR = np.dtype(
    [
        ("low", "u4"),  # smaller endpoint index
        ("high", "u4"),
        ("head", "i4", (2,)),  # first flow low -> high and high -> low
        ("path_mtu", "u2"),  # largest First or Middle payload between the two hosts
        ("copied", "u1"),  # the capture holds some packets of a PSN sequence twice
        ("disordered", "u1", (2,)),  # packets low -> high, high -> low overtake each other
    ],
    align=True,
)

# --- per PSN stream: two per flow --------------------------------------------

REQUESTS, RESPONSES = 0, 1
"""Stream of a flow: its own requests, and its READ responses and atomic ACKs,
which count in the other side's request space."""

NAMED, NAMED_PERHAPS, ASKED_PERHAPS = 1, 2, 3
"""What an answer says about `named_psn`.

NAMED: the peer waits for it, as for the first packets of a connection. NAMED_PERHAPS: the same from
a flow that may be the peer; only a retransmission of exactly this PSN proves it. ASKED_PERHAPS:
such a flow requests it again; when it was first sent is unknown."""

BELOW_NONE, BELOW_BEGINS, BELOW_ENDS, BELOW_INSIDE = range(4)
"""What is retransmitted below the first PSN seen: nothing, a message from its first packet on, also
its last packet, or the rest of a message."""

STACK = 32
"""Late arrivals kept, and degrees distinguished: TCP's threshold is 3, sprayed flows reach tens."""

STREAM = np.dtype(
    [
        ("started", "u1"),
        ("mid_message", "u1"),  # the packet before `next` was a First or Middle
        ("read_pending", "u1"),  # `next` is a guess: a READ of unknown path MTU came last
        ("forgets", "u1"),  # PSNs before `held_from` have left its window
        ("held_from", "u4"),
        ("read_psn", "u4"),
        ("read_length", "u4"),
        ("first", "u4"),  # PSN of the packet it began with
        ("next", "u4"),  # next expected PSN
        # first packet of the present sequence
        ("start_psn", "u4"),
        ("start_id", "u2"),
        ("start_tap", "u2"),
        ("named", "u1"),  # NAMED, NAMED_PERHAPS, ASKED_PERHAPS; 0: no PSN is named
        ("named_psn", "u4"),
        ("skips", "u4"),  # bit k: PSN `start_psn` - 1 - k is skipped; it gets a slot if it arrives
        ("named_time", "i8"),  # of this answer
        ("disordered", "u1"),  # a packet overtook another on the way to the tap
        # A PSN skipped before this time may have passed on another path before the capture began.
        ("early_until", "i8"),
        ("early_recovered", "i8"),  # of `recovered`, those skipped before it
        # requests retransmitted below `start_psn`, see BELOW_NONE
        ("below", "u1"),
        ("below_psn", "u4"),  # the lowest one
        ("below_next", "u4"),  # after the highest one
        ("below_end", "u4"),  # the first end of a message, from the lowest one on
        ("start_time", "i8"),
        ("start_arrival", "i8"),
        ("start_dense", "i8"),
        ("window", "i8"),  # first slot of its window
        ("window_bits", "u1"),  # log2 of the slots; 0 = no window yet
        ("room_bits", "u1"),  # log2 of the slots from `window` on that belong to the stream
        ("arrivals", "i8"),  # first copies of original transmissions: the index of RFC 4737
        ("next_dense", "i8"),  # `next` with PSNs reserved by READs squeezed out, unwrapped
        ("missing", "i8"),  # PSNs of the window that are missing now
        ("missing_evicted", "i8"),  # permanently missing: slots reused
        ("missing_evicted_acked", "i8"),
        ("new_packets", "i8"),  # IN_ORDER + AHEAD
        ("reordered", "i8"),
        ("recovered", "i8"),
        ("retransmitted", "i8"),  # RETRANSMITTED, without recovered
        ("duplicates", "i8"),
        ("mirror_duplicates", "i8"),
        ("restarts", "i8"),
        ("max_extent", "i8"),
        ("last_gap_arrival", "i8"),  # RFC 4737 4.5: latest discontinuity a late packet pointed at
        ("last_gap_time", "i8"),
        ("run", "i8"),  # RFC 4737 4.6: in-order packets since the last late one
        ("runs", "i8"),
        ("run_packets", "i8"),
        ("run_packets_squared", "i8"),
        ("max_n", "i8"),
        ("late", "i4"),  # 1 + its record in `lates`; 0 without a late packet
        ("late_depth", "i4"),
        ("floor_dense", "i8"),  # the latest entry that fell off the bottom
        ("floor_arrival", "i8"),
    ],
    align=True,
)

# --- per PSN stream with late packets -----------------------------------------

LATE = np.dtype(
    [
        ("n_counts", "i8", (STACK,)),  # packets whose n-reordering degree is n + 1; last: or more
        # late arrivals with ascending PSNs, for n-reordering
        ("late_dense", "i8", (STACK,)),
        ("late_arrival", "i8", (STACK,)),
    ],
    align=True,
)

# --- per recent PSN ------------------------------------------------------------

EMPTY, SEEN, MISSING, SKIPPED = range(4)
"""Slot states. SKIPPED: skipped without evidence that the PSN exists."""
RECOVERED, RECOVERED_EARLY, RESENT = 1, 2, 3
"""`recovered` of a slot: early, if the PSN was skipped before `early_until`; RESENT: retransmitted,
without an identification that tells the transmissions apart."""
INSIDE_A_READ = -1
"""`dense` of a PSN that an earlier READ reserved, of a READ of the rest."""

SLOT = np.dtype(
    [
        ("psn", "u4"),
        # Of the latest transmission, where missing of the packet that jumped: its IPv4
        # identification; for MRC its UDP source port, because a retransmission takes another path.
        ("sent_id", "u2"),
        ("state", "u1"),
        ("hop_limit", "u1"),
        ("bytes", "u4"),  # payload
        ("tap", "u2"),  # that saw the latest transmission first
        ("rtx", "u1"),  # the latest transmission has the RTX bit of MRC
        # RECOVERED: the original is still missing; `arrival` and `time` are those of the jump
        ("recovered", "u1"),
        ("taps", "u8"),  # bit set of taps that saw it; tap 63 and above share a bit
        ("arrival", "i8"),  # missing: index of the packet that jumped
        ("time", "i8"),  # missing: of the packet that jumped
        ("dense", "i8"),
    ],
    align=True,
)

LEAST_WINDOW_BITS = 3
"""First size of a window: most flows of an attack or a short job have few packets."""
SKIPPED_KEPT = 32
"""PSNs before the first one of a stream, or before one after an uncertain gap, that may arrive
late; a bit of `skips` for each."""
FIRST_WINDOW_BITS = 7
"""A window grows to this before it forgets any PSN."""
FIRST_WINDOW_BITS_OF_MANY_TAPS = 10
"""Copies at another tap may come many packets later."""
MAX_WINDOW_BITS_FOR_COPIES = 13
"""Windows grow to this for packets that the next tap in series has not seen yet."""
MAX_WINDOW_BITS = 16
MAX_WINDOW = 1 << MAX_WINDOW_BITS
MAX_SLOTS = 1 << 22
"""At most 200 MB of windows; beyond it windows stop growing and evict instead."""

RESTART_DISTANCE = 1 << 15
"""A PSN this far from the expected one is a new sequence, not a gap."""
WIDE_GAP = 1 << 10
MISSING_PER_ARRIVAL = 64
"""A gap wider than WIDE_GAP is also a new sequence when missing PSNs exceed packets by this factor:
noise then costs only a few slots per packet."""

# --- packets without PSN order, by identification or PSN --------------------------

RECENT = np.dtype(
    [
        ("used", "u1"),
        ("hop_limit", "u1"),
        ("ip_id", "u2"),
        ("psn", "u4"),
        ("opcode", "u1"),
        ("tap", "u2"),
        ("aeth", "u4"),
        ("taps", "u8"),
        ("time", "i8"),
    ],
    align=True,
)
LEAST_RECENT_BITS = 4
"""First size of a table: most flows of short jobs have few packets."""
FIRST_RECENT_BITS = 7
"""A table grows to this before it forgets any packet."""
MAX_RECENT_BITS = 12
"""Tables grow to this rather than forget packets that not all taps have seen."""
RECENT_ENTRIES = 1 << FIRST_RECENT_BITS
MAX_RECENTS = 1 << 21
"""At most 50 MB of tables; beyond it they stop growing and forget."""

# --- events ------------------------------------------------------------------------

EVENT = np.dtype(
    [
        ("time", "i8"),
        ("frame_number", "i8"),
        ("flow", "i4"),
        ("kind", "u1"),
        ("tap", "u2"),
        ("psn", "u4"),
        ("value", "i8"),
    ],
    align=True,
)
EVENT_NAK, EVENT_RNR_NAK, EVENT_REWIND, EVENT_RESTART = range(4)
EVENT_NAMES = ("nak", "rnr_nak", "rewind", "sequence_restart")
MAX_EVENTS = 10_000
"""400 KB, far more than a report shows; further events are only counted."""

NOT_BEGUN = (1 << 63) - 1

# --- all state, for the kernels -------------------------------------------------

# Kinds of the histograms the tracker fills, in HistogramPool order.
(
    EXTENT,
    LATE_TIME,
    HELD_PACKETS,
    BYTE_OFFSET,
    GAP_PACKETS,
    GAP_TIME,
    GAP_TO_NAK,
    NAK_TO_RESEND,
    TIMEOUT,
) = range(9)
HISTOGRAM_KINDS = 9


class FlowRecord(Record):
    """An element of `State.flows`."""


class StreamRecord(Record):
    """An element of `State.streams`."""


class LateRecord(Record):
    """An element of `State.lates`."""


class SlotRecord(Record):
    """An element of `State.slots`."""


class State(NamedTuple):
    """Arrays of the tracker; `used` counts the allocated part of each."""

    flows: RecordArray
    pairs: RecordArray
    streams: RecordArray
    """STREAM[2 * flows]: 2 * flow + REQUESTS or RESPONSES."""
    lates: RecordArray
    """LATE, of streams with late packets."""
    slots: RecordArray
    recents: RecordArray
    events: RecordArray
    copies: NDArray[np.int64]
    """int64[taps+, taps+]: packets first seen at one tap, then at another."""
    began: NDArray[np.int64]
    """int64[taps+]: a time (ns) at which the capture of a tap already ran, `NOT_BEGUN` if none."""
    used: NDArray[np.int64]
    """int64[USED_KINDS], indexed by the USED_ constants."""


(
    USED_FLOWS,
    USED_PAIRS,
    USED_SLOTS,
    USED_RECENTS,
    USED_EVENTS,
    OMITTED_EVENTS,
    FIRST_WINDOW,  # not a count: log2 of the slots from which on a window forgets PSNs
    CANDIDATES_SEEN,  # cost of the search for peers, minus the budget from later responses
    FOLLOWED_TAPS,  # bit set of taps whose packets another tap sees later
    TAPS,
    USED_LATES,
    UNFOLLOWED_TAPS,  # bit set of taps: their packets were judged as if no other tap saw them later
) = range(12)
USED_KINDS = 12
