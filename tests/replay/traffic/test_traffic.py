"""Counting against sorting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from message_traffic import OPCODES, ack, row, write
from numpy.typing import NDArray
from tracked_batches import START_NS, parts, tracked

from rocescope.analyzer.track.batch import VERDICT_NAMES
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.spec import parse_jobs
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import captured
from rocescope.replay.packets.received import write_sent
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy
from rocescope.replay.traffic.closed_loop import ASKS, REQUESTS, RESPONSES, MessageLog
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import (
    CHANCE,
    LEAST,
    MOST_SOURCES,
    NO_LINKS,
    SHARE,
    TOLERANCE_NS,
    AckTimes,
    _fit,
    _own_spread,
    linked,
    ordinals,
    rows_by,
)

# Counting against sorting.

# Counting against sorting.


@given(st.lists(st.integers(0, 9)))
def test_counting_agrees_with_plain_python(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert ordinals(column).tolist() == [values[:i].count(v) for i, v in enumerate(values)]
    assert rows_by(column).tolist() == sorted(range(len(values)), key=values.__getitem__)


# First ACKs of messages.

PEER = np.array([1, 0, -1], np.int32)


def _acks(*rows: dict[str, int], most: int = 100) -> AckTimes:
    times = AckTimes(most)
    times.update(tracked([*rows]))
    return times


def test_a_message_is_acknowledged_by_the_first_ack_of_its_last_psn_or_a_later_one() -> None:
    wrap = (1 << 24) - 1
    times = _acks(
        *write(wrap - 1, 3, 0),
        ack(wrap - 1, 50),
        ack(1, 90),  # wrapped: covers PSNs 0 and 1
        row("RC_ACK", 2, 95, 1, aeth=0x60 << 24, decode_flags=ack(0, 0)["decode_flags"]),
        ack(2, 120),
    )
    flow = np.zeros(4, np.int32)
    found = times.of(flow, np.array([wrap - 1, 0, 2, 5]), PEER)
    assert found.tolist() == [START_NS + 50, START_NS + 90, START_NS + 120, -1]
    assert OPCODES["RC_ACK"] == 0x11


def test_flows_without_a_peer_and_too_many_acks_have_no_times() -> None:
    times = _acks(ack(1, 50), ack(2, 60))
    assert times.of(np.array([2], np.int32), np.array([1]), PEER).tolist() == [-1]
    full = _acks(ack(1, 50), ack(2, 60), most=1)
    assert full.full and full.of(np.zeros(1, np.int32), np.array([1]), PEER).tolist() == [-1]


# Messages that wait for messages of other queue pairs: evidence, and a ring replayed elsewhere.

FABRIC = "leaf-spine:leaves=4,spines=4,hosts=4,delay=500ns,rate={}"
NO_PEER = np.full(80, -1, np.int32)
Times = NDArray[np.int64]
Columns = list[Times]


def _found(flows: list[tuple[int, int, Columns]]) -> tuple[set[tuple[int, int]], str]:
    """(links as pairs of messages, evidence) of flows (src, dst, [begun, ended, acked])."""
    flow = np.repeat(np.arange(len(flows)), [len(c[0]) for _, _, c in flows]).astype(np.int32)
    begun, ended, acked = (np.concatenate(c) for c in zip(*(c for _, _, c in flows), strict=True))
    src, dst = (
        np.array(side, np.int32) for side in zip(*((s, d) for s, d, _ in flows), strict=True)
    )
    links, told = linked(flow, begun, ended, acked, src, dst, NO_PEER)
    pairs = set(zip(links.message.tolist(), links.after.tolist(), strict=True))
    some = f", {told.not_compared} not compared" if told.not_compared else ""
    return pairs, f"{told.fixed} of {told.of} in {told.flows}{some}"


def _times(begun: NDArray[np.int64], length: int) -> Columns:
    return [begun, begun + length, begun + length + 2_000]


@pytest.mark.thorough
def test_a_flow_that_answers_another_after_a_fixed_time_is_linked() -> None:
    rng = np.random.default_rng(1)
    first = np.cumsum(rng.integers(20_000, 90_000, 40))
    came = _times(first, 3_000)
    answers = came[2] + 500 + rng.integers(0, 300, 40)
    pairs, told = _found([(1, 2, came), (2, 3, _times(answers, 3_000))])
    assert pairs == {(40 + i, i) for i in range(40)} and told == "40 of 40 in 1"
    # Some answers wait for something else, too; their own times stay.
    answers[[7, 19]] += 15_000
    pairs, told = _found([(1, 2, came), (2, 3, _times(answers, 3_000))])
    assert len(pairs) == 40 and told == "38 of 40 in 1"


@given(st.integers(0, 1 << 30))
def test_flows_at_times_of_their_own_are_not_linked(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (np.cumsum(rng.integers(5_000, 60_000, 50)) for _ in range(2))
    assert _found([(1, 2, _times(one, 3_000)), (2, 3, _times(other, 3_000))])[0] == set()


def test_a_flow_that_keeps_its_line_busy_is_not_linked() -> None:
    begun = np.arange(50) * 10_000
    assert _found([(1, 2, _times(begun, 9_900)), (2, 3, _times(begun + 300, 9_990))])[0] == set()
    few = np.cumsum(np.full(6, 50_000))
    assert _found([(1, 2, _times(few, 100)), (2, 3, _times(few + 2_200, 100))])[0] == set()


def _plain_fit(begun: Times, arrived: Times) -> tuple[float, int, int, Times]:
    """What `_fit` finds, and `last`."""
    last = np.searchsorted(arrived, begun) - 1
    waits = np.flatnonzero(last >= 0)
    own = np.full(len(begun), -1)
    if len(waits):
        new = waits[np.append(True, np.diff(last[waits]) > 0)]
        own[new] = last[new]
    if len(waits) < LEAST - 1:
        return -1, 0, 0, own
    gaps = begun[new] - arrived[last[new]]
    middle = np.median(gaps)
    tolerance = max(TOLERANCE_NS, middle / 4)
    fixed = int((abs(gaps - middle) <= tolerance).sum())
    within = ((arrived >= arrived[last[waits[0]]]) & (arrived <= begun[-1])).sum()
    chance = min(1.0, within * 2 * tolerance / max(1, begun[-1] - begun[waits[0]]))
    share = fixed / len(waits)
    if share < SHARE or share <= chance:
        return -1, 0, 0, own
    distance = share * np.log(share / chance)
    if share < 1:
        distance += (1 - share) * np.log((1 - share) / (1 - chance))
    if np.exp(-len(waits) * distance) > CHANCE:
        return -1, 0, 0, own
    low, high = np.percentile(gaps, (10, 90))
    return high - low, fixed, len(waits), own


@given(st.integers(0, 1 << 30), st.integers(1, 60), st.integers(0, 3))
def test_the_kernels_find_what_their_twins_find(seed: int, number: int, missing: int) -> None:
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.integers(1, 60_000, number))
    begun = np.sort(arrived + rng.integers(0, 2_000, number) * (rng.random(number) < 0.95))
    begun = np.delete(begun, range(min(missing, number - 1)))
    last, since = np.zeros(number, np.int64), np.zeros(number, np.int64)
    spread, fixed, of = _fit(begun, arrived, last, since)
    *told, own = _plain_fit(begun, arrived)
    assert [spread, fixed, of] == pytest.approx(told)
    last, since = last[: len(begun)], since[: len(begun)]
    assert (last == own).all()
    assert (since[own >= 0] == begun[own >= 0] - arrived[own[own >= 0]]).all()
    if number < 2:
        return
    ended, came = arrived + 3_000, arrived + 3_000 + rng.integers(0, 9_000, number)
    gaps = arrived[1:] - ended[:-1]
    low, high = np.percentile([gaps, arrived[1:] - came[:-1]], (10, 90), axis=1)
    busy = (gaps <= 300).sum() >= SHARE * (number - 1)
    expected = -1 if busy else max(1, (high - low).min())
    assert _own_spread(arrived, ended, came) == pytest.approx(expected)


def test_comparisons_have_a_limit_and_what_is_not_compared_is_counted() -> None:
    begun = np.cumsum(np.random.default_rng(5).integers(20_000, 90_000, 9))
    many = [(1, 2, _times(begun + i, 3_000)) for i in range(MOST_SOURCES + 5)]
    flows = [*many, (2, 3, _times(begun + 7_000, 3_000))]
    assert _found(flows)[1].endswith("in 1, 5 not compared")
    assert "not compared" not in _found(flows[5:])[1]


def test_messages_of_the_same_time_do_not_wait_for_each_other() -> None:
    begun = np.cumsum(np.random.default_rng(3).integers(5_000, 60_000, 40))
    both = [begun, begun, np.full(40, -1)]  # a coarse clock: packets of an exchange at one time
    assert _found([(1, 2, both), (2, 1, both)])[0] == set()
    # The tap that sees the ACKs has a clock that is behind.
    early = [begun, begun, begun - 2_000]
    late = [begun - 1_000, begun - 1_000, begun - 3_000]
    pairs, _ = _found([(1, 2, early), (2, 1, late)])
    begins = np.concatenate([begun, begun - 1_000])
    assert pairs and all(begins[after] < begins[message] for message, after in pairs)


@pytest.mark.parametrize("rate", ["400G", "25G"])
def test_a_captured_ring_takes_as_long_as_the_job_at_another_speed(
    rate: str, tmp_path: Path
) -> None:
    """The packets of a ring at 100 Gb/s, as its hosts sent them, are the capture. Hash collisions
    hold single steps up, so its times tell what waits for what."""
    model, ecmp = Model(pfc=None), parse_packet_strategy("ecmp")
    jobs = parse_jobs(["workers=16,size=1MB,place=spread"])

    def job_on(rate: str, keep: bool = False) -> tuple[int, Path]:
        fabric = parse_fabric(FABRIC.format(rate))
        load = offer_jobs(jobs(fabric, 1), fabric, model, 1).workload
        result = run_packets(load, fabric, ecmp, model, 1, keep_arrivals=keep, keep_sent=keep)
        file = tmp_path / "ring.pcap"
        if keep:
            with file.open("wb") as out:
                write_sent(out, load, result)
        assert result.completion_ps is not None
        return result.completion_ps, file

    _, file = job_on("100G", keep=True)
    truth, _ = job_on(rate)
    fabric = parse_fabric(FABRIC.format(rate))
    traffic = traffic_from_capture([str(file)], fabric, messages=True, links=True)
    load, notes = captured(traffic, model, offer="asap")
    assert any("464 of 464 messages leave a fixed time" in note for note in notes)
    replayed = run_packets(load, fabric, ecmp, model, 1).completion_ps
    assert replayed is not None and abs(replayed / truth - 1) < 0.01
    # Without the links, hosts do not wait for their predecessors.
    assert traffic.messages is not None
    alone = load._replace(
        waits=load.waits._replace(
            **{
                name: getattr(load.waits, name)[:0]
                for name in ("node", "after", "on", "host", "takes_ps")
            }
        )
    )
    unlinked = run_packets(alone, fabric, ecmp, model, 1).completion_ps
    assert unlinked is not None
    if rate == "400G":
        assert abs(unlinked / truth - 1) > 0.05
    as_captured, _ = captured(traffic, model, offer="captured")
    assert not len(as_captured.waits.node) and NO_LINKS.message.dtype == np.int32


# The log of messages against a plain twin over dictionaries.

NEW = {"in_order", "ahead", "reordered", "recovered", "restarted"}


def twin(rows: list[dict[str, int]]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """(flow, kind, packets, payload, bytes, begun, ended, last PSN) and (message, unit, time,
    bytes) by the names of opcodes; the source port is the unit."""
    log: list[list[int]] = []
    packets: list[tuple[int, ...]] = []
    running: dict[tuple[int, int], list[int]] = {}
    for packet in rows:
        name = opcode_name(packet["opcode"])
        operation = name.partition("_")[2]
        verdict = VERDICT_NAMES[packet["verdict"]]
        if verdict not in NEW and not (name.startswith("UD_") and verdict == "not_sequenced"):
            continue
        if operation.startswith("READ_RESPONSE"):
            kind = RESPONSES
        elif operation.startswith("READ_REQUEST"):
            kind = ASKS
        elif name.startswith(("RC_", "XRC_", "UC_", "UD_")) and operation.startswith(
            ("SEND", "WRITE", "COMPARE", "FETCH", "FLUSH", "ATOMIC_WRITE")
        ):
            kind = REQUESTS
        else:
            continue
        begins = not operation.startswith(
            ("SEND_MIDDLE", "SEND_LAST", "WRITE_MIDDLE", "WRITE_LAST")
        ) and not operation.endswith(("RESPONSE_MIDDLE", "RESPONSE_LAST"))
        key = packet["flow"], kind
        if begins or key not in running:
            times = [packet["time_ns"], packet["time_ns"]]
            running[key] = [packet["flow"], kind, 0, 0, 0, *times, packet["psn"], len(log)]
            log.append(running[key])
        message = running[key]
        message[2] += 1
        message[3] += packet["payload_bytes"]
        message[4] += packet["wire_bytes"]
        message[6] = max(message[6], packet["time_ns"])
        if not operation.endswith(("FIRST", "MIDDLE")):
            message[7] = packet["psn"]
        packets.append((message[8], packet["udp_sport"], packet["time_ns"], packet["wire_bytes"]))
    return [tuple(message[:8]) for message in log], packets


NAMES = [
    op for op in range(256) if opcode_name(op).startswith(("RC_", "UC_", "UD_", "XRC_", "CNP"))
]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flow": st.integers(0, 3),
            "opcode": st.sampled_from(NAMES),
            "verdict": st.integers(0, len(VERDICT_NAMES) - 1),
            "payload_bytes": st.integers(0, 4096),
            "wire_bytes": st.integers(60, 4200),
            "udp_sport": st.integers(0, 3),
            "psn": st.integers(0, 9),
            "time_ns": st.integers(START_NS, START_NS + 50),
        }
    ),
    max_size=60,
)


@examples(60)
@given(ROWS, st.lists(st.integers(0, 60), max_size=3))
def test_as_the_twin_in_any_batches(rows: list[dict[str, int]], cuts: list[int]) -> None:
    log = MessageLog()
    for batch in parts(tracked(rows, 4), cuts):
        log.update(batch, batch.table.udp_sport.astype(np.int32))
    assert log.packets is not None
    assert (log.messages.tolist(), log.packets.tolist()) == twin(rows)


def test_grows_and_stops_at_its_limit() -> None:
    rows = [{"opcode": 0x04, "psn": i} for i in range(3000)]
    log, small, few = MessageLog(), MessageLog(most=2999), MessageLog(most_packets=2999)
    for batch in parts(tracked(rows), [1500]):
        for one in (log, small, few):
            one.update(batch, np.zeros(len(batch), np.int32))
    assert len(log.messages) == 3000 and not log.full and log.packets is not None
    assert few.packets is None and (few.messages == log.messages).all()
    assert small.full and (log.messages["packets"] == np.ones(3000)).all()
