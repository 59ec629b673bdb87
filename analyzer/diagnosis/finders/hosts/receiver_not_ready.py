"""RNR NAKs: the receiver has no buffer posted for a SEND."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import RNR_SENT, Trouble
from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted


def receivers_not_ready(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per host that sends RNR NAKs; a network fault never causes one."""
    by_host: dict[str, dict[int, Trouble]] = {}
    for f, trouble in case.measuring.troubles.by_flow(RNR_SENT).items():
        by_host.setdefault(case.flows[f].src, {})[f] = trouble
    for host, naks in by_host.items():
        hits = {case.peers.get(f, f): trouble.packets for f, trouble in naks.items()}
        total = sum(hits.values())
        yield finding(
            case,
            "receiver-not-ready",
            Place(host=host),
            max(total, sum(case.flows[f].request_packets for f in hits)),
            f"{printable(host)} is not ready to receive: {counted(total, 'RNR NAK')}",
            f"post more receive buffers on {printable(host)}, or earlier; raise its min RNR timer",
            hits=hits,
            confidence="proven",
            seen=naks.values(),
        )
