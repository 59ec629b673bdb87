"""The conformance records, from the states of all taps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..measures.conformance import rules as rule_list
from ..measures.conformance import state as st
from ..measures.conformance.cnp import PORT, SCOPE_NAMES, CnpPacing
from ..measures.conformance.counters import TapCounts, check_counters
from ..measures.conformance.options import hosts_at_taps
from ..measures.conformance.taps import Conformance as Checks
from ..measures.conformance.taps import TapConformance
from ..results import analysis as results
from ..results.analysis import CnpConformance, CnpScope
from ..results.captures import MirrorChecks
from ..statistics.histogram import HistogramPool
from ..track.tracker import FlowTracker
from ..wire.registry import Registry

# The pacing scope that explains the CNPs of a tap.


def cnp_conformance(pacing: CnpPacing, tap: str) -> CnpConformance:
    """CE marks and CNPs of one tap, in every scope."""
    scopes = [_scope(name, pacing.scopes[at]) for at, name in enumerate(SCOPE_NAMES)]
    marks = int(pacing.scopes[PORT]["marks"].sum())
    cnps = int(pacing.scopes[PORT]["cnps"].sum())
    explained: list[str] = []
    causes = int(pacing.scopes[PORT]["expected"].sum())
    if not marks and not cnps:
        text = "no CE marks and no CNPs"
    elif not cnps:
        text = (
            f"{marks:,} CE-marked packets and no CNPs: the receivers do not notify"
            " (optional), or the CNPs take another path"
        )
    elif not causes:
        text = f"{cnps:,} CNPs and no CE marks: the tap is before the switch that marks"
    else:
        least = min(scope.difference for scope in scopes)
        explained = [s.scope for s in scopes if s.difference == least and not s.too_close]
        best = " and ".join(explained).replace("_", " ")
        text = (
            f"paced per {best}: {least:,} CNPs differ from what the marks should cause"
            if explained
            else "CNPs are closer than the minimum interval in the best matching scope"
        )
    return CnpConformance(
        tap=tap,
        min_interval_ns=pacing.interval_ns,
        ecn_marked_packets=marks,
        cnps=cnps,
        scopes=scopes,
        explained_by=explained,
        text=text,
    )


def _scope(name: str, counts: np.ndarray) -> CnpScope:
    active = counts[(counts["expected"] > 0) | (counts["cnps"] > 0)]
    several = active[active["cnps"] > 1]
    return CnpScope(
        scope=name,
        notifiers=len(active),
        expected_cnps=int(active["expected"].sum()),
        difference=int(np.abs(active["expected"] - active["cnps"]).sum()),
        too_close=int(active["close"].sum()),
        least_spacing_ns=int(several["least"].min()) if len(several) else None,
    )


_NEEDS_ORDER = np.array([bool(kind.needs & rule_list.IN_SENDING_ORDER) for kind in rule_list.KINDS])
_NEEDS_ALL_SENT = np.array([kind.needs == rule_list.ALL_SENT for kind in rule_list.KINDS])
_NEEDS_RECEIVER = np.array([kind.needs == rule_list.AT_RECEIVER for kind in rule_list.KINDS])
_NEEDS_ALL = np.array([bool(kind.needs & rule_list.ALL_SEEN) for kind in rule_list.KINDS])
_RULE_OF = np.array([kind.rule for kind in rule_list.KINDS])
_PSN_KINDS = frozenset(i for i, kind in enumerate(rule_list.KINDS) if "{psn}" in kind.text)


class _View:
    """One tap with its verdicts, based on all its evidence.

    hosts: the endpoints next to the tap.
    """

    def __init__(
        self, checks: TapConformance, tracker: FlowTracker, tap: int, hosts: Sequence[int] = ()
    ) -> None:
        n = min(checks.keeper.known_flows, len(tracker))
        book = checks.keeper.book
        self.one, self.tap, self.n = checks, tap, n
        self.flows = tracker.flows
        self.opcodes = tracker.opcodes(np.arange(len(tracker)))
        self.book = book
        s = book.states[:n]
        behind = (s["lost_before"] > 0) | (s["reordered"] > 0)
        withdrawn = _NEEDS_ORDER[None, :] & behind[:, None]
        withdrawn |= _NEEDS_ALL_SENT[None, :] & ~_beyond_chance(s, book.broken[:n])[:, None]
        partial = _NEEDS_ALL[None, :] & (s["unseen"] > 0)[:, None]
        at_receiver = np.isin(self.flows["dst"][:n], hosts) & (s["lost_behind"] == 0)
        elsewhere = _NEEDS_RECEIVER[None, :] & ~at_receiver[:, None]
        self.stands = ~(withdrawn | partial | elsewhere)
        self.ok = book.ok[:n].copy()
        self.broken = np.where(self.stands, book.broken[:n], 0)
        self.undecided = book.undecided[:n].astype(np.int64)
        for mask, reason in (
            (withdrawn, rule_list.LOSS_BEFORE),
            (partial & ~withdrawn, rule_list.UNSEEN),
            (elsewhere, rule_list.UNANSWERED),
        ):
            for kind in np.flatnonzero(mask.any(axis=0)):
                cases = np.where(mask[:, kind], book.broken[:n, kind], 0)
                self.undecided[:, _RULE_OF[kind], reason] += cases
        self.undecided[:, rule_list.ACK_REQUEST, rule_list.UNANSWERED] += s["asked"]
        self.undecided[:, rule_list.ACK_SENT, rule_list.UNSEEN] += s["early_answer"]
        self.undecided[:, rule_list.NAK_PSN, rule_list.UNSEEN] += s["doubtful_nak"]
        self.ok[:, rule_list.FATAL_NAK] += (s["fatal"] > 0) & (
            book.broken[:n, rule_list.AFTER_FATAL] == 0
        )


_LOSSES_EXPECTED = 10
"""Mean number of losses with a negligible probability of zero losses (exp(-10))."""


def _beyond_chance(s: Any, broken: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Per flow: losses of retransmissions before the tap cannot explain the skipped packets.

    At the same loss rate, first transmissions would also have been lost before the tap and seen.
    """
    left_out = broken[:, _NEEDS_ALL_SENT].sum(axis=1)
    first_sent = s["requests"] - s["resent"]
    return np.asarray(left_out * first_sent >= _LOSSES_EXPECTED * s["resent"])


