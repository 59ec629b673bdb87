import numpy as np
from captures import data

from rocescope.tui.session.session import Session


def test_late_packets_lie_where_their_times_are():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    flows, late = snapshot.flows, snapshot.late
    judged = flows.late >= 0
    assert late.values.sum(axis=0)[judged].tolist() == flows.late[judged].tolist()
    line = snapshot.timeline  # counted by another measure, in windows of 10 ms
    when = line.start_ns + np.flatnonzero(line["reordered_packets"]) * line.window_ns
    assert late.start_ns >= when[0] - late.bin_ns
    assert late.start_ns + len(late.values) * late.bin_ns <= when[-1] + line.window_ns + late.bin_ns
    assert late.of(len(flows)) == []


def test_without_late_packets_nothing_is_kept():
    session = Session.open([str(data("c40_rc_oddities_ipv4"))])
    session.start()
    assert session.wait(300)
    late = session.snapshot().late
    session.close()
    assert late.values.size == 0 or not late.values.any()
