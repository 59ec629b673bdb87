"""Results of the conformance checks: `conformance` of an analysis, and `rocescope check`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Quantiles, Record


class Violation(Record, frozen=True):
    """One case in which a rule was broken."""

    rule: Annotated[str, Meta(description="id of the rule")]
    text: str
    source: Annotated[str, Meta(description="where the rule is written")]
    certainty: Annotated[str, Meta(description="how surely the rule is stated there")]
    flow: Annotated[int | None, Meta(description="id of the flow whose sender or peer broke it")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    time_ns: int
    frame_number: Annotated[int, Meta(description="of the packet that breaks it, at its tap")]
    related_frame: Annotated[
        int | None, Meta(description="frame at the same tap that it contradicts")
    ]
    psn: int | None
    expected_psn: int | None


class RuleResult(Record, frozen=True):
    """What became of one rule, over all connections and taps."""

    id: str
    title: str
    side: Annotated[str, Meta(description="requester or responder: whose behaviour it is about")]
    source: str
    certainty: str
    needs: Annotated[str, Meta(description="what a capture must show for a verdict")]
    status: Annotated[str, Meta(description="passed, violated or not_judged")]
    judged: Annotated[int, Meta(description="cases with a verdict")]
    violations: int
    undecided: Annotated[int, Meta(description="cases that this capture cannot judge")]
    reasons: Annotated[dict[str, int], Meta(description="why cases are undecided")]


class RecoveryLatency(Record, frozen=True):
    """Times of loss recovery as seen at the taps; None where no case could be timed."""

    nak_generation_ns: Annotated[
        Quantiles | None, Meta(description="first packet behind a gap to the NAK for it")
    ]
    nak_response_ns: Annotated[
        Quantiles | None, Meta(description="NAK to the PSN that it names, sent again")
    ]
    retransmission_ns: Annotated[
        Quantiles | None,
        Meta(description="a packet to its retransmission; only at taps before the loss"),
    ]
    next_delivered_ns: Annotated[
        Quantiles | None,
        Meta(description="a packet that is sent again to the packet after it, both sent first"),
    ]


class ConformanceView(Record, frozen=True):
    """One direction of one connection, as one tap saw it."""

    flow: Annotated[int | None, Meta(description="id of the flow with the requests")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    position: Annotated[
        str,
        Meta(
            description="where losses show the tap to be: before_loss (near the sender),"
            " behind_loss (near the receiver), between_losses, or no_loss"
        ),
    ]
    requests: int
    answers: int
    resent_packets: int
    rewinds: Annotated[
        dict[str, int], Meta(description="by trigger: nak, rnr, timeout, read, unknown")
    ]
    violations: int
    undecided: int
    latency: RecoveryLatency


class CnpScope(Record, frozen=True):
    """CNPs counted in one pacing scope."""

    scope: Annotated[str, Meta(description="port, ip_pair, destination or queue_pair")]
    notifiers: Annotated[int, Meta(description="ports, pairs ... with marks or CNPs")]
    expected_cnps: Annotated[int, Meta(description="that the marks should have caused")]
    difference: Annotated[int, Meta(description="sum of |expected - seen| over the notifiers")]
    too_close: Annotated[int, Meta(description="CNPs sooner than the minimum interval")]
    least_spacing_ns: int | None


class CnpConformance(Record, frozen=True):
    """CE marks and the CNPs they caused, at one tap."""

    tap: str
    min_interval_ns: int
    ecn_marked_packets: int
    cnps: int
    scopes: list[CnpScope]
    explained_by: Annotated[
        list[str], Meta(description="scopes that explain the CNPs best; empty: none can be told")
    ]
    text: str


class CounterCheck(Record, frozen=True):
    """One counter of a host beside what the capture holds of the same."""

    host: str
    tap: str
    counter: str
    driver: str
    grew_by: int
    captured: Annotated[int | None, Meta(description="None when no tap can tell")]
    agrees: bool | None
    meaning: str
    text: Annotated[str, Meta(description="why they may differ")]


class Conformance(Record, frozen=True):
    """Whether the queue pairs keep the rules, as far as the capture shows it."""

    conformant: Annotated[bool, Meta(description="no rule was seen to be broken")]
    rules: list[RuleResult]
    violations: list[Violation]
    violations_omitted: Annotated[
        int, Meta(description="more of the same kinds by the same flows, counted only")
    ]
    latency: RecoveryLatency
    cnp: list[CnpConformance]
    counters: list[CounterCheck]
    views: list[ConformanceView]
    notes: list[str]
