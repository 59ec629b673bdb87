"""Queue pairs without an answer until the end of the capture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....measures.troubles import RESENT
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....wire.packets import FULL_HOP_LIMITS
from ....words import printable
from ...case import Case
from ...deaths import Death, death_of
from ...finding import finding
from ...known import Known
from ...words import flow_name, hosts
from ..groups import by_hosts

MOST_TAPS = 4
"""Taps that a sentence names."""


def stalled(case: Case, known: Known) -> Iterator[Finding]:
    """Senders that retransmit without an answer, or fell silent after an unanswered request."""
    dead: dict[int, Death] = {}
    for flow in case.flows:
        death = death_of(case, flow)
        if death is None or death.why == "refused":
            continue
        span = death.since_ns, case.last_ns
        if not known.explains("stalled", flow.id, *span) and not known.cut_off(flow.src, *span):
            dead[flow.id] = death
    near = _near_the_taps(case) if dead else set()
    for group in by_hosts(case.flows[f] for f in dead):
        yield _finding(case, group, {flow.id: dead[flow.id] for flow in group}, near)


def _finding(case: Case, group: list[Flow], dead: dict[int, Death], near: set[str]) -> Finding:
    hits = {f: death.packets for f, death in dead.items()}
    since = min(death.since_ns for death in dead.values())
    resends = any(death.why == "unanswered" for death in dead.values())
    who = flow_name(group[0]) if len(group) == 1 else f"{len(group)} flows from {hosts(group)}"
    verb = "retransmit" if len(group) > 1 else "retransmits"
    what = f"{verb} without an answer" if resends else "wait for an answer that is never seen"
    sources, receivers = {flow.src for flow in group}, {flow.dst for flow in group}
    step = "check that the receiver's queue pair exists and answers; capture on the way to it"
    hidden = case.measuring.many_taps and near.isdisjoint(receivers)
    if hidden:
        last = _last_taps(case, dead)
        seen = f", never seen after {last}" if last else ""
        what += f"{seen}: the receiver is dead, or packets are lost between it and the last tap"
        step = "capture on the link of the receiver; check that its queue pair exists and answers"
        step += "; --fabric FILE may show the next tap" if last else ""
    return finding(
        case,
        "stalled",
        Place(
            host=next(iter(receivers)) if len(receivers) == 1 else next(iter(sources)),
            dest_qp=group[0].dest_qp if len(group) == 1 else None,
        ),
        sum(flow.request_packets for flow in group),
        f"{who} {what}",
        step,
        hits=hits,
        span=(since, max(since, *(flow.last_time_ns for flow in group))),
        confidence="likely" if resends and not hidden else "possible",
        seen=case.measuring.troubles.by_flow(RESENT, hits).values(),
        severity="critical",
        until_ns=None,
    )


def _last_taps(case: Case, dead: dict[int, Death]) -> str:
    """The taps after which no tap saw the packets without an answer."""
    if case.ways is None:
        return ""
    ended = case.ways.ended
    ended = ended[np.isin(ended["flow"], list(dead))]
    since = np.array([dead[flow].since_ns for flow in ended["flow"].tolist()], np.int64)
    taps = np.unique(ended["tap"][ended["last_ns"] >= since]).tolist()
    names = sorted(printable(case.ways.names[tap]) for tap in taps)
    more = f" and {len(names) - MOST_TAPS} more" if len(names) > MOST_TAPS else ""
    return ", ".join(names[:MOST_TAPS]) + more


def _near_the_taps(case: Case) -> set[str]:
    """Hosts with a packet that a tap sees before any router forwards it."""
    limits = case.measuring.troubles.progress
    return {
        flow.src
        for flow in case.flows
        if int(limits(flow.id)["hop_limit"]) in (0, *FULL_HOP_LIMITS)
    }
