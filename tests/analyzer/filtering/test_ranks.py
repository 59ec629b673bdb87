"""Filters by rank and communicator: the packets of the flows that have them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic import packets

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.filtering.compiler import Filter
from rocescope.analyzer.filtering.ranks import Ranks
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.wire.registry import Registry

HOSTS = ("10.0.0.1", "10.0.0.2", "fd00::3")


def owner(rank, peer, comm="0xa", end="destination"):
    return Owner(1, None, rank, end, comm=comm, peer_rank=peer)


OWNERS = {
    (HOSTS[0], HOSTS[1], 17): owner(3, 11),  # 11 sends to 3
    (HOSTS[1], HOSTS[0], 18): owner(3, 11, end="source"),  # 3 sends to 11
    (HOSTS[0], HOSTS[2], 17): owner(5, None, "0xb"),
    (HOSTS[2], HOSTS[0], 17): owner(None, None, None),
}


def table(rows):
    registry = Registry()
    for host in HOSTS:
        registry.endpoints.add(host)
    return packets(rows), registry


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("rank == 11", [0, 1]),
        ("src_rank == 11", [0]),
        ("dst_rank == 11", [1]),
        ("rank == 3 and peer_rank == 11", [0, 1]),
        ("rank in {5..7}", [2]),
        ("rank < 5", [0, 1]),
        ("rank != 3", [2]),
        ("rank", [0, 1, 2]),
        ("not rank", [3, 4]),
        ("peer_rank == 99", []),
        ("comm == 0xa", [0, 1]),
        ("comm != 0xa", [2]),
        ("comm in {0xa 0xb}", [0, 1, 2]),
        ("comm == 0xffff", []),
    ],
)
def test_the_ranks_of_flows_select_their_packets(text, passing):
    names = [*OWNERS, (HOSTS[1], HOSTS[2], 17)]
    rows = [{"src": HOSTS.index(s), "dst": HOSTS.index(d), "dest_qp": q} for s, d, q in names]
    packets, registry = table(rows)
    mask = Filter(text).mask(packets, registry, Ranks(OWNERS))
    assert np.flatnonzero(mask).tolist() == passing


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(16, 19)), max_size=60))
def test_columns_are_those_of_each_row(rows):
    packets, registry = table([{"src": s, "dst": d, "dest_qp": q} for s, d, q in rows])
    columns = Ranks(OWNERS).columns(packets, registry)
    for at, (src, dst, qp) in enumerate(rows):
        known = OWNERS.get((HOSTS[src], HOSTS[dst], qp))
        ranks = (None, None) if known is None else known.ranks
        got = tuple(int(columns[name][at]) for name in ("sender", "receiver"))
        assert got == tuple(-1 if rank is None else rank for rank in ranks)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank == x", "rank takes a number, not 'x'"),
        ("comm < 0xa", "comm has no order"),
        ("rank == 4294967296", "does not fit rank"),
    ],
)
def test_mistakes(text, says):
    with pytest.raises(UsageError, match=says):
        Filter(text)


def test_without_ranks_the_filter_says_what_it_needs():
    packets, registry = table([])
    with pytest.raises(UsageError, match="--nccl-log"):
        Filter("psn > 0 or rank == 3").mask(packets, registry)
    assert Filter("psn > 0").of_job is None
    assert not Ranks({("a", "b", 1): owner(None, None)})