class Names:
    """Address texts, tap names and flow ids of the analysis."""

    def __init__(self, tracker: FlowTracker, registry: Registry) -> None:
        flows = tracker.flows
        taps = registry.taps
        self.addresses = registry.endpoints.texts()
        self.taps = [taps.interface_name(tap) for tap in range(len(taps))]
        columns = (flows[name].tolist() for name in ("src", "dst", "dest_qp"))
        self.ids = {key: index for index, key in enumerate(zip(*columns, strict=True))}

    def of(self, flow: Any) -> dict[str, Any]:
        """`flow`, `src`, `dst` and `dest_qp` of a FLOW record."""
        src, dst, qp = int(flow["src"]), int(flow["dst"]), int(flow["dest_qp"])
        return {
            "flow": self.ids.get((src, dst, qp)),
            "src": self.addresses[src],
            "dst": self.addresses[dst],
            "dest_qp": qp,
        }


def conformance(
    checks: Checks,
    tracker: FlowTracker,
    registry: Registry,
    mirror: MirrorChecks | None = None,
) -> results.Conformance:
    """The result of all taps; `tracker` is that of the analysis and gives the flow ids.

    mirror: packets that a mirroring switch corrupted on purpose.
    """
    names = Names(tracker, registry)
    seen = sorted(checks.taps.items())
    named = {tap: names.taps[tap] for tap, _ in seen}
    next_to = hosts_at_taps(checks.options.at_hosts, names.addresses, named)
    views = [_View(at_tap, at_tap.tracker or tracker, tap, next_to[tap]) for tap, at_tap in seen]
    pool = HistogramPool(st.LATENCIES)
    pool.grow(1)
    for view in views:
        pool.add_all(view.one.keeper.latencies)
    violations = sorted(
        (violation for view in views for violation in _violations(view, names)),
        key=lambda violation: violation.time_ns,
    )
    rules = _rules(views)
    broken = sum(rule.violations for rule in rules)
    return results.Conformance(
        conformant=broken == 0,
        rules=rules,
        violations=violations,
        violations_omitted=broken - len(violations),
        latency=_latency(pool, 0),
        cnp=[cnp_conformance(view.one.cnp, names.taps[view.tap]) for view in views],
        counters=_counters(checks, views, names, mirror),
        views=[record for view in views for record in _records(view, names)],
        notes=[*_notes(views, names), *_discards(checks)],
    )


def _counters(
    checks: Checks, views: Sequence[_View], names: Names, mirror: MirrorChecks | None
) -> list[results.CounterCheck]:
    counters = checks.options.counters
    if counters is None or not views:
        return []
    damaged = None
    if mirror is not None:
        damaged = sum(u.bit_errors for u in mirror.undelivered if u.dst == counters.host)
    taps = [
        TapCounts(names.taps[view.tap], view.flows, view.book.states[: view.n], view.opcodes)
        for view in views
    ]
    return check_counters(counters, taps, names.addresses, damaged)


