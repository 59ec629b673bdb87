"""Arithmetic modulo 2^24, beside a search for the shortest way round."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.wire.bth import PSN_MASK, id_distance, psn_add, psn_distance

PSNS = st.integers(0, PSN_MASK) | st.sampled_from([0, 1, 1 << 23, PSN_MASK])


def nearest(value, origin, modulus):
    """The signed step from origin to value that is shortest; half way round counts as behind."""
    return min(((value - origin) + k * modulus for k in (-1, 0, 1)), key=lambda d: (abs(d), d))


@given(PSNS, PSNS)
def test_distance_is_the_shortest_way_round(psn, origin):
    distance = psn_distance(psn, origin)
    assert distance == nearest(psn, origin, 1 << 24)
    assert psn_add(origin, distance) == psn


@given(PSNS, st.integers(-(1 << 25), 1 << 25))
def test_moving_on_and_back(psn, count):
    moved = psn_add(psn, count)
    assert 0 <= moved <= PSN_MASK and psn_add(moved, -count) == psn


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_identifications_of_ipv4_have_16_bits(ip_id, origin):
    assert id_distance(ip_id, origin) == nearest(ip_id, origin, 1 << 16)
