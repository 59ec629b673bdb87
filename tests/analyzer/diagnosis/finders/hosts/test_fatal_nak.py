"""NAKs that end queue pairs."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.hosts.fatal_nak import fatal_naks
from rocescope.analyzer.diagnosis.known import Known

BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9), last(2, at=10)]


def found(*rows):
    return list(fatal_naks(case_of([*BEGIN, *rows]), Known()))


@pytest.mark.parametrize(
    ("syndrome", "name"),
    [
        (0x61, "invalid request"),
        (0x62, "remote access error"),
        (0x63, "remote operational error"),
    ],
)
def test_the_code_is_named_and_the_queue_pair_dead(syndrome, name):
    (one,) = found(answer(2, syndrome, at=20))
    assert (one.kind, one.severity, one.packets, one.flows) == ("fatal-nak", "critical", 1, [0])
    assert f"10.0.0.2 refuses requests: 1 NAK {name}" in one.sentence
    assert one.sentence.endswith("1 of 1 QP dead")
    assert [e.frame_number for e in one.evidence] == [5]


def test_a_sender_that_goes_on_is_not_dead():
    (one,) = found(answer(2, 0x61, at=20), write(3, at=30), last(4, at=31), answer(4, at=40))
    assert one.severity == "warning"


def test_sequence_errors_are_not_fatal():
    assert found(answer(2, NAK, at=20)) == []
