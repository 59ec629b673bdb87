"""State of the hop measure: packets in flight between taps, and counts per hop. Layouts only."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int32s, Ints, NamedTuple, Record, RecordArray, UInt64s

START: Final = 0xFFFE
"""In place of the tap before the first one."""
END: Final = 0xFFFF
"""In place of the tap after the last one."""

SIGHTING = np.dtype(
    [
        ("time", np.int64),  # ns
        ("frame", np.int64),
        ("previous", np.int64),  # earlier sighting of the same transmission, -1 for none
        ("wire_bytes", np.uint32),
        ("payload_bytes", np.uint32),
        ("tap", np.uint16),
        ("udp_sport", np.uint16),
        ("overtaken", np.uint16),  # by so many packets at this tap; first: at least 1 if resent
        ("hop_limit", np.uint8),
        ("traffic_class", np.uint8),
        ("copy", np.uint8),  # the transmission was at this tap before
        ("icrc_state", np.uint8),
        ("fragment", np.uint8),  # the first of several
    ],
    align=True,
)
TRANSMISSION = np.dtype(
    [
        ("flow", np.int32),
        ("direction", np.uint8),  # 1: the source has a lower number than the destination
        # without identification:
        ("again", np.uint8),  # not the first one of its packet
        ("doubtful", np.uint8),  # its sightings may be those of another one
        ("label", np.uint32),  # opcode << 24 | PSN
        ("ip_id", np.uint32),
        ("extra", np.uint32),  # AETH of an ACK; of MRC a fingerprint, or source port and RTX bit
        ("first_ns", np.int64),
        ("sighting", np.int64),  # the latest one
        ("first_sighting", np.int64),
        ("chain", np.int64),  # earlier transmission of the same bucket, -1 for none
    ],
    align=True,
)
EDGE = np.dtype(
    [
        ("flow", np.int32),  # -1: all flows together
        ("from_tap", np.uint16),
        ("to_tap", np.uint16),
        ("hop", np.int32),  # number of the edge of all flows together
        ("drop_min", np.int16),  # hop limit at from_tap less that at to_tap
        ("drop_max", np.int16),
        ("limit_min", np.int16),  # hop limit at from_tap (of START: at to_tap)
        ("limit_max", np.int16),
        ("packets", np.int64),
        ("wire_bytes", np.int64),
        ("bytes_min", np.int64),  # shortest and longest packet
        ("bytes_max", np.int64),
        ("marked", np.int64),  # not CE before, CE after
        ("late", np.int64),  # in order before and when sent, late after
        ("copies", np.int64),  # more sightings after than before
        ("corrupted", np.int64),  # right ICRC before, wrong after
        ("trimmed", np.int64),  # less payload after than before
        ("fragmented", np.int64),  # whole before, the first fragment after
        ("dscp_changed", np.int64),  # of packets that are not trimmed
        ("first_ns", np.int64),  # at from_tap (of START: at to_tap)
        ("last_ns", np.int64),
        ("first_marked_ns", np.int64),
        ("last_marked_ns", np.int64),
        ("first_late_ns", np.int64),
        ("last_late_ns", np.int64),
        ("first_copy_ns", np.int64),
        ("last_copy_ns", np.int64),
        ("first_trimmed_ns", np.int64),
        ("last_trimmed_ns", np.int64),
        ("first_dscp_ns", np.int64),
        ("last_dscp_ns", np.int64),
        ("first_corrupted_ns", np.int64),
        ("last_corrupted_ns", np.int64),
        ("first_fragmented_ns", np.int64),
        ("last_fragmented_ns", np.int64),
        ("unlogged_early", np.int64),  # of END: without a moment, before any went on
        ("last_early_ns", np.int64),  # time of the last of them
        ("shown_frame", np.int64, (8,)),  # at to_tap: the first packet of each of SHOWN, 0 for none
        ("shown_ns", np.int64, (8,)),
        ("delay_base", np.int64),  # of all flows: delays are counted relative to it, ns
        ("delay_min", np.int64),
        ("delay_max", np.int64),
    ],
    align=True,
)
VISIT = np.dtype(
    [
        ("flow", np.int32),
        ("tap", np.uint16),
        ("first_next_tap", np.uint16),  # of the first and
        ("next_tap", np.uint16),  # of the latest transmission that skipped no tap
        ("started", np.uint8, (2,)),
        ("highest", np.uint32, (2,)),  # highest PSN of requests and of responses
        ("recent", np.uint64, (2,)),  # bit n: the PSN n below the highest one was here
        ("packets", np.int64),  # copies included
        ("in_order", np.int64),
        # Without identification: in order here, and just before at another tap with the same hop
        # limit.
        ("shared", np.int64),
        ("went_on", np.int64),
        ("run", np.int64),  # transmissions in a row that ended here
        ("long_runs", np.int64),  # such rows of at least LONG_RUN
        ("in_long_runs", np.int64),  # and the transmissions in them
        ("output", np.uint32),  # of the latest transmission that continued
        ("latest_tap", np.uint16),  # next tap of the latest transmission that continued
        ("turns", np.int64),  # consecutive transmissions with different next taps
        (
            "drop",
            np.int16,
        ),  # least hop limit here less that at the next tap (of START: less than 255)
        ("next_ns", np.int64),  # time of the latest transmission to next_tap
        ("early_ns", np.int64),  # of the latest one before `drop` fell
        ("moves", np.int64),  # transmissions to another next tap, equally far, than the one before
        ("first_move_ns", np.int64),
        ("last_move_ns", np.int64),
    ],
    align=True,
)
MOMENT = np.dtype(
    [
        ("flow", np.int32),
        ("label", np.uint32),
        ("edge", np.int32),  # the edge; of a retransmission -1
        ("tap", np.uint16),
        ("udp_sport", np.uint16),
        ("hop_limit", np.uint8),
        ("wire_bytes", np.uint32),
        ("time", np.int64),
        ("frame", np.int64),
        ("later", np.int64),  # time of the latest RoCE packet when it was concluded
        ("run", np.int64),  # of END: number in a row of transmissions that ended here, from 1
        # Of an end, the packets that left last before and first after it by the output that its
        # flow took last: number of their hop, -1 for none, and delay, ns.
        ("hop_before", np.int32),
        ("hop_after", np.int32),
        ("delay_before", np.int64),
        ("delay_after", np.int64),
        ("chain", np.int64),  # item of `ends` + 1: earlier end without a packet after it; 0: none
    ],
    align=True,
)
MOVE = np.dtype(
    [
        ("flow", np.int32),
        ("tap", np.uint16),
        ("old_tap", np.uint16),  # next tap of the transmission before the move
        ("new_tap", np.uint16),
        ("left_ns", np.int64),  # time at `tap` of the last transmission to the old next tap
        ("time", np.int64),  # and of the first one to the new next tap
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("hop", np.int32),  # of the latest packet that left by this output, -1 for none
        ("delay", np.int64),  # of this packet, ns
        ("waiting", np.int64),  # item of `ends` + 1: latest end without a packet after it; 0: none
    ],
    align=True,
)

MOST_OUTPUTS: Final = 8192
"""Outputs whose packets are compared with the lost ones: those to half as many taps."""

SHOWN = "marked", "late", "copies", "trimmed", "dscp_changed", "corrupted", "fragmented", "slowest"
"""What a frame is kept of per edge: counters of EDGE, and the longest delay."""
MARKED, LATE, COPIED, TRIMMED, DSCP, CORRUPTED, FRAGMENTED, SLOWEST = range(8)

LOGGED_MOVES: Final = 8
"""Moves of a flow at a tap that are logged: more than those of flows that are not sprayed."""

LONG_RUN: Final = 3
"""Transmissions of a flow in a row that end at a tap: random loss seldom takes this many."""

ORDERED_TAPS: Final = 64
"""Taps whose order is learned where hop limits do not show it."""
LEAST, MOST, SAMPLES = range(3)
"""Items of `Passing.lags`."""

AHEAD, BEHIND, OVERTAKEN = range(3)
"""Histograms of a hop: delays above and below the first one; packets that overtook a late one."""

WINDOWS: Final = 128
"""Windows per hop, all of one width."""
PACKETS_IN, BYTES_IN, MARKS_IN, LATE_IN, DELAY_LEAST, DELAY_MOST, BYTES_MOST = range(7)
"""BYTES_MOST: the longest packet."""
WINDOW_VALUES: Final = 7

HORIZON, NEWEST, HURRIED, LONGEST, WIDTH, ORIGIN, FROM, TO, AWAY = range(9)
"""Items of `Passing.clock`, ns: a transmission is concluded this long after its first sighting; the
latest time (`NOT_BEGUN` if none; single wild times do not count); the number concluded earlier for
want of room; the longest time between two sightings of one transmission; width of a window; number
of the first window, in widths since the Unix epoch; earliest and latest time in a window; packets
in a row far ahead of the latest time, or (below 0) far behind it."""
NOT_BEGUN: Final = -(1 << 62)

HEAD, TAIL, SIGHTED, EDGES, HOPS, VISITS, ENDS, RESENT, UNLOGGED, AWAY_FROM, MOVES, DOUBTED = range(
    12
)
"""Items of `Passing.used`: next and oldest transmission, next sighting (all counted from the
beginning); records in use; moments that had no room; the next transmission when the packets of
`AWAY` began; moves in use; transmissions that were doubtful."""


class SightingRecord(Record):
    """An element of `Passing.sightings`."""


class TransmissionRecord(Record):
    """An element of `Passing.transmissions`."""


class EdgeRecord(Record):
    """An element of `Passing.edges`."""


class VisitRecord(Record):
    """An element of `Passing.visits`."""


class Passing(NamedTuple):
    """All arrays of the measure; those named rings are addressed modulo their power-of-two size."""

    sightings: RecordArray
    """SIGHTING ring."""
    transmissions: RecordArray
    """TRANSMISSION ring."""
    buckets: Ints
    """Newest transmission by hash."""
    edges: RecordArray
    """EDGE, per flow and of all flows together."""
    edge_slots: Int32s
    visits: RecordArray
    """VISIT, per flow and tap."""
    visit_slots: Int32s
    hops: Int32s
    """Edge of each hop: the edges of all flows together in order of appearance."""
    windows: Ints
    """int64[hops, WINDOWS, WINDOW_VALUES]."""
    ends: RecordArray
    """MOMENT: transmissions that ended where others of their flow continued, or that skipped a tap
    where others did not, in order of their first sighting; also the first few of every flow and
    tap."""
    resent: RecordArray
    """MOMENT: retransmissions."""
    outputs: RecordArray
    """OUTPUT by number: twice the tap, and the last bit of the hop limit there."""
    moves: RecordArray
    """MOVE: the first `LOGGED_MOVES` of every flow and tap."""
    lags: Ints
    """int64[ORDERED_TAPS, ORDERED_TAPS, 2, 3]: for taps a < b, by direction (1 where the source has
    the lower number): least and most time from a to b, samples. Of packets with the same hop limit
    at both; without identification, of all that were not transmitted before."""
    captured: Ints
    """int64[ORDERED_TAPS, 2]: times of the first and the latest packet of each tap."""
    clock: Ints
    used: Ints
    salt: UInt64s
