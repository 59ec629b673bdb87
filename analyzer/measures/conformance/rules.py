"""The rules, their sources, and the reasons that leave a case undecided.

Section numbers refer to the InfiniBand Architecture Specification, volume 1. Only annex A17
(RoCEv2) was read; the rest is from knowledge of the standard. Other sources cite some sections for
the same subject: a maintainer of rxe 9.7.5.1.2 (any response acknowledges all smaller PSNs), a
maintainer of mlx5 9.7.5.2.2 "NAK codes", Mellanox headers 9.7.5.2.8 with table 45 and 9.7.6.1.3
with C9-140, changes to rxe and hns 9.9.2.4.2 (requests after an error). No citation was found for
9.7.3.1, 9.7.4.1.2, 9.7.5.1.1, 9.7.5.1.4, 9.7.6.1.1 and 9.7.7.1. MindShare, "InfiniBand Network
Architecture" (2002), is named where it states the same rule.
"""

from __future__ import annotations

from typing import Final

from ....kernels.kernel import NamedTuple

REQUESTER, RESPONDER = "requester", "responder"

STANDARD = "from knowledge of the standard, text not checked"
NAMED = "other sources cite this section, text not checked"
READ = "read in the text of the annex"
CONFIRMED = "stated by MindShare; section number of the standard not checked"
VENDOR = "vendor documentation; the standard leaves it open"


class Rule(NamedTuple):
    """One rule."""

    id: str
    title: str
    side: str
    """The side that the rule applies to."""
    source: str
    certainty: str
    needs: str
    """What the capture must contain for a verdict."""


RULES: Final = (
    Rule(
        "nak-once",
        "one NAK per lost packet: no second NAK for a PSN that is still missing",
        RESPONDER,
        "IBTA 9.7.5.2.2 (NAK codes); MindShare ch. 17",
        CONFIRMED,
        "both directions of the connection",
    ),
    Rule(
        "nak-psn",
        "a NAK names the first PSN that did not arrive",
        RESPONDER,
        "IBTA 9.7.5.1.1, 9.7.5.2.2 (NAK codes)",
        NAMED,
        "no loss between the tap and the receiver",
    ),
    Rule(
        "nak-cause",
        "a NAK for a lost packet follows a packet with a larger PSN",
        RESPONDER,
        "IBTA 9.7.4.1.2; MindShare ch. 17",
        CONFIRMED,
        "all requests",
    ),
    Rule(
        "ack-order",
        "acknowledged PSNs never go back",
        RESPONDER,
        "IBTA 9.7.5.1.2 (coalesced acknowledge messages)",
        NAMED,
        "responses in the order in which they were sent",
    ),
    Rule(
        "ack-sent",
        "no response names a PSN that was never sent",
        RESPONDER,
        "IBTA 9.7.5.1.1, 9.7.6.1.1",
        STANDARD,
        "all requests",
    ),
    Rule(
        "ack-request",
        "a request with AckReq is acknowledged",
        RESPONDER,
        "IBTA 9.7.5.1.2, 9.7.6.1.3 (lost acknowledge messages and timeouts)",
        NAMED,
        "both directions; for a missing ACK a tap next to the receiver (--at-host)",
    ),
    Rule(
        "msn",
        "the MSN counts the completed messages",
        RESPONDER,
        "IBTA 9.7.7.1; MindShare ch. 17",
        CONFIRMED,
        "all requests",
    ),
    Rule(
        "rewind-start",
        "retransmission starts at the PSN of the NAK or at the first unacknowledged PSN",
        REQUESTER,
        "IBTA 9.7.6.1.1, 9.7.6.1.3",
        STANDARD,
        "both directions; later starts only where no packet was lost before the tap",
    ),
    Rule(
        "rewind-order",
        "packets are retransmitted in order, and no unacknowledged packet is skipped",
        REQUESTER,
        "IBTA 9.7.3.1, 9.7.6.1.1",
        STANDARD,
        "no loss and no reordering before the tap",
    ),
    Rule(
        "fatal-nak",
        "no request after a NAK that ends the connection",
        REQUESTER,
        "IBTA 9.9.2.4.2 (class B error), 10.3.1",
        NAMED,
        "both directions",
    ),
    Rule(
        "rnr-wait",
        "after an RNR NAK the request waits for the time that the NAK states",
        REQUESTER,
        "IBTA 9.7.5.2.8, table 45 (RNR timer values)",
        NAMED,
        "both directions",
    ),
    Rule(
        "read-range",
        "READ responses carry the PSNs that their request reserved",
        RESPONDER,
        "IBTA 9.7.5.1.1; MindShare ch. 12",
        CONFIRMED,
        "the request, and the path MTU",
    ),
    Rule(
        "read-order",
        "READ responses arrive in order and are repeated only on a repeated READ request",
        RESPONDER,
        "IBTA 9.7.5.1.4",
        STANDARD,
        "all requests, and no loss between the responder and the tap",
    ),
    Rule(
        "read-again",
        "a repeated READ request lies within the original and has the same end",
        REQUESTER,
        "IBTA 9.7.6.1.1 (implied NAK)",
        STANDARD,
        "the first request, and the path MTU",
    ),
    Rule(
        "cnp-cause",
        "a CNP follows a CE-marked packet",
        RESPONDER,
        "IBTA annex A17.9.3 (RoCEv2 congestion management), CA17-44",
        READ,
        "a tap after the switch that marks",
    ),
    Rule(
        "cnp-interval",
        "CNPs keep the minimum interval in at least one pacing scope",
        RESPONDER,
        "NVIDIA: min_time_between_cnps (DCQCN notification point)",
        VENDOR,
        "at least two CNPs",
    ),
)
(
    NAK_ONCE,
    NAK_PSN,
    NAK_CAUSE,
    ACK_ORDER,
    ACK_SENT,
    ACK_REQUEST,
    MSN,
    REWIND_START,
    REWIND_ORDER,
    FATAL_NAK,
    RNR_WAIT,
    READ_RANGE,
    READ_ORDER,
    READ_AGAIN,
    CNP_CAUSE,
    CNP_INTERVAL,
) = range(len(RULES))

