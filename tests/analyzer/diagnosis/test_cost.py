"""The time that a flow lost."""

from __future__ import annotations

import msgspec
from factories_results import SECOND, flow, lossy_flow, quantiles

from rocescope.analyzer.diagnosis.cost import cost_ns


def test_the_waits_of_the_recovery_add_up():
    lossy = lossy_flow(0)
    r = lossy.recovery
    waits = (r.gap_to_nak_ns, r.nak_to_resend_ns, r.timeout_ns)
    total = sum(q.count * q.mean for q in waits)
    lossy = msgspec.structs.replace(lossy, last_time_ns=lossy.first_time_ns + 100 * SECOND)
    assert cost_ns(lossy) == round(total) > 537_000_000


def test_a_clean_flow_lost_nothing():
    assert cost_ns(flow(0, 1000)) == 0


def test_datagrams_do_not_tell():
    assert cost_ns(flow(0, 1000, retransmitted_packets=None)) is None


def test_a_flow_cannot_lose_more_than_its_time():
    r = msgspec.structs.replace(
        lossy_flow(0).recovery, timeout_ns=quantiles(9, SECOND, SECOND, SECOND)
    )
    assert cost_ns(flow(0, 1000, recovery=r)) == SECOND
