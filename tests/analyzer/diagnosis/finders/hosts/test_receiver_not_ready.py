"""RNR NAKs."""

from __future__ import annotations

from cases import case_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.finders.hosts.receiver_not_ready import receivers_not_ready
from rocescope.analyzer.diagnosis.known import Known

RNR = 0x2E
BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9)]


def test_one_finding_per_host():
    rows = [*BEGIN, last(2, at=10), answer(2, RNR, at=20), last(2, at=900, ip_id=80)]
    rows += [answer(2, RNR, at=910), last(2, at=1800, ip_id=81), answer(2, at=1810)]
    (one,) = receivers_not_ready(case_of(rows), Known())
    assert (one.kind, one.packets, one.flows, one.place.host) == (
        "receiver-not-ready", 2, [0], "10.0.0.2",
    )  # fmt: skip
    assert "10.0.0.2 is not ready to receive: 2 RNR NAKs" in one.sentence
    assert one.confidence == "proven"


def test_acks_are_no_finding():
    assert list(receivers_not_ready(case_of(BEGIN), Known())) == []