def _discards(checks: Checks) -> list[str]:
    """Packets dropped by a host's adapter itself: no tap can see them."""
    counters = checks.options.counters
    grown = {} if counters is None else counters.growth
    return [
        f"{name} of {counters.host} grew by {n:,}: the adapter itself dropped packets"
        for name, n in sorted(grown.items())
        if counters is not None and n and "discard" in name
    ]


def _rules(views: Sequence[_View]) -> list[results.RuleResult]:
    ok = sum((v.ok.sum(axis=0) for v in views), np.zeros(len(rule_list.RULES), np.int64))
    kinds = sum((v.broken.sum(axis=0) for v in views), np.zeros(len(rule_list.KINDS), np.int64))
    reasons = sum(
        (v.undecided.sum(axis=0) for v in views),
        np.zeros((len(rule_list.RULES), len(rule_list.REASONS)), np.int64),
    )
    results_by_rule = []
    for index, rule in enumerate(rule_list.RULES):
        broken = int(kinds[_RULE_OF == index].sum())
        judged = int(ok[index]) + broken
        status = "violated" if broken else "passed" if judged else "not_judged"
        results_by_rule.append(
            results.RuleResult(
                *rule[:6],
                status=status,
                judged=judged,
                violations=broken,
                undecided=int(reasons[index].sum()),
                reasons={
                    rule_list.REASONS[r]: int(reasons[index, r])
                    for r in np.flatnonzero(reasons[index])
                },
            )
        )
    return results_by_rule


def _violations(view: _View, names: Names) -> Iterator[results.Violation]:
    for record in view.book.violations[: view.book.used[st.USED_VIOLATIONS]]:
        kind = int(record["kind"])
        flow = int(record["flow"])
        if flow >= view.n or not view.stands[flow, kind]:
            continue
        rule = rule_list.RULES[rule_list.KINDS[kind].rule]
        psn, expected = int(record["psn"]), int(record["expected"])
        text = rule_list.KINDS[kind].text
        yield results.Violation(
            rule=rule.id,
            text=text.format(
                psn=psn,
                expected=expected,
                value=f"{int(record['value']):,}",
                expected_value=f"{expected:,}",
            ),
            source=rule.source,
            certainty=rule.certainty,
            **names.of(view.flows[flow]),
            tap=names.taps[view.tap],
            time_ns=int(record["time"]),
            frame_number=int(record["frame"]),
            related_frame=int(record["related"]) or None,
            psn=psn if kind in _PSN_KINDS else None,
            expected_psn=expected if "{expected}" in text else None,
        )


def _records(view: _View, names: Names) -> Iterator[results.ConformanceView]:
    for f in range(view.n):
        s = view.book.states[f]
        if not s["requests"]:
            continue
        yield results.ConformanceView(
            **names.of(view.flows[f]),
            tap=names.taps[view.tap],
            position=_position(s),
            requests=int(s["requests"]),
            answers=int(s["answers"]),
            resent_packets=int(s["resent"]),
            rewinds={
                name: int(n)
                for name, n in zip(st.TRIGGER_NAMES, s["rewinds"].tolist(), strict=True)
                if n
            },
            violations=int(view.broken[f].sum()),
            undecided=int(view.undecided[f].sum()),
            latency=_latency(view.one.keeper.latencies, f),
        )


def _position(s: Any) -> str:
    behind = s["lost_before"] > 0 or s["reordered"] > 0
    before = s["lost_behind"] > 0
    if behind:
        return "between_losses" if before else "behind_loss"
    return "before_loss" if before else "no_loss"


def _latency(pool: HistogramPool, flow: int) -> results.RecoveryLatency:
    return results.RecoveryLatency(
        nak_generation_ns=pool.quantiles(flow, st.NAK_GENERATION),
        nak_response_ns=pool.quantiles(flow, st.NAK_RESPONSE),
        retransmission_ns=pool.quantiles(flow, st.RETRANSMISSION),
        next_delivered_ns=pool.quantiles(flow, st.NEXT_DELIVERED),
    )


def _notes(views: Sequence[_View], names: Names) -> list[str]:
    unpaired = {names.taps[v.tap]: int(v.book.used[st.UNPAIRED]) for v in views}
    unpaired = {tap: answers for tap, answers in unpaired.items() if answers}
    if not unpaired:
        return []
    where = next(iter(unpaired)) if len(unpaired) == 1 else f"{len(unpaired)} taps"
    return [
        f"{sum(unpaired.values()):,} responses at {where} were not judged: the requests"
        " do not pass there, or the connection was not known yet"
    ]
