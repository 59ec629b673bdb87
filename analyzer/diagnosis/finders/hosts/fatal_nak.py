"""NAKs that end a queue pair: invalid request, remote access error, remote operational error."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import FATAL_SENT, Trouble
from ....results.diagnosis import Finding, Place, Severity
from ....words import printable
from ...case import Case
from ...deaths import death_of
from ...finding import finding
from ...known import Known
from ...words import counted

_STEPS = {
    "invalid request": "compare opcode, length and limits of the request with the queue pair's",
    "remote access error": "check rkey, address range and access flags that the peers exchanged",
    "remote operational error": "look for the local error in the responder's log",
}


def fatal_naks(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per responder and NAK code; the requester's queue pair goes to the error state
    (InfiniBand Architecture Specification, volume 1, 9.9.2)."""
    groups: dict[tuple[str, str], dict[int, Trouble]] = {}
    for f, trouble in case.measuring.troubles.by_flow(FATAL_SENT).items():
        groups.setdefault((case.flows[f].src, _code(case, f)), {})[f] = trouble
    for (host, code), naks in groups.items():
        hits = {case.peers.get(f, f): trouble.packets for f, trouble in naks.items()}
        total = sum(hits.values())
        dead = any(death_of(case, case.flows[f]) for f in hits)
        severity: Severity = "critical" if dead else "warning"
        yield finding(
            case,
            "fatal-nak",
            Place(host=host),
            max(total, sum(case.flows[f].request_packets for f in hits)),
            f"{printable(host)} refuses requests: {counted(total, 'NAK')} {code}",
            _STEPS.get(code, "look up the NAK code of the responder"),
            hits=hits,
            confidence="proven",
            seen=naks.values(),
            severity=severity,
        )


def _code(case: Case, carrier: int) -> str:
    """Names of the NAK codes that the carrier's peer received, PSN sequence errors left out."""
    peer = case.peers.get(carrier)
    if peer is None:
        return "of a fatal code"
    codes = [code for code in case.flows[peer].recovery.naks if code != "PSN sequence error"]
    return ", ".join(codes) or "of a fatal code"
