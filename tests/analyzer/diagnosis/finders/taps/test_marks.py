"""CE marks and congestion notifications."""

from __future__ import annotations

from cases import case_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.finders.taps.marks import (
    marks_before,
    marks_without_notification,
    notifications_without_marks,
)
from rocescope.analyzer.diagnosis.known import Known

CE, ECT, CNP = 3, 2, 0x81


def data(marked=(), **more):
    return [
        write(n, at=n, ip_id=n, traffic_class=CE if n in marked else ECT, **more) for n in range(40)
    ]


def cnp(at, **more):
    return {"opcode": CNP, "answer": True, "at": at, **more}


ANSWERED = [last(40, at=50), answer(40, at=60)]


def test_marked_packets():
    (one,) = marks_before(case_of([*data({3, 9}), *ANSWERED]), Known())
    assert (one.kind, one.severity, one.packets, one.of_packets) == (
        "ecn-marking", "warning", 2, 40,
    )  # fmt: skip
    assert one.place.host == "10.0.0.2"
    assert [e.frame_number for e in one.evidence] == [4, 10]


def test_no_marks_no_finding():
    case = case_of([*data(), *ANSWERED])
    for finder in (marks_before, marks_without_notification, notifications_without_marks):
        assert list(finder(case, Known())) == []


def test_cnps_of_a_host_whose_packets_are_never_marked():
    rows = [*data(hop_limit=62), *ANSWERED, cnp(70), cnp(80)]
    (one,) = notifications_without_marks(case_of(rows), Known())
    assert (one.kind, one.packets, one.place.host) == ("cnp-without-mark", 2, "10.0.0.2")
    assert one.flows == [0]


def test_cnps_that_come_from_behind_a_router_show_marks_after_the_tap():
    routed = [row | {"hop_limit": 61} for row in (ANSWERED[1], cnp(70))]
    rows = [*data(), ANSWERED[0], *routed]
    (one,) = notifications_without_marks(case_of(rows), Known())
    assert (one.kind, one.place.direction) == ("ecn-marking", "after the tap")


def test_cnps_after_marks_are_congestion_control_at_work():
    rows = [*data({3}), *ANSWERED, cnp(70)]
    assert list(notifications_without_marks(case_of(rows), Known())) == []


def other_host(**more):
    """The same between two other hosts."""
    return {"src": 2, "dst": 3, "dest_qp": 0x99, **more}


def test_marks_without_cnps_where_others_send_some():
    marked = set(range(12))
    rows = [*data(marked), *ANSWERED]
    assert list(marks_without_notification(case_of(rows), Known())) == []  # nobody sends CNPs
    others = [write(n, at=100 + n, traffic_class=CE, **other_host()) for n in range(12)]
    notified = {"opcode": CNP, "src": 3, "dst": 2, "dest_qp": 0x98, "at": 200}
    (one,) = marks_without_notification(case_of([*rows, *others, notified]), Known())
    assert (one.kind, one.place.host, one.packets) == ("mark-without-cnp", "10.0.0.2", 12)
    few = [*data(set(range(5))), *ANSWERED, *others, notified]
    assert list(marks_without_notification(case_of(few), Known())) == []