# Conditions on the whole flow under which a verdict stands.
ANYWHERE = 0
IN_SENDING_ORDER = 1
"""Nothing of the flow was lost or reordered before the tap."""
ALL_SEEN = 2
"""No response covered a PSN that the tap never saw."""
AT_RECEIVER = 8
"""The user declares the tap to be next to the receiver, and no loss after it is seen."""
ALL_SENT = 7
"""The first two, and losses before the tap cannot explain all skipped packets: see
summary/conformance.py."""


class Kind(NamedTuple):
    """One way to break a rule."""

    rule: int
    needs: int
    text: str
    """`{psn}` and `{expected}` are PSNs, `{value}` a number."""


KINDS: Final = (
    Kind(
        NAK_ONCE, ANYWHERE, "repeated NAK for PSN {psn}, which is still missing since the first NAK"
    ),
    Kind(NAK_PSN, ALL_SEEN, "NAK for PSN {psn}, but the first missing PSN is {expected}"),
    Kind(NAK_CAUSE, ALL_SEEN, "NAK for PSN {psn}, but no later packet was sent"),
    Kind(ACK_ORDER, ANYWHERE, "ACK of PSN {psn} after PSN {expected} was acknowledged"),
    Kind(ACK_ORDER, ANYWHERE, "NAK for PSN {psn} after PSN {expected} was acknowledged"),
    Kind(
        ACK_SENT, ALL_SEEN, "response for PSN {psn} before it was sent; the next PSN is {expected}"
    ),
    Kind(
        ACK_REQUEST,
        AT_RECEIVER,
        "PSN {psn} with AckReq got no ACK in {value} ns until its retransmission",
    ),
    Kind(MSN, ALL_SEEN, "MSN {value} with PSN {psn}, but {expected_value} messages were complete"),
    Kind(
        REWIND_START,
        IN_SENDING_ORDER,
        "retransmits from PSN {psn}, though a NAK acknowledged all PSNs before {expected}",
    ),
    Kind(REWIND_START, ALL_SENT, "retransmits from PSN {psn}, but {expected} was lost"),
    Kind(REWIND_ORDER, ALL_SENT, "PSN {psn} sent, but {expected} must be retransmitted first"),
    Kind(FATAL_NAK, ANYWHERE, "PSN {psn} sent {value} ns after the NAK that ended the connection"),
    Kind(
        RNR_WAIT, ANYWHERE, "PSN {psn} retransmitted after {value} ns, RNR timer {expected_value}"
    ),
    Kind(READ_RANGE, ALL_SEEN, "READ response with PSN {psn}, which no READ requested"),
    Kind(
        READ_RANGE,
        ALL_SEEN,
        "READ response with PSN {psn} has a First or Last opcode at the wrong position",
    ),
    Kind(READ_ORDER, ALL_SEEN, "repeated READ response with PSN {psn} without a repeated request"),
    Kind(READ_AGAIN, ALL_SEEN, "repeated READ from PSN {psn} does not end before PSN {expected}"),
    Kind(CNP_CAUSE, ANYWHERE, "CNP, but no packet of this queue pair was CE-marked before"),
    Kind(CNP_INTERVAL, ANYWHERE, "CNP {value} ns after the previous one, in every pacing scope"),
)
(
    NAK_REPEATED,
    NAK_NOT_FIRST,
    NAK_UNCAUSED,
    ACK_BACK,
    NAK_BACK,
    ANSWER_UNSENT,
    NO_ANSWER,
    MSN_WRONG,
    REWIND_BELOW,
    REWIND_ABOVE,
    RESEND_SKIPS,
    AFTER_FATAL,
    RNR_EARLY,
    READ_OUTSIDE,
    READ_MISPLACED,
    READ_UNASKED,
    REREAD_ENDS,
    CNP_UNCAUSED,
    CNP_CLOSE,
) = range(len(KINDS))

REASONS: Final = (
    "packets were lost between the tap and the receiver",
    "packets may have been lost or reordered before the tap",
    "the tap does not see all packets of the connection",
    "the responses may have overtaken each other",
    "the response may not have reached the sender yet",
    "the path MTU is unknown",
    "lost after the tap or not acknowledged: the capture cannot distinguish them",
    "no CE mark at this tap: the tap may be before the switch that marks",
    "more READs were outstanding than are tracked",
)
(
    LOSS_BEHIND,
    LOSS_BEFORE,
    UNSEEN,
    OVERTAKEN,
    IN_FLIGHT,
    NO_PATH_MTU,
    UNANSWERED,
    NO_MARKS,
    TOO_MANY_READS,
) = range(len(REASONS))
