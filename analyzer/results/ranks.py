"""Ranks of a job: what passes between each two of them, and who waits for whom."""

from __future__ import annotations

from typing import Annotated

from .base import Quantiles, Record, about


class RankPair(Record, frozen=True, kw_only=True):
    """Data from one rank to another, over all queue pairs between them."""

    comm: str
    sender: int
    receiver: int
    flows: Annotated[int, about("that carry data")]
    packets: int
    wire_bytes: int
    retransmitted_packets: Annotated[int | None, about("null: unknown for a flow")]
    recovered_packets: Annotated[
        int | None, about("lost before the tap and retransmitted; null: unknown for a flow")
    ]
    lost_between_taps: Annotated[
        int, about("seen at a tap and lost before the next; 0 with one tap")
    ] = 0
    missing_packets: Annotated[int | None, about("never seen; null: unknown for a flow")]
    messages: Annotated[int | None, about("null: unknown for a flow")]
    completion_p50_ns: Annotated[
        float | None,
        about("median completion time of messages, of the slowest flow; null: no ACKs"),
    ]
    completion_max_ns: Annotated[
        float | None, about("longest completion time of a message; null: no ACKs")
    ]


class RankTiming(Record, frozen=True, kw_only=True):
    """When one rank arrives in the collectives of a communicator, and what it waits for."""

    rank: int
    last: Annotated[int, about("collectives in which it arrives last")]
    late_ns: Annotated[Quantiles, about("from the first message of any rank to its first message")]
    others_wait_ns: Annotated[
        int, about("sum over those where it is last: time since the previous arrival")
    ]
    ring_steps: Annotated[
        int | None, about("sends that follow a receive; null: not a ring, see `why`")
    ]
    waits_ns: Annotated[int | None, about("ring: time without a message to pass on, in all steps")]
    holds_ns: Annotated[int | None, about("ring: time from having a message to passing it on")]


class CommunicatorTiming(Record, frozen=True, kw_only=True):
    """The order in which the ranks of a communicator arrive in its collectives."""

    comm: str
    collectives: Annotated[
        int,
        about(
            "until a silence after which all data flows have carried the same number of messages"
        ),
    ]
    partial: Annotated[int, about("those with unequal numbers: not counted")]
    ranks: Annotated[list[RankTiming], about("longest `others_wait_ns` first")]
    slowest: Annotated[
        int | None, about("rank that arrives last in more than half of at least 3 collectives")
    ]
    waits_least: Annotated[int | None, about("ring: the rank that waits least for its predecessor")]
    why: Annotated[list[str], about("why a value above is unknown")]


class Ranks(Record, frozen=True, kw_only=True):
    """Ranks of the job in this capture, from its logs."""

    pairs: Annotated[list[RankPair], about("worst first: losses, then bytes")]
    timing: list[CommunicatorTiming]
