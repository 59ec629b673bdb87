"""Results of the conformance checks: `conformance` of an analysis, and `rocescope check`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Quantiles, Record


class Violation(Record, frozen=True):
    """One violation of a rule."""

    rule: Annotated[str, Meta(description="id of the rule")]
    text: str
    source: Annotated[str, Meta(description="document and section of the rule")]
    certainty: Annotated[str, Meta(description="how reliably the source states the rule")]
    flow: Annotated[
        int | None, Meta(description="id of the flow whose sender or peer violated the rule")
    ]
    src: str
    dst: str
    dest_qp: int
    tap: str
    time_ns: int
    frame_number: Annotated[int, Meta(description="frame of the violating packet, at its tap")]
    related_frame: Annotated[
        int | None, Meta(description="earlier frame at the same tap that the packet contradicts")
    ]
    psn: int | None
    expected_psn: int | None


class RuleResult(Record, frozen=True):
    """Result of one rule, over all connections and taps."""

    id: str
    title: str
    side: Annotated[
        str, Meta(description="the side that the rule applies to: requester or responder")
    ]
    source: str
    certainty: str
    needs: Annotated[str, Meta(description="what the capture must contain for a verdict")]
    status: Annotated[str, Meta(description="passed, violated or not_judged")]
    judged: Annotated[int, Meta(description="cases with a verdict")]
    violations: int
    undecided: Annotated[int, Meta(description="cases without a verdict")]
    reasons: Annotated[dict[str, int], Meta(description="undecided cases by reason")]


class RecoveryLatency(Record, frozen=True):
    """Times of loss recovery as seen at the taps; null without a timed case."""

    nak_generation_ns: Annotated[
        Quantiles | None, Meta(description="first packet after a gap to the NAK for the gap")
    ]
    nak_response_ns: Annotated[
        Quantiles | None, Meta(description="NAK to the retransmission of the PSN it names")
    ]
    retransmission_ns: Annotated[
        Quantiles | None,
        Meta(description="a packet to its retransmission; only at taps before the loss"),
    ]
    next_delivered_ns: Annotated[
        Quantiles | None,
        Meta(description="first transmission of a lost packet to that of the next packet"),
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
            description="where the tap is, judged by losses: before_loss (near the sender),"
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
    notifiers: Annotated[
        int, Meta(description="ports, pairs, destinations or queue pairs with CE marks or CNPs")
    ]
    expected_cnps: Annotated[int, Meta(description="CNPs that the CE marks should have caused")]
    difference: Annotated[int, Meta(description="sum of |expected - seen| over the notifiers")]
    too_close: Annotated[int, Meta(description="CNPs earlier than the minimum interval")]
    least_spacing_ns: int | None


class CnpConformance(Record, frozen=True):
    """CE marks and the CNPs they caused, at one tap."""

    tap: str
    min_interval_ns: int
    ecn_marked_packets: int
    cnps: int
    scopes: list[CnpScope]
    explained_by: Annotated[
        list[str], Meta(description="scopes that explain the CNPs best; empty when unknown")
    ]
    text: str


class CounterCheck(Record, frozen=True):
    """One counter of a host compared with the capture."""

    host: str
    tap: str
    counter: str
    driver: str
    grew_by: int
    captured: Annotated[int | None, Meta(description="null when no tap can see it")]
    agrees: bool | None
    meaning: str
    text: Annotated[str, Meta(description="possible reasons for a difference")]


class Conformance(Record, frozen=True):
    """Whether the queue pairs follow the rules, as far as the capture shows."""

    conformant: Annotated[bool, Meta(description="no violation was seen")]
    rules: list[RuleResult]
    violations: list[Violation]
    violations_omitted: Annotated[
        int,
        Meta(description="further violations of the same kinds by the same flows: only counted"),
    ]
    latency: RecoveryLatency
    cnp: list[CnpConformance]
    counters: list[CounterCheck]
    views: list[ConformanceView]
    notes: list[str]
