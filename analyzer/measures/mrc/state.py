"""State of MRC traffic per flow and per entropy value. Layouts only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....kernels.named import NamedTuple
from ...statistics.histogram import Histograms
from ...wire.record import Record, Records
from ..paths.pathtable import LaneRecords

SENT, TOLD = range(2)
"""Lanes of a flow: entropy values of its own packets, and those in its SACKs and NACKs, stored as
received, because the order of the halves is detected later."""
LANES = 2

EV = np.dtype(
    [
        ("lane", "i8"),  # LANES * flow + SENT or TOLD
        ("key", "i8"),  # the entropy value; pathtable.OTHER beyond MAX_PATHS
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        # SENT
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("marked", "i8"),  # with CE
        ("resends", "i8"),  # retransmissions sent with it
        ("lost", "i8"),  # packets with it that were retransmitted
        ("trimmed", "i8"),
        ("last_index", "i8"),  # index of its latest packet in the flow
        ("lost_ns", "i8"),  # first retransmission without a NACK since its last packet
        ("evidence", "u4"),  # path evidence of its latest packet with evidence
        ("tap", "u2"),
        # TOLD
        ("sacks", "i8"),
        ("skips", "i8"),
        ("always_skips", "i8"),
        ("nacks", "i8"),
        ("last_always_skip_ns", "i8"),
        ("round_trips", "i8"),
        ("round_trip_sum_ns", "i8"),
        ("round_trip_min_ns", "i8"),
        ("round_trip_max_ns", "i8"),
    ],
    align=True,
)

REASONS = 8
"""Counts of NACKs: the reasons of decode.mrc.NACK_REASONS in order, then all others."""

FLOW = np.dtype(
    [
        # as sender
        ("packets", "i8"),  # data packets, without copies
        ("resends", "i8"),
        ("resends_after_nack", "i8"),
        ("trimmed", "i8"),
        ("timestamped", "i8"),
        ("started", "u1"),
        ("has_clock", "u1"),
        ("next_psn", "u4"),  # after the highest PSN sent
        ("clock_ns", "i8"),  # tap time minus the sender's timestamps, modulo their wrap
        ("ring", "i4"),  # its recent packets; 0 = none yet, else number + 1
        # as responder
        ("sacks", "i8"),
        ("probe_responses", "i8"),
        ("skips", "i8"),
        ("always_skips", "i8"),
        ("last_always_skip_ns", "i8"),
        ("nacks", "i8", (REASONS,)),
        ("told_bytes", "u1"),
        ("rcvd_bytes", "u4"),  # latest counter, units of 256 bytes
        ("received_units", "i8"),
        ("mpr", "u1"),  # latest value other than 0
        ("max_ooo_count", "u2"),
        # its trimmed packets (SENT) and the NACKs of trimmed packets that it carries (TOLD)
        ("trim_first_ns", "i8", (LANES,)),
        ("trim_last_ns", "i8", (LANES,)),
        ("trim_frame", "i8", (LANES,)),  # of the first one; 0: none
        ("trim_tap", "u2", (LANES,)),
    ],
    align=True,
)

RING = 1024
"""Recent packets of a flow by PSN, to find the packet of a SACK, NACK or retransmission."""
MAX_RINGS = 4096
"""At most 36 MB; responses of further flows are counted but not matched."""

LOG = np.dtype(
    [
        ("kind", "u1"),
        ("flow", "i4"),
        ("time_ns", "i8"),
        ("frame_number", "i8"),
        ("tap", "u2"),
        ("key", "u4"),  # entropy value
        ("psn", "u4"),
        ("value", "i8"),  # NACK: reason; RETURNED: time of its last use before, ns
        ("without", "i8"),  # RETURNED: packets that the flow sent during the silence
        ("lost_ns", "i8"),  # RETURNED: first retransmission with it during the silence, 0: none
    ],
    align=True,
)
LOG_NACK, LOG_RETURNED = range(2)
MAX_LOG = 10_000

RETIRED_AFTER_ROUNDS = 16
"""An entropy value is retired when the flow sends this many packets per value in use without it:
even random selection hardly ever skips a value for so long."""
RETIRED_AFTER_PACKETS = 64
CAUSED_ROUNDS = 4
"""Limit with a cause: loss of a packet with the value, ALWAYS_SKIP, or a port down."""

# Kinds of histograms, per flow of responses.
OOO_DEPTH, ROUND_TRIP, IN_FLIGHT = range(3)
HISTOGRAMS = 3

# The order of an entropy value that a SACK matches.
LABEL_HIGH, PORT_HIGH, BOTH, NEITHER = range(4)


class FlowRecord(Record):
    """An element of `State.flows`."""


class State(NamedTuple):
    """The arrays of the kernel."""

    flows: Records
    evs: LaneRecords
    """EV records by entropy value."""
    ring_psn: NDArray[np.uint32]
    """uint32[rings, RING]: 1 + PSN, 0 for none."""
    ring_ev: NDArray[np.uint32]
    ring_nacked: NDArray[np.uint8]
    log: Records
    used: NDArray[np.int64]
    """int64[N_USED], indexed by the constants below."""
    votes: NDArray[np.int64]
    """int64[4]: SACKs by the matching order."""
    histograms: Histograms


USED_RINGS, USED_LOG, OMITTED_LOG, LAST_PORT_NS = range(4)
N_USED = 4
"""LAST_PORT_NS is not a count but the time of the latest port status update."""
