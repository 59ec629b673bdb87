"""What a pattern asks of hosts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_settings import SETTINGS as DEMANDS_SETTINGS
from pattern_settings import made as made_all_to_all
from pattern_settings import made as made_incast
from pattern_settings import made as made_permutation
from pattern_settings import made as made_random_pairs
from pattern_settings import made as made_ring_allreduce
from pattern_settings import made as made_trace_like

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.from_pattern import generate, put, put_word
from rocescope.replay.generate.patterns import (
    PATTERNS,
    Settings,
    all_to_all,
    demands,
    incast,
    need_hosts,
    pattern,
    permutation,
    random_pairs,
    ring_allreduce,
    trace_like,
)
from rocescope.replay.generate.queue_pairs import Sending, linux_source_port, packets_in_order

# What a pattern asks of hosts.

# What a pattern asks of hosts.


def test_pairs_of_one_source_share_its_rate():
    pairs = demands(DEMANDS_SETTINGS, np.array([0, 0, 3, 0]), np.array([1, 2, 0, 1]))
    assert pairs.sharing.tolist() == [3, 3, 1, 3]
    assert pairs.messages.tolist() == [3] * 4 and pairs.message_bytes.tolist() == [1 << 20] * 4
    assert pairs.start_ns.tolist() == [0] * 4 and not pairs.in_turn
    assert {column.dtype for column in pairs[:6]} == {np.dtype(np.int64)}


def test_too_few_hosts():
    need_hosts(DEMANDS_SETTINGS._replace(hosts=2), "incast")
    with pytest.raises(UsageError, match="incast needs at least 2 hosts, not 1"):
        need_hosts(DEMANDS_SETTINGS._replace(hosts=1), "incast")


# Every ordered pair of hosts once.


def test_all_to_all_has_every_ordered_pair_once():
    demand = made_all_to_all(all_to_all, hosts=5)
    pairs = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert pairs == {(a, b): 1 for a in range(5) for b in range(5) if a != b}
    assert set(demand.sharing.tolist()) == {4}


def test_too_many_pairs():
    with pytest.raises(UsageError, match="all-to-all of 4,097 hosts has 16,785,409 pairs"):
        made_all_to_all(all_to_all, hosts=4097)


# Many hosts send to one.


def test_incast_goes_to_host_0():
    assert made_incast(incast).src.tolist() == list(range(1, 16))
    demand = made_incast(incast, fan_in=5)
    assert len(set(demand.src.tolist()) - {0}) == 5 and set(demand.dst.tolist()) == {0}
    for fan_in in (0, 16):
        with pytest.raises(UsageError, match="--fan-in must be 1 to 15"):
            made_incast(incast, fan_in=fan_in)


# Every host sends to one other, and none to itself.


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_permutation_has_every_host_once_and_none_to_itself(hosts, seed):
    demand = made_permutation(permutation, seed, hosts=hosts)
    assert sorted(demand.src) == sorted(demand.dst) == list(range(hosts))
    assert (demand.src != demand.dst).all()


def test_permutations_differ():
    assert (
        len({tuple(made_permutation(permutation, seed, hosts=4).dst) for seed in range(200)}) == 9
    )  # of 4


# Pairs of hosts at random.


def test_random_pairs_are_uniform():
    demand = made_random_pairs(random_pairs, flows=100_000, hosts=4)
    counts = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert len(counts) == 12
    assert all(abs(n - 100_000 / 12) < 5 * (100_000 / 12) ** 0.5 for n in counts.values())


# Chunks that go round a ring of all hosts.


def test_ring_allreduce_moves_two_n_minus_one_chunks_to_the_next():
    demand = made_ring_allreduce(ring_allreduce, hosts=8, message_bytes=8000, messages=2)
    assert demand.dst.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    assert set(demand.messages.tolist()) == {2 * 2 * 7}
    assert set(demand.message_bytes.tolist()) == {1000}
    assert demand.in_turn


# Flows of many sizes, one after the other.


def test_trace_like_flows_offer_the_load_and_have_a_heavy_tail():
    demand = made_trace_like(trace_like, flows=50_000)
    gaps = np.diff(demand.start_ns, prepend=0)
    offered = 8 * float((demand.message_bytes * demand.messages).sum()) * 1e9 / demand.start_ns[-1]
    assert offered == pytest.approx(0.5 * 16 * 10**11, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # exponential
    assert np.median(demand.message_bytes) == pytest.approx(1 << 20, rel=0.03)
    largest = np.sort(demand.message_bytes)[-5000:].sum() / demand.message_bytes.sum()
    assert 0.5 < largest < 0.65
    for load in (0, 1.5):
        with pytest.raises(UsageError, match="--load must be above 0"):
            made_trace_like(trace_like, load=load)


# Who sends to whom.

SETTINGS = Settings(
    hosts=16, message_bytes=1 << 20, messages=3, flows=1000, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip


def made(name, seed=1, **changes):
    return pattern(name)(SETTINGS._replace(**changes), np.random.default_rng(seed))


@pytest.mark.parametrize("name", PATTERNS)
def test_one_host_is_not_enough(name):
    with pytest.raises(UsageError, match="at least 2 hosts"):
        made(name, hosts=1)


def test_an_unknown_pattern_and_too_many_pairs():
    with pytest.raises(UsageError, match="no pattern 'star'; there are permutation"):
        pattern("star")
    with pytest.raises(UsageError, match="all-to-all of 5,000 hosts"):
        made("all-to-all", hosts=5000)


# Numbers in frames (network byte order) and in pcap records (that of the file).


@pytest.mark.parametrize(("size", "value"), [(1, 0xAB), (2, 0x1234), (3, 0x00FFEE), (8, 1 << 40)])
def test_a_number_in_network_byte_order(size: int, value: int) -> None:
    frame = np.full(12, 0x55, np.uint8)
    put(frame, 2, size, value)
    assert frame.tobytes() == b"\x55" * 2 + value.to_bytes(size, "big") + b"\x55" * (10 - size)


def test_a_word_in_the_byte_order_of_the_file() -> None:
    out = np.zeros(6, np.uint8)
    put_word(out, 1, 0x01020304)
    assert out.tolist() == [0, 4, 3, 2, 1, 0]


# Queue pairs: numbers, ports, splitting of messages, impossible values.

# Queue pairs: numbers, ports, splitting of messages, impossible values.

QUEUE_PAIRS_SETTINGS = Settings(
    hosts=8, message_bytes=10_000, messages=2, flows=20, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip


@pytest.mark.parametrize(
    ("local", "remote", "port"),
    [(0x11, 0x12, 49458), (211, 212, 61118), (0x1000, 0x1001, 53264), (0xABCDEF, 0x123456, 50120)],
)
def test_source_ports_of_the_linux_kernel(local, remote, port):
    a, b = np.array([local]), np.array([remote])
    assert linux_source_port(a, b).tolist() == linux_source_port(b, a).tolist() == [port]


def test_a_queue_pair_number_is_used_once_on_a_host():
    pairs = generate("all-to-all", QUEUE_PAIRS_SETTINGS, Sending(qps=4))
    ends = Counter(
        [*zip(pairs.src, pairs.src_qp, strict=True), *zip(pairs.dst, pairs.dst_qp, strict=True)]
    )
    assert set(ends.values()) == {1} and len(ends) == 2 * 8 * 7 * 4


def test_a_message_is_split_over_queue_pairs():
    pairs = generate(
        "incast", QUEUE_PAIRS_SETTINGS._replace(message_bytes=10_001, fan_in=1), Sending(qps=3)
    )
    assert pairs.message_bytes.tolist() == [3334, 3334, 3333]
    assert pairs.packets.tolist() == [1, 1, 1]


def test_hosts_send_at_their_rate():
    sending = Sending(qps=2, path_mtu=4096, rate_bits_per_second=400 * 10**9)
    pairs = generate("permutation", QUEUE_PAIRS_SETTINGS._replace(message_bytes=1 << 20), sending)
    # 4096 bytes of payload and 58 of headers take 83 ns; two queue pairs share the link.
    assert set(pairs.interval_ns.tolist()) == {2 * 83}


def test_the_same_seed_gives_the_same_traffic():
    first, again, other = (generate("random", QUEUE_PAIRS_SETTINGS, seed=s) for s in (5, 5, 6))
    assert all(
        np.array_equal(getattr(first, name), getattr(again, name))
        for name in ("src", "dst", "src_qp", "dst_qp", "first_psn", "port", "start_ns")
    )
    assert not np.array_equal(first.src, other.src)


@pytest.mark.parametrize(
    ("settings", "sending", "message"),
    [
        ({}, {"path_mtu": 1500}, "--mtu must be one of 256, 512"),
        ({}, {"qps": 0}, "--qps must be 1 to"),
        ({}, {"qps": 5000}, "--qps must be 1 to"),
        ({}, {"entropy_values": 0}, "--spray must be 1 to"),
        ({}, {"entropy_values": 20_000}, "--spray must be 1 to"),
        ({"message_bytes": 3}, {"qps": 4}, "cannot be split over 4 QPs"),
        ({"message_bytes": 1 << 32}, {}, "larger than RoCE allows"),
        ({"message_bytes": 0}, {}, "--message-size, --messages and --flows"),
        ({"messages": 0}, {}, "must be 1 or more"),
        ({"messages": 1 << 50}, {}, "packets exceed"),
        ({"flows": 1 << 40}, {}, "--flows must be at most"),
        ({"hosts": 1}, {}, "--hosts must be 2 to"),
        ({"hosts": 1 << 25}, {}, "--hosts must be 2 to"),
    ],
)
def test_impossible_values_are_named(settings, sending, message):
    with pytest.raises(UsageError, match=message):
        generate(
            "permutation", QUEUE_PAIRS_SETTINGS._replace(**settings), Sending()._replace(**sending)
        )


def test_too_many_queue_pairs():
    with pytest.raises(UsageError, match="queue pairs exceed"):
        generate("permutation", QUEUE_PAIRS_SETTINGS._replace(hosts=4096), Sending(qps=5000))


# Packets in the order of time, in pieces, against a plain list of all packets.


def plain(pairs):
    """(time, queue pair, number, is ACK) of every packet."""
    found = []
    for p in range(len(pairs)):
        start, interval, period = (
            int(column[p]) for column in (pairs.start_ns, pairs.interval_ns, pairs.period_ns)
        )
        for message in range(int(pairs.messages[p])):
            for position in range(int(pairs.packets[p])):
                time = start + message * period + position * interval
                found.append((time, p, message * int(pairs.packets[p]) + position, False))
            found.append((time + pairs.sending.round_trip_ns, p, message, True))
    return sorted(found)


@given(
    st.sampled_from(sorted(PATTERNS)),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(64, 5000),
    st.integers(1, 50),
    st.integers(1, 20_000),
)
def test_pieces_make_up_the_plain_list(name, qps, messages, size, at_once, round_trip):
    settings = Settings(
        hosts=4, message_bytes=size, messages=messages, flows=5, fan_in=None, load=0.9,
        rate_bits_per_second=10**11,
    )  # fmt: skip
    pairs = generate(name, settings, Sending(qps=qps, path_mtu=256, round_trip_ns=round_trip))
    pieces = list(packets_in_order(pairs, at_once))
    rows = [row for piece in pieces for row in zip(*(c.tolist() for c in piece), strict=True)]
    assert sorted(rows) == [(*row, False) for row in plain(pairs)]  # nothing is marked yet
    times = [row[0] for row in rows]
    assert times == sorted(times)
    for piece in pieces:  # longer only if all its packets leave at once
        assert len(piece.time_ns) <= at_once or len(set(piece.time_ns.tolist())) == 1
