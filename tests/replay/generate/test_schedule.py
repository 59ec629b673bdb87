"""Packets in the order of time, in pieces, against a plain list of all packets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.generate.from_pattern import generate
from rocescope.replay.generate.patterns.demands import Settings
from rocescope.replay.generate.patterns.registry import PATTERNS
from rocescope.replay.generate.queue_pairs import Sending
from rocescope.replay.generate.schedule import packets_in_order


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
