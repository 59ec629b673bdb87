"""The same packet again and again."""

from __future__ import annotations

from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.hosts.retry_storm import retry_storms
from rocescope.analyzer.diagnosis.known import Known

BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9), last(2, at=10)]


def found(rounds):
    rows = [*BEGIN]
    for n in range(1, rounds + 1):
        rows += [answer(2, NAK, at=100 * n), last(2, at=100 * n + 50, ip_id=80 + n)]
    return list(retry_storms(case_of([*rows, answer(2, at=99_999)]), Known()))


def test_four_rounds_are_a_storm():
    (one,) = found(4)
    assert (one.kind, one.packets, one.flows) == ("retry-storm", 4, [0])
    assert "one PSN 4 times in a row" in one.sentence


def test_three_are_bad_luck():
    assert found(3) == []
