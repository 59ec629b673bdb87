"""Late packets before the tap, and the slow path."""

from __future__ import annotations

from cases import capture, case_of, table_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.taps.late import late_before, slow_path
from rocescope.analyzer.diagnosis.known import Known

BEGIN = [write(n, at=n, ip_id=n) for n in range(20)]
LATE = [*BEGIN, last(21, at=21, ip_id=21), write(20, at=22, ip_id=20), answer(21, at=30)]
HURT = [
    *BEGIN,
    write(21, at=21, ip_id=21),
    write(20, at=22, ip_id=20),
    answer(21, NAK, at=30),
    write(21, at=80, ip_id=22),
    last(22, at=81, ip_id=23),
    answer(22, at=90),
]


def found(rows, **changes):
    return list(late_before(case_of(rows, **changes), Known()))


def test_a_tolerated_late_packet_is_a_note():
    (one,) = found(LATE)
    assert (one.kind, one.severity, one.packets) == ("reordering", "note", 1)
    assert one.place.to_tap == "tap"
    assert "are overtaken before the tap" in one.sentence


def test_one_that_causes_retransmissions_is_a_warning():
    (one,) = found(HURT)
    assert one.severity in ("warning", "critical")


def test_a_capture_out_of_order_may_be_the_cause():
    disordered = capture(table_of(HURT), out_of_order_frames=1)
    (one,) = found(HURT, captures=[disordered])
    assert one.severity == "note"


def test_in_order_packets_are_no_finding():
    assert found([*BEGIN, last(20, at=20)]) == []


def sprayed(slow_every):
    """Ports 1 to 4 in turn; every `slow_every`th packet of port 4 comes 3 packets later."""
    rows = [write(n, at=10 * n, ip_id=n, udp_sport=50000 + n % 4) for n in range(400)]
    for row in rows:
        if row["psn"] % (4 * slow_every) == 3:
            row["at"] += 35
    return sorted(rows, key=lambda row: row["at"])


def test_the_slow_source_port_is_named():
    case = case_of(sprayed(2))
    slow = slow_path(list(case.flows))
    assert slow.name == "source port 50003"
    (one,) = late_before(case, Known())
    assert "source port 50003" in one.sentence
    assert one.packets == 50


def test_even_lateness_names_no_path():
    rows = [write(n, at=10 * n, ip_id=n, udp_sport=50000 + n % 4) for n in range(400)]
    for row in rows:
        row["at"] += 35 if row["psn"] % 7 == 3 else 0
    case = case_of(sorted(rows, key=lambda row: row["at"]))
    assert slow_path(list(case.flows)) is None
