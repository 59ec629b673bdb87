"""Partitions by host pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.cluster.pairs import Partitions

ADDRESSES = [f"10.0.{i // 250}.{i % 250}" for i in range(500)] + ["fd00::1", "fd00::2"]


@given(st.lists(st.tuples(st.integers(0, 501), st.integers(0, 501))), st.integers(1, 9))
def test_both_directions_have_one_partition_whatever_the_numbers(
    pairs: list[tuple[int, int]], count: int
) -> None:
    one, other = Partitions(count), Partitions(count)
    one.see(ADDRESSES[:100])
    one.see(ADDRESSES)
    other.see(ADDRESSES[::-1])
    src, dst = (np.array([pair[i] for pair in pairs], np.uint32) for i in range(2))
    found = one.of(src, dst)
    assert np.array_equal(found, one.of(dst, src))
    assert np.array_equal(found, other.of(501 - dst, 501 - src))
    assert ((found >= 0) & (found < count)).all()


def test_pairs_spread_over_the_partitions() -> None:
    partitions = Partitions(8)
    partitions.see(ADDRESSES)
    src, dst = np.triu_indices(64, 1)
    share = np.bincount(partitions.of(src.astype(np.uint32), dst.astype(np.uint32)), minlength=8)
    assert share.min() > len(src) / 8 * 0.7


def test_an_ipv4_address_and_its_gid_are_one_host() -> None:
    partitions = Partitions(1 << 20)
    partitions.see(["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"])
    one, gid = (
        partitions.of(np.array([n], np.uint32), np.array([2], np.uint32)).item() for n in (0, 1)
    )
    assert one == gid
