"""Hops between taps, and ranks of the job, as results."""

from __future__ import annotations

from typing import Annotated

from .base import Quantiles, Record, about


class LostAt(Record, frozen=True):
    """Packets of one flow that were lost on one hop."""

    flow: Annotated[int, about("id of the flow")]
    packets: int
    of_packets: Annotated[int, about("packets of the flow that entered the hop")]
    first_ns: Annotated[int, about("when the first of them was last seen")]
    last_ns: int


class Hop(Record, frozen=True, kw_only=True):
    """From one tap to the next in one direction: one device, or one link.

    The order of taps follows from the TTL or hop limit of each packet, then from its times.
    """

    id: int
    from_tap: str
    to_tap: Annotated[str | None, about("null: the next tap of the lost packets is unknown")]
    device: Annotated[str | None, about("the device between both taps, if their names show it")]
    expected_by: Annotated[
        str | None,
        about(
            "how the next tap of the lost packets is known: flow (other packets of the"
            " flow), destination (packets to the same destination), host (the host's own packets"
            " pass there), partner (a parallel tap), fabric (the links of the fabric file);"
            " null without lost packets"
        ),
    ]
    flows: int
    packets: Annotated[int, about("entered the hop: passed or lost")]
    wire_bytes: int
    passed_packets: int
    lost_packets: Annotated[int, about("never seen after from_tap")]
    lost_percent: float
    lost_by_flow: Annotated[list[LostAt], about("largest first, at most 1,000")]
    lost_frames: Annotated[
        list[int], about("numbers of lost packets in the capture of from_tap, the first 1,000")
    ] = []
    first_lost_ns: int | None
    last_lost_ns: int | None
    ce_marked_packets: Annotated[int, about("not CE at from_tap, CE at to_tap")]
    reordered_packets: Annotated[
        int, about("in order at from_tap, late at to_tap: overtaken on this hop")
    ]
    overtaken_by: Annotated[
        Quantiles | None,
        about(
            "packets with higher PSNs of its flow that reach to_tap before a reordered"
            " packet; null without one"
        ),
    ] = None
    duplicate_packets: Annotated[int, about("more copies at to_tap than at from_tap")]
    trimmed_packets: Annotated[int, about("less payload at to_tap than at from_tap")]
    dscp_changed_packets: int
    hop_limit_drop: Annotated[int | None, about("routers between both taps; null when it varies")]
    delay_ns: Annotated[
        Quantiles | None,
        about("time from tap to tap, by the clocks of the captures; may be negative"),
    ]
    queueing_ns: Annotated[Quantiles | None, about("delay above the smallest delay")]


class CaptureLoss(Record, frozen=True):
    """Packets that a tap missed: seen before and after it."""

    tap: str
    packets: int
    of_packets: Annotated[int, about("packets that passed the tap")]
    first_ns: int
    last_ns: int
    flows: Annotated[list[int], about("ids of the flows, at most 1,000")]


class TapClock(Record, frozen=True):
    """The clock of a tap, relative to another tap."""

    tap: str
    relative_to: str
    offset_ns: Annotated[
        float, about("half the difference of the smallest delays of both directions")
    ]
    uncertainty_ns: Annotated[float, about("half their sum: the offset is within this")]
    drift_ppm: float | None
    steps: Annotated[int, about("times the offset jumped")]
    first_step_ns: Annotated[
        int | None, about("start of the first window after a jump; null: no jump")
    ] = None
    last_step_ns: Annotated[int | None, about("the same for the last jump")] = None


# Ranks of a job: what passes between each two of them, and who waits for whom.


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
