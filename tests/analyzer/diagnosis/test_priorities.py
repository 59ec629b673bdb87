"""Which pause can hold a flow."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import write
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis.priorities import ALL, priorities_of, unmapped

CNP = 0x81


def packet(n, dscp=0, vlan=0, **more):
    return write(n, at=n, ip_id=n, traffic_class=dscp << 2, vlan=vlan, **more)


def tag(priority, vid=100):
    return priority << 13 | vid


@pytest.mark.parametrize(
    ("rows", "mapping", "priorities", "unknown"),
    [
        ([packet(0, 26)], {}, {3}, [26]),
        ([packet(0, 26), packet(1, 48)], {}, {3, 6}, [26, 48]),
        ([packet(0, 26)], {26: 5}, {5}, []),
        ([packet(0, 26)], {0: 5}, {3}, [26]),
        ([packet(0, 26, tag(4))], {}, {4}, []),
        ([packet(0, 26, tag(4))], {26: 5}, {4}, []),
        ([packet(0, 26, tag(0))], {}, {0, 3}, []),
        ([packet(0, 26, tag(4)), packet(1, 26)], {}, {3, 4}, [26]),
        ([packet(0, opcode=CNP)], {}, ALL, []),
    ],
    ids=[
        "DSCP", "two DSCPs", "mapped", "another mapped", "tag", "tag and mapped", "tag of 0",
        "tag at one tap", "CNPs",
    ],
)  # fmt: skip
def test_priorities(rows, mapping, priorities, unknown):
    case = case_of(rows, dscp_priority=mapping)
    assert priorities_of(case, case.flows[0]) == priorities
    assert unmapped(case) == unknown


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 7), st.booleans()), max_size=6))
def test_every_packet_has_one_of_the_priorities_of_its_flow(packets):
    rows = [packet(n, d, tag(p) if tagged else 0) for n, (d, p, tagged) in enumerate(packets)]
    case = case_of([packet(99), *rows])
    found = priorities_of(case, case.flows[0])
    assert found >= {p if tagged else d >> 3 for d, p, tagged in packets}
