"""State of the conformance checks at one tap: per flow, as requester of its connection."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Int, NamedTuple, Record, RecordArray, inlined, subkernel
from ...statistics.histogram import HistogramPool, Histograms
from ...statistics.per_flow import PerFlow, Pool
from ...statistics.per_flow import Rows as FlowRows
from .rules import KINDS, REASONS, RULES

GAPS = 4
"""Gaps and NAKs remembered per flow."""

REQUESTER = np.dtype(
    [
        ("started", "u1"),
        ("acked", "u1"),  # a response was seen
        ("in_gap", "u1"),  # a packet after `arrived` was seen
        ("nak_open", "u1"),  # NAKed, and the PSN is still missing
        ("resending", "u1"),
        ("fatal", "u1"),
        ("rnr_open", "u1"),
        ("refused", "u1"),  # `rnr_psn` arrived, but the receiver did not accept it
        ("loose", "u1"),  # the last request is a READ of unknown length: the next PSN is unknown
        ("msn_known", "u1"),
        ("early_answer", "u1"),  # a response named a PSN that was not sent yet
        ("doubtful_nak", "u1"),  # a NAK named a PSN after the first missing one
        ("doubtful_unseen", "i8"),  # part of `unseen` due to this NAK alone
        ("path_mtu", "u2"),
        ("first", "u4"),  # first PSN seen
        ("next", "u4"),  # PSN after the largest PSN sent
        ("arrived", "u4"),  # first PSN that a go-back-N receiver at the tap would still expect
        ("unacked", "u4"),  # first unacknowledged PSN
        ("heard_known", "u1"),
        ("heard", "u4"),  # first PSN without proof that the sender received its response
        ("passed", "u4"),  # first PSN that never passed the tap in order
        ("ack_high", "u4"),  # first PSN not covered by ACKs and NAKs, ignoring READ responses
        ("ack_frame", "i8"),
        ("ack_time", "i8"),
        ("answered", "u1"),  # `ack_high` is valid
        ("answer_id", "u2"),  # IPv4 identification of the latest ACK or NAK
        # the latest gaps, a ring: first missing PSN, and the time of the packet after it
        ("gap_next", "u1"),
        ("gap_known", "u1", (GAPS,)),
        ("gap_psn", "u4", (GAPS,)),
        ("gap_time", "i8", (GAPS,)),
        # ring of the latest NAKs without a reaction of the sender
        ("nak_next", "u1"),
        ("nak_waits", "u1", (GAPS,)),
        ("nak_waits_psn", "u4", (GAPS,)),
        ("nak_waits_time", "i8", (GAPS,)),
        ("nak_psn", "u4"),  # of the latest NAK
        ("nak_frame", "i8"),
        ("resend_next", "u4"),
        ("rewind_frame", "i8"),  # PSN of the latest rewind to a NAK
        ("request_time", "i8"),  # of the latest request
        ("fatal_time", "i8"),
        ("fatal_frame", "i8"),
        ("rnr_psn", "u4"),
        ("rnr_time", "i8"),
        ("rnr_frame", "i8"),
        ("rnr_wait", "i8"),
        ("msn", "u4"),  # at the latest response to all requests, with
        ("msn_ended", "i8"),  # this number of completed messages
        ("ended", "i8"),
        ("asked", "i8"),  # requests with AckReq that are not acknowledged yet
        ("asked_psn", "u4"),  # the latest of them
        # the request watched until its ACK, and the latest; see go_back_n.py
        ("ask_open", "u1"),
        ("ask_psn", "u4"),
        ("ask_time", "i8"),
        ("ask_frame", "i8"),
        ("ask_again_frame", "i8"),  # frame of its retransmission without an ACK, 0 without one
        ("ask_waited", "i8"),
        ("ask_last_psn", "u4"),
        ("ask_last_time", "i8"),
        ("ask_last_frame", "i8"),
        ("early_psn", "u4"),
        ("early_next", "u4"),
        ("early_time", "i8"),
        ("early_frame", "i8"),
        ("doubtful_missing", "u4"),
        ("doubtful_psn", "u4"),
        ("doubtful_time", "i8"),
        ("doubtful_frame", "i8"),
        ("times", "i4"),  # 1 + its ring of send times
        ("reads", "i4"),  # 1 + its ring of READs
        ("reads_seen", "i8"),
        # evidence of the tap's position
        ("lost_before", "i8"),  # packets first seen as retransmissions
        ("reordered", "i8"),
        ("lost_behind", "i8"),  # NAKs for packets that the tap saw
        ("unseen", "i8"),  # acknowledged PSNs that the tap never saw in order
        ("requests", "i8"),
        ("answers", "i8"),
        ("rewinds", "i8", (5,)),  # by trigger
        ("resent", "i8"),
        ("naks", "i8"),
        ("rnr_naks", "i8"),
        ("fatal_naks", "i8"),
        ("duplicates", "i8"),  # requests that a go-back-N receiver at the tap has already received
        ("duplicates_before", "i8"),  # of them those before `first`
        ("beyond", "i8"),  # requests that it does not expect yet
    ],
    align=True,
)
BY_NAK, BY_RNR, BY_TIMEOUT, BY_READ, BY_UNKNOWN = range(5)
TRIGGER_NAMES = ("nak", "rnr", "timeout", "read", "unknown")

TIME = np.dtype([("psn", "u4"), ("time", "i8"), ("last", "i8")], align=True)
"""First and last transmission of a request."""
TIMES = 128
"""Latest requests with known send times, per flow (a power of two)."""

READ = np.dtype(
    [
        ("used", "u1"),
        ("again", "u1"),  # requested again
        ("psn", "u4"),
        ("dma_length", "u4"),
        ("next", "u4"),  # first response not yet seen in order
        ("again_from", "u4"),  # lowest PSN requested again
        ("latest_from", "u4"),  # first PSN of the latest repetition
    ],
    align=True,
)
READS = 128
"""READs and atomics tracked per flow (a power of two): the usual limit of outstanding ones."""

VIOLATION = np.dtype(
    [
        ("kind", "u1"),
        ("flow", "i4"),
        ("tap", "u2"),
        ("time", "i8"),
        ("frame", "i8"),
        ("related", "i8"),  # contradicted frame, 0 without one
        ("psn", "u4"),
        ("expected", "i8"),
        ("value", "i8"),
    ],
    align=True,
)
KEPT_PER_FLOW = 3
"""Violations stored per kind and flow; the rest are only counted."""
KEPT = 3000

(NAK_GENERATION, NAK_RESPONSE, RETRANSMISSION, NEXT_DELIVERED) = range(4)
LATENCIES = 4


class RequesterRecord(Record):
    """An element of `Book.states`."""


class ReadRecord(Record):
    """An element of `Book.reads`."""


class Book(NamedTuple):
    """The arrays that the kernels write; one row per flow."""

    states: RecordArray
    times: RecordArray
    """TIME[flows, TIMES]; rows are allocated on first use."""
    reads: RecordArray
    """READ[flows, READS]; rows are allocated on first use."""
    ok: NDArray[np.int64]
    """int64[flows, rules]: cases that follow the rule."""
    broken: NDArray[np.int64]
    """int64[flows, kinds]: cases that violate it."""
    undecided: NDArray[np.int32]
    """int32[flows, rules, reasons]: undecided cases."""
    violations: RecordArray
    used: NDArray[np.int64]
    """int64[5]: violations stored, rings of times, rings of READs, responses without a peer, and
    the reaction time of a sender (a setting)."""
    histograms: Histograms


USED_VIOLATIONS, USED_TIMES, USED_READS, UNPAIRED, REACTION_NS = range(5)


class BookKeeper(PerFlow[Book]):
    """Owns a `Book` and grows it; unused rings are never touched."""

    layout: ClassVar = {
        "states": FlowRows(),
        "times": Pool(("states", "times"), used=USED_TIMES),
        "reads": Pool(("states", "reads"), used=USED_READS),
        "ok": FlowRows(),
        "broken": FlowRows(),
        "undecided": FlowRows(),
    }
    fewest = 8
    """A hostile capture has thousands of taps with one flow each."""

    def __init__(self, reaction_ns: int) -> None:
        self.latencies = HistogramPool(LATENCIES)
        super().__init__(
            Book(
                np.zeros(0, REQUESTER),
                np.zeros((0, TIMES), TIME),
                np.zeros((0, READS), READ),
                np.zeros((0, len(RULES)), np.int64),
                np.zeros((0, len(KINDS)), np.int64),
                np.zeros((0, len(RULES), len(REASONS)), np.int32),
                np.zeros(KEPT, VIOLATION),
                np.zeros(5, np.int64),
                self.latencies.arrays,
            )
        )
        self.arrays.used[REACTION_NS] = reaction_ns

    def grow(self, flows: int) -> None:
        """Have room for this many flows."""
        super().grow(flows)
        if self.arrays.histograms is not self.latencies.arrays:
            self.arrays = self.arrays._replace(histograms=self.latencies.arrays)

    @property
    def book(self) -> Book:
        """The arrays."""
        return self.arrays


class SeenAt(NamedTuple):
    """Where and when a packet was captured."""

    tap: Int
    time: Int
    frame: Int


@inlined
def keeps(book: Book, f: Int, rule: Int) -> None:
    """Count a case that follows a rule."""
    book.ok[f, rule] += 1


@inlined
def leaves_open(book: Book, f: Int, rule: Int, reason: Int) -> None:
    """Count an undecided case of a rule."""
    book.undecided[f, rule, reason] += 1


@subkernel
def breaks(
    book: Book,
    f: Int,
    kind: Int,
    seen_at: SeenAt,
    related: Int,
    psn: Int,
    expected: Int,
    value: Int,
) -> None:
    """Count a violation of a rule; the first ones are stored with their details."""
    book.broken[f, kind] += 1
    at = book.used[USED_VIOLATIONS]
    if book.broken[f, kind] > KEPT_PER_FLOW or at >= KEPT:
        return
    book.used[USED_VIOLATIONS] += 1
    violation = book.violations[at]
    violation.kind = kind
    violation.flow = f
    violation.tap = seen_at.tap
    violation.time = seen_at.time
    violation.frame = seen_at.frame
    violation.related = related
    violation.psn = psn
    violation.expected = expected
    violation.value = value
