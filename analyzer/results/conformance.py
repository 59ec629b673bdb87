"""Results of the conformance checks: `conformance` of an analysis, and `rocescope check`."""

from __future__ import annotations

from typing import Annotated

from .base import Quantiles, Record, about


class Violation(Record, frozen=True):
    """One violation of a rule."""

    rule: Annotated[str, about("id of the rule")]
    text: str
    source: Annotated[str, about("document and section of the rule")]
    certainty: Annotated[str, about("how reliably the source states the rule")]
    flow: Annotated[int | None, about("id of the flow whose sender or peer violated the rule")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    time_ns: int
    frame_number: Annotated[int, about("frame of the violating packet, at its tap")]
    related_frame: Annotated[
        int | None, about("earlier frame at the same tap that the packet contradicts")
    ]
    psn: int | None
    expected_psn: int | None


class RuleResult(Record, frozen=True):
    """Result of one rule, over all connections and taps."""

    id: str
    title: str
    side: Annotated[str, about("the side that the rule applies to: requester or responder")]
    source: str
    certainty: str
    needs: Annotated[str, about("what the capture must contain for a verdict")]
    status: Annotated[str, about("passed, violated or not_judged")]
    judged: Annotated[int, about("cases with a verdict")]
    violations: int
    undecided: Annotated[int, about("cases without a verdict")]
    reasons: Annotated[dict[str, int], about("undecided cases by reason")]


class RecoveryLatency(Record, frozen=True):
    """Times of loss recovery as seen at the taps; null without a timed case."""

    nak_generation_ns: Annotated[
        Quantiles | None, about("first packet after a gap to the NAK for the gap")
    ]
    nak_response_ns: Annotated[
        Quantiles | None, about("NAK to the retransmission of the PSN it names")
    ]
    retransmission_ns: Annotated[
        Quantiles | None, about("a packet to its retransmission; only at taps before the loss")
    ]
    next_delivered_ns: Annotated[
        Quantiles | None, about("first transmission of a lost packet to that of the next packet")
    ]


class ConformanceView(Record, frozen=True):
    """One direction of one connection, as one tap saw it."""

    flow: Annotated[int | None, about("id of the flow with the requests")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    position: Annotated[
        str,
        about(
            "where the tap is, judged by losses: before_loss (near the sender),"
            " behind_loss (near the receiver), between_losses, or no_loss"
        ),
    ]
    requests: int
    answers: int
    resent_packets: int
    rewinds: Annotated[dict[str, int], about("by trigger: nak, rnr, timeout, read, unknown")]
    violations: int
    undecided: int
    latency: RecoveryLatency


class CnpScope(Record, frozen=True):
    """CNPs counted in one pacing scope."""

    scope: Annotated[str, about("port, ip_pair, destination or queue_pair")]
    notifiers: Annotated[
        int, about("ports, pairs, destinations or queue pairs with CE marks or CNPs")
    ]
    expected_cnps: Annotated[int, about("CNPs that the CE marks should have caused")]
    difference: Annotated[int, about("sum of |expected - seen| over the notifiers")]
    too_close: Annotated[int, about("CNPs earlier than the minimum interval")]
    least_spacing_ns: int | None


class CnpConformance(Record, frozen=True):
    """CE marks and the CNPs they caused, at one tap."""

    tap: str
    min_interval_ns: int
    ecn_marked_packets: int
    cnps: int
    scopes: list[CnpScope]
    explained_by: Annotated[
        list[str], about("scopes that explain the CNPs best; empty when unknown")
    ]
    text: str


class CounterCheck(Record, frozen=True):
    """One counter of a host compared with the capture."""

    host: str
    tap: str
    counter: str
    driver: str
    grew_by: int
    captured: Annotated[int | None, about("null when no tap can see it")]
    agrees: bool | None
    meaning: str
    text: Annotated[str, about("possible reasons for a difference")]


class Conformance(Record, frozen=True):
    """Whether the queue pairs follow the rules, as far as the capture shows."""

    conformant: Annotated[bool, about("no violation was seen")]
    rules: list[RuleResult]
    violations: list[Violation]
    violations_omitted: Annotated[
        int, about("further violations of the same kinds by the same flows: only counted")
    ]
    latency: RecoveryLatency
    cnp: list[CnpConformance]
    counters: list[CounterCheck]
    views: list[ConformanceView]
    notes: list[str]
