"""Queue pairs: numbers, ports, splitting of messages, impossible values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.from_pattern import generate
from rocescope.replay.generate.patterns import PATTERNS, Settings
from rocescope.replay.generate.queue_pairs import Sending, linux_source_port, packets_in_order

# Queue pairs: numbers, ports, splitting of messages, impossible values.

SETTINGS = Settings(
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
    pairs = generate("all-to-all", SETTINGS, Sending(qps=4))
    ends = Counter(
        [*zip(pairs.src, pairs.src_qp, strict=True), *zip(pairs.dst, pairs.dst_qp, strict=True)]
    )
    assert set(ends.values()) == {1} and len(ends) == 2 * 8 * 7 * 4


def test_a_message_is_split_over_queue_pairs():
    pairs = generate("incast", SETTINGS._replace(message_bytes=10_001, fan_in=1), Sending(qps=3))
    assert pairs.message_bytes.tolist() == [3334, 3334, 3333]
    assert pairs.packets.tolist() == [1, 1, 1]


def test_hosts_send_at_their_rate():
    sending = Sending(qps=2, path_mtu=4096, rate_bits_per_second=400 * 10**9)
    pairs = generate("permutation", SETTINGS._replace(message_bytes=1 << 20), sending)
    # 4096 bytes of payload and 58 of headers take 83 ns; two queue pairs share the link.
    assert set(pairs.interval_ns.tolist()) == {2 * 83}


def test_the_same_seed_gives_the_same_traffic():
    first, again, other = (generate("random", SETTINGS, seed=s) for s in (5, 5, 6))
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
        generate("permutation", SETTINGS._replace(**settings), Sending()._replace(**sending))


def test_too_many_queue_pairs():
    with pytest.raises(UsageError, match="queue pairs exceed"):
        generate("permutation", SETTINGS._replace(hosts=4096), Sending(qps=5000))


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
