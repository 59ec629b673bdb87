"""The rules that are checked, their sources, and what can make a case undecidable.

Section numbers are meant as those of the InfiniBand Architecture Specification, volume 1. Of it
only annex A17 (RoCEv2) was read; the rest is from knowledge of the standard. Some sections are
named with the same subject by others: 9.7.5.1.2 by a maintainer of rxe (it says that any response
acknowledges all smaller PSNs), 9.7.5.2.2 "NAK codes" by one of mlx5, 9.7.5.2.8 with table 45 and
9.7.6.1.3 with C9-140 by Mellanox' headers, 9.9.2.4.2 in changes to rxe and hns (requests after an
error). 9.7.3.1, 9.7.4.1.2, 9.7.5.1.1, 9.7.5.1.4, 9.7.6.1.1 and 9.7.7.1 nobody was found to name.
Where another source was read that says the same it is named too: MindShare, "InfiniBand Network
Architecture" (2002).
"""

from __future__ import annotations

from typing import Final

from ....kernels.named import NamedTuple

REQUESTER, RESPONDER = "requester", "responder"

STANDARD = "from knowledge of the standard, text not checked"
NAMED = "others name the section for this, text not checked"
READ = "read in the text of the annex"
CONFIRMED = "says MindShare; section number of the standard not checked"
VENDOR = "vendor documentation; the standard leaves it open"


class Rule(NamedTuple):
    """One rule."""

    id: str
    title: str
    side: str
    """Whose behaviour it is about."""
    source: str
    certainty: str
    needs: str
    """What a capture must show for a verdict."""


RULES: Final = (
    Rule(
        "nak-once",
        "one NAK per lost packet: none again for a PSN that has not come since",
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
        "answers in the order in which they were sent",
    ),
    Rule(
        "ack-sent",
        "no answer names a PSN that was never sent",
        RESPONDER,
        "IBTA 9.7.5.1.1, 9.7.6.1.1",
        STANDARD,
        "all requests",
    ),
    Rule(
        "ack-request",
        "a request that asks for an ACK (AckReq) is answered",
        RESPONDER,
        "IBTA 9.7.5.1.2, 9.7.6.1.3 (lost acknowledge messages and timeouts)",
        NAMED,
        "both directions; for a missing answer a tap next to the receiver (--at-host)",
    ),
    Rule(
        "msn",
        "the MSN counts the messages that were completed",
        RESPONDER,
        "IBTA 9.7.7.1; MindShare ch. 17",
        CONFIRMED,
        "all requests",
    ),
    Rule(
        "rewind-start",
        "sending goes back to the PSN of the NAK, or to the first unacknowledged one",
        REQUESTER,
        "IBTA 9.7.6.1.1, 9.7.6.1.3",
        STANDARD,
        "both directions; later starts only where no packet was lost before the tap",
    ),
    Rule(
        "rewind-order",
        "what is sent again is sent in order, and nothing unacknowledged is left out",
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
        "after an RNR NAK the request waits as long as the NAK says",
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
        "READ responses come in order, and again only when asked for again",
        RESPONDER,
        "IBTA 9.7.5.1.4",
        STANDARD,
        "all requests, and no loss between the responder and the tap",
    ),
    Rule(
        "read-again",
        "a READ asked for again lies in the first one and ends where that ended",
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
        "a tap behind the switch that marks",
    ),
    Rule(
        "cnp-interval",
        "CNPs keep their minimum interval in at least one pacing scope",
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

# What a tap must not have seen for a verdict to stand, as evidence of its whole flow.
ANYWHERE = 0
IN_SENDING_ORDER = 1
"""Nothing of the flow was lost or reordered before the tap."""
ALL_SEEN = 2
"""No answer covered a PSN that the tap never saw."""
AT_RECEIVER = 8
"""The tap is next to the receiver of the requests, says its user, and shows no loss behind it."""
ALL_SENT = 7
"""The first two, and more was left out than losses before the tap can explain (see conclude.py)."""


class Kind(NamedTuple):
    """One way to break a rule."""

    rule: int
    needs: int
    text: str
    """`{psn}` and `{expected}` are PSNs, `{value}` a number."""


KINDS: Final = (
    Kind(NAK_ONCE, ANYWHERE, "NAK for PSN {psn} again, though it has not come since the first"),
    Kind(NAK_PSN, ALL_SEEN, "NAK for PSN {psn}, but {expected} is the first that did not arrive"),
    Kind(NAK_CAUSE, ALL_SEEN, "NAK for PSN {psn}, but no packet beyond it was sent"),
    Kind(ACK_ORDER, ANYWHERE, "ACK of PSN {psn} after PSN {expected} was acknowledged"),
    Kind(ACK_ORDER, ANYWHERE, "NAK for PSN {psn} after PSN {expected} was acknowledged"),
    Kind(ACK_SENT, ALL_SEEN, "PSN {psn} answered before it was sent; {expected} was to come next"),
    Kind(
        ACK_REQUEST,
        AT_RECEIVER,
        "PSN {psn} asked for an ACK; none came in {value} ns, until it was sent again",
    ),
    Kind(MSN, ALL_SEEN, "MSN {value} with PSN {psn}, {expected_value} messages had ended"),
    Kind(
        REWIND_START, IN_SENDING_ORDER, "sent again from PSN {psn} after {expected}, as a NAK asked"
    ),
    Kind(REWIND_START, ALL_SENT, "sent again from PSN {psn}, but {expected} was lost"),
    Kind(REWIND_ORDER, ALL_SENT, "PSN {psn} follows, but {expected} was to be sent again first"),
    Kind(FATAL_NAK, ANYWHERE, "PSN {psn} sent {value} ns after the NAK that ended the connection"),
    Kind(RNR_WAIT, ANYWHERE, "PSN {psn} sent again after {value} ns, RNR timer {expected_value}"),
    Kind(READ_RANGE, ALL_SEEN, "READ response with PSN {psn}, which no READ asked for"),
    Kind(READ_RANGE, ALL_SEEN, "READ response with PSN {psn} is first or last at a wrong place"),
    Kind(READ_ORDER, ALL_SEEN, "READ response with PSN {psn} again, nobody asked for it again"),
    Kind(READ_AGAIN, ALL_SEEN, "READ again from PSN {psn} does not end before PSN {expected}"),
    Kind(CNP_CAUSE, ANYWHERE, "CNP, but no packet of this queue pair was CE-marked before"),
    Kind(CNP_INTERVAL, ANYWHERE, "CNP {value} ns after the one before, in every pacing scope"),
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
    "the answers may have overtaken each other on their way",
    "the answer may not have reached the sender yet",
    "the path MTU is unknown",
    "lost behind the tap or not answered, both look the same",
    "no CE mark at this tap: it may lie before the switch that marks",
    "more READs were outstanding than are kept",
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
