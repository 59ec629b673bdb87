"""Traffic classes that differ."""

from __future__ import annotations

from cases import case_of
from conformance_traces import answer, write

from rocescope.analyzer.diagnosis.finders.hosts.traffic_class import traffic_classes
from rocescope.analyzer.diagnosis.known import Known

ECT = 2


def case(classes, **more):
    """One flow per traffic class byte."""
    return case_of(
        [write(n, dest_qp=9 + i, traffic_class=c, **more) for i, c in enumerate(classes)
         for n in range(3)]
    )  # fmt: skip


def found(one):
    return [(f.kind, f.severity, f.flows) for f in traffic_classes(one, Known())]


def test_one_queue_pair_in_the_default_class():
    one = case([26 << 2, 26 << 2, 0, 26 << 2])
    assert found(one) == [("dscp-mismatch", "warning", [2])]
    (finding,) = traffic_classes(one, Known())
    assert "1 flow with DSCP 0, where 26 is usual between 10.0.0.1 and 10.0.0.2" in finding.sentence


def test_not_ect_beside_ect():
    assert found(case([ECT, ECT, 0, ECT])) == [("dscp-mismatch", "warning", [2])]


def test_classes_that_are_mixed_on_purpose():
    assert found(case([26 << 2, 0, 26 << 2 | ECT, ECT, 0, 26 << 2])) == []


def test_one_class_for_all():
    assert found(case([26 << 2 | ECT] * 4)) == []


def test_acks_may_have_a_class_of_their_own():
    rows = [write(0, traffic_class=26 << 2), answer(0, traffic_class=0)]
    assert found(case_of(rows)) == []


def test_other_hosts_are_a_note():
    rows = [
        write(n, src=2 * i, dst=2 * i + 1, traffic_class=c << 2)
        for i, c in enumerate((26, 26, 26, 0))
        for n in range(2)
    ]
    assert found(case_of(rows)) == [("dscp-mismatch", "note", [3])]
