"""The tables and sentences of the conformance report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...analyzer.results import analysis as results
from .. import human
from ..human import UNKNOWN, Glyphs
from .page import folded, numbers, texts

_POSITIONS = {
    "no_loss": "no loss seen",
    "before_loss": "before a loss",
    "behind_loss": "after a loss",
    "between_losses": "between losses",
}
_LATENCIES = (
    ("NAK generation", "nak_generation_ns", "PSN gap to its NAK"),
    ("NAK response", "nak_response_ns", "NAK to the retransmission of its PSN"),
    ("retransmission", "retransmission_ns", "first transmission to retransmission"),
    ("next delivered", "next_delivered_ns", "lost packet to the next delivered packet"),
)


def verdict(result: results.Conformance) -> str:
    """The violated rules, and the number of judged rules."""
    by = {
        status: [rule for rule in result.rules if rule.status == status]
        for status in ("passed", "violated", "not_judged")
    }
    judged = human.counted(len(by["passed"]), "rule")
    text = f"{judged} passed, {human.counted(len(by['not_judged']), 'rule')} not judged."
    if not by["violated"]:
        return f"No rule is violated: {text}"
    cases = sum(rule.violations for rule in by["violated"])
    names = ", ".join(rule.id for rule in by["violated"])
    return f"{human.counted(cases, 'violation')} of {names}; {text}"


def rule_table(table: Table, rules: Sequence[results.RuleResult], glyphs: Glyphs) -> None:
    """One row per rule."""
    texts(table, "", "rule")
    numbers(table, "judged", "violated", "undecided")
    folded(table, "requirement")
    for rule in rules:
        mark = {
            "passed": Text(glyphs.good, "green"),
            "violated": Text(glyphs.bad, "red"),
            "not_judged": Text("-", "dim"),
        }[rule.status]
        table.add_row(
            mark,
            rule.id,
            human.count(rule.judged),
            Text(human.count(rule.violations), "red" if rule.violations else ""),
            human.count(rule.undecided),
            Text(rule.title, "dim"),
        )


def open_questions(rules: Sequence[results.RuleResult]) -> list[str]:
    """Reasons for cases that were not judged, by rule."""
    lines = []
    for rule in rules:
        if rule.reasons:
            why = "; ".join(f"{human.count(n)}: {reason}" for reason, n in rule.reasons.items())
            lines.append(f"{rule.id}, {why}")
    return lines


def idle_rules(rules: Sequence[results.RuleResult]) -> str:
    """The rules without any case in this capture."""
    idle = [rule.id for rule in rules if rule.status == "not_judged" and not rule.undecided]
    return f"not judged because this capture has no case: {', '.join(idle)}" if idle else ""


def violation_lines(violation: results.Violation, glyphs: Glyphs) -> tuple[str, str]:
    """The violations and their packets."""
    head = f"{violation.rule}: {violation.text}"
    flow = f"#{violation.flow} " if violation.flow is not None else ""
    where = f"{flow}{violation.src} {glyphs.arrow} {violation.dst}"
    where += f" QP {human.queue_pair(violation.dest_qp)}, frame {violation.frame_number}"
    if violation.related_frame is not None:
        where += f" (see {violation.related_frame})"
    return head, f"{where} of {violation.tap}; {violation.source}"


def latency_table(table: Table, latency: results.RecoveryLatency) -> None:
    """The latencies of loss recovery."""
    texts(table, "latency")
    numbers(table, "count", "min", "p50", "p99", "max")
    folded(table, "from, to")
    for name, field, meaning in _LATENCIES:
        times = getattr(latency, field)
        cells = (
            [UNKNOWN] * 5
            if times is None
            else [human.count(times.count)]
            + [human.duration(v) for v in (times.min, times.p50, times.p99, times.max)]
        )
        table.add_row(name, *cells, Text(meaning, "dim"))


def any_latency(latency: results.RecoveryLatency) -> bool:
    """True when at least one case was timed."""
    return any(getattr(latency, field) is not None for _, field, _ in _LATENCIES)


def view_table(table: Table, views: Sequence[results.ConformanceView], glyphs: Glyphs) -> None:
    """One row per direction of a connection and tap."""
    table.add_column("#", justify="right", style="dim", no_wrap=True)
    texts(table, "requests of", "tap", "position")
    numbers(table, "retrans", "rewinds", "violated")
    for view in views:
        rewinds = ", ".join(f"{n} {name}" for name, n in view.rewinds.items())
        table.add_row(
            "-" if view.flow is None else str(view.flow),
            f"{glyphs.shorten(view.src, 15)} {glyphs.arrow} {glyphs.shorten(view.dst, 15)}",
            glyphs.shorten(view.tap.rpartition("/")[2], 18),
            _POSITIONS[view.position],
            human.count(view.resent_packets),
            rewinds or "-",
            Text(human.count(view.violations), "red" if view.violations else ""),
        )


def cnp_table(table: Table, pacing: results.CnpConformance) -> None:
    """One row per pacing scope."""
    texts(table, "scope")
    numbers(table, "notifiers", "expected", "seen", "difference", "too close", "min spacing")
    for scope in pacing.scopes:
        table.add_row(
            scope.scope.replace("_", " "),
            human.count(scope.notifiers),
            human.count(scope.expected_cnps),
            human.count(pacing.cnps),
            human.count(scope.difference),
            human.count(scope.too_close),
            "-" if scope.least_spacing_ns is None else human.duration(scope.least_spacing_ns),
        )


def counter_table(table: Table, checks: Sequence[results.CounterCheck], glyphs: Glyphs) -> None:
    """One row per host counter."""
    texts(table, "", "counter")
    numbers(table, "grew by", "captured")
    folded(table, "what it counts")
    for check in checks:
        mark = {True: Text(glyphs.good, "green"), False: Text(glyphs.bad, "red")}
        table.add_row(
            Text("-", "dim") if check.agrees is None else mark[check.agrees],
            check.counter,
            human.count(check.grew_by),
            human.count(check.captured),
            Text(check.meaning, "dim"),
        )
