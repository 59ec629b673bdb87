"""What messages of captures waited for: real runs by hand, and small sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import DATA
from tracked_batches import START_NS, tracked

from rocescope.analyzer.measures.messages import MessageStatistics
from rocescope.analyzer.track.batch import IN_ORDER, NOT_SEQUENCED
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.analyzer.wire.packets import ACK_REQUEST, HAS_AETH
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import EngineResult, Model, Workload
from rocescope.replay.packets.offers import captured
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.results import OFFERS
from rocescope.replay.strategies.registry import parse_packet_strategy
from rocescope.replay.traffic.closed_loop import LEAST_TURNS, MessageLog, sent_messages
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import (
    ON_ACKED,
    ON_RECEIVED,
    PacketTimes,
    SentMessages,
    Traffic,
)

FABRIC = "leaf-spine:leaves=2,spines=1,hosts=1,rate=100G,delay={}"
PS_PER_BYTE = 80  # 100 Gb/s
LINKS = 4
ACK_BYTES = 64


def offered(name: str, delay: str, asked: str | None = None) -> tuple[Workload, EngineResult, str]:
    """A capture as fast as possible on a fabric with one path."""
    fabric, model = parse_fabric(FABRIC.format(delay)), Model(pfc=None)
    traffic = traffic_from_capture([str(DATA / name)], fabric, "order", filter=asked, messages=True)
    workload, notes = captured(traffic, model, offer="asap")
    result = run_packets(workload, fabric, parse_packet_strategy("ecmp"), model, 1)
    return workload, result, " ".join(notes)


def test_ping_pong_takes_turns() -> None:
    """ib_write_lat, 2,000 round trips of 64 bytes; 48 packets retransmitted are left out."""
    workload, result, notes = offered("n05_rc_write_lat_timeouts.atB.pcap.gz", "500ns")
    assert len(workload.packets) == 4000 and (workload.packets == 1).all()
    assert "ping-pongs: 1" in notes and "window" not in notes
    assert (workload.after < 0).sum() == 1 and (workload.on[workload.after >= 0] == 1).all()
    # Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16, 64 of data, ICRC 4.
    way = LINKS * (138 * PS_PER_BYTE + 500_000)
    ack = LINKS * (ACK_BYTES * PS_PER_BYTE + 500_000)
    # Every answer leaves behind the ACK of what it answers.
    assert result.completion_ps == 4000 * way + 3999 * ACK_BYTES * PS_PER_BYTE + ack


def test_reads_one_at_a_time() -> None:
    """ib_read_bw -o 1: 80 READs of 64 KiB per queue pair at a path MTU of 1,024, each alone."""
    workload, result, notes = offered("c04_rc_read_q4_64k.atB.pcap.gz", "100us", "qp == 354")
    asks, data = np.arange(80), np.arange(80, 160)  # of one host, of the other
    assert workload.packets.tolist() == [1] * 80 + [64] * 80, notes
    assert workload.after[data].tolist() == asks.tolist()
    assert workload.after[asks].tolist() == [-1, *data[:-1].tolist()]
    assert (workload.on[1:] == ON_RECEIVED).all()
    # 74 B of request; First and Last of the data have an AETH of 4 B beside the 1,082 B.
    ask = LINKS * (74 * PS_PER_BYTE + 100_000_000)
    way = (62 * 1082 + 5 * 1086) * PS_PER_BYTE + LINKS * 100_000_000
    ack = ACK_BYTES * PS_PER_BYTE  # goes ahead of what answers, so each side waits for one
    assert result.completion_ps == 80 * (ask + ack + way) + 79 * ack + LINKS * (ack + 100_000_000)


def test_both_sides_of_rping_wait_for_each_other() -> None:
    """rping: SEND; READ, its data, SEND; SEND; WRITE and, once that is acknowledged, SEND."""
    workload, _, notes = offered("c10_rping_ipv4.atB.pcap", "1us", "qp == 49")
    assert "ping-pongs: 1" in notes and "window" not in notes
    # Flows of the engine: client, data of its READs, server.
    sizes = np.diff(workload.flow_start).tolist()
    assert sizes == [100, 50, 200], notes
    client, data, server = (np.arange(a, b) for a, b in ((0, 100), (100, 150), (150, 350)))
    after, on = workload.after, workload.on
    reads, goes, writes, dones = (server[i::4] for i in range(4))
    assert after[reads].tolist() == client[0::2].tolist()
    assert after[data].tolist() == reads.tolist()
    assert after[goes].tolist() == data.tolist()
    assert after[client[1::2]].tolist() == goes.tolist()
    assert after[writes].tolist() == client[1::2].tolist()
    assert after[dones].tolist() == writes.tolist() and (on[dones] == ON_ACKED).all()
    assert after[client[0::2]].tolist() == [-1, *dones[:-1].tolist()]
    rest = np.setdiff1d(np.arange(1, 350), dones)
    assert (on[rest] == ON_RECEIVED).all()


def test_a_window_of_writes() -> None:
    """ib_write_bw, 50 WRITEs per queue pair, as many under way as the capture shows."""
    workload, result, notes = offered("c13_rc_write_rdmacm_ipv4.atB.pcap.gz", "1ms")
    assert "flows with a window of 9 messages: 4" in notes and "ping-pongs: 1" in notes
    writes = [f for f in range(len(workload.src)) if np.diff(workload.flow_start)[f] == 50]
    assert len(writes) == 4
    for flow in writes:
        own = np.arange(workload.flow_start[flow], workload.flow_start[flow + 1])
        assert workload.after[own].tolist() == [-1] * 9 + own[:-9].tolist()
        # Six rounds of up to nine; four flows share the host's link for 64 KiB and headers each.
        rounds = 6 * 2 * LINKS * 1_000_000_000
        sending = 4 * 50 * 72_000 * PS_PER_BYTE
        assert rounds < result.completed_ps[own].max() < rounds + sending


def test_what_was_never_answered_is_offered_at_once() -> None:
    workload, _, notes = offered(
        "c04_rc_read_q4_64k.atB.pcap.gz", "1us", "qp == 354 and src == 10.0.0.2"
    )
    assert (workload.after < 0).all() and len(workload.after) == 80
    assert "1 flows wait for nothing" in notes
    unreliable, _, notes = offered("c08_uc_write_q2_64k.atB.pcap.gz", "1us")
    assert len(unreliable.src) == 2 and (unreliable.after < 0).all()
    assert "2 flows wait for nothing" in notes


OPCODES = {opcode_name(op): op for op in range(256)}


def only(flow: int, psn: int, time: int) -> dict[str, int]:
    return {
        "flow": flow,
        "opcode": OPCODES["RC_SEND_ONLY"],
        "psn": psn,
        "time_ns": START_NS + time,
        "bth_flags": ACK_REQUEST,
        "verdict": IN_ORDER,
    }


def ack(flow: int, psn: int, time: int) -> dict[str, int]:
    return {
        "flow": flow,
        "opcode": OPCODES["RC_ACK"],
        "psn": psn,
        "time_ns": START_NS + time,
        "aeth": 0x1F << 24,
        "decode_flags": HAS_AETH,
        "verdict": NOT_SEQUENCED,
    }


def told(rows: list[dict[str, int]], most: int = 1 << 22) -> SentMessages | None:
    batch = tracked(sorted(rows, key=lambda row: row["time_ns"]), 2)
    batch = replace(batch, peer=np.array([1, 0], np.int32))
    log, statistics = MessageLog(most), MessageStatistics()
    log.update(batch, batch.table.udp_sport.astype(np.int32))  # a unit per source port
    statistics.update(batch)
    return sent_messages(log, statistics, batch.peer)


def turns(n: int, late: int = -1) -> list[dict[str, int]]:
    """n messages each way, in turn, at once acknowledged; `late` begins before it was asked for."""
    rows = []
    for i in range(2 * n):
        time = 100 * i - (150 if i == late else 0)
        rows += [only(i % 2, i // 2, time), ack(1 - i % 2, i // 2, 100 * i + 10)]
    return rows


def test_turns_must_be_strict_and_many() -> None:
    strict = told(turns(LEAST_TURNS))
    assert strict is not None
    half = LEAST_TURNS
    assert strict.after.tolist() == [-1, *range(half, 2 * half - 1), *range(half)]
    assert (strict.on[1:] == ON_RECEIVED).all()
    for rows in (turns(LEAST_TURNS - 1), turns(LEAST_TURNS, late=5)):
        loose = told(rows)
        assert loose is not None
        assert "ping-pongs" not in loose.notes[0] and "window of 1 message: 2" in loose.notes[0]
        assert (loose.on == ON_ACKED).all()


def test_a_log_that_is_full_tells_nothing() -> None:
    assert told(turns(LEAST_TURNS), most=5) is None


def test_feedback_does_not_decide_the_entropy_values() -> None:
    """Messages of two entropy values in turn; CNPs, and ACKs, come from other source ports."""
    rows = turns(LEAST_TURNS)
    for i, row in enumerate(rows):
        row["udp_sport"] = i // 4 % 2 if row["flow"] == 0 and "aeth" not in row else 5
    cnp = {"opcode": 0x81, "udp_sport": 9, "verdict": NOT_SEQUENCED}
    rows += [cnp | {"flow": i % 2, "time_ns": START_NS + 100 * i + 20} for i in range(8)]
    sent = told(rows)
    assert sent is not None and sent.times is not None
    assert sent.times.unit.tolist() == [0, 1] * (LEAST_TURNS // 2) + [5] * LEAST_TURNS
    assert "24 ACKs, NAKs, CNPs" in sent.left_out[0] and "ping-pongs: 1" in sent.notes[0]


@pytest.mark.parametrize("kept", [[0, 1, 2], [2, 0], [1], [3], []])
def test_messages_follow_their_units(kept: list[int]) -> None:
    """Units reordered and left out: by message identity (its bytes). Flow 2 has two units."""
    sent = SentMessages(
        flow=np.array([0, 0, 1, 2, 2], np.int32),
        responses=np.zeros(5, np.bool_),
        packets=np.ones(5, np.int64),
        payload_bytes=np.ones(5, np.int64),
        wire_bytes=np.array([10, 11, 20, 30, 31]),
        begun_ns=np.arange(5),
        ended_ns=np.arange(5),
        after=np.array([-1, 3, 0, 2, 1], np.int32),
        on=np.array([0, 1, 1, 1, 0], np.uint8),
        times=PacketTimes(np.array([0, 0, 1, 2, 3], np.int32), np.arange(5), np.ones(5, np.int32)),
    )
    waits = {11: 30, 20: 10, 30: 20, 31: 11}
    base = replace(traffic_of(4), flow=np.array([0, 1, 2, 2], np.int32))
    taken = replace(base, messages=sent).take(np.array(kept, np.int64)).messages
    assert taken is not None and taken.times is not None
    flows = {int(base.flow[unit]) for unit in kept}
    there = [size for size in (10, 11, 20, 30, 31) if size // 10 - 1 in flows]
    assert taken.wire_bytes.tolist() == there
    assert taken.flow.tolist() == [size // 10 - 1 for size in there]
    of = {10: 0, 11: 0, 20: 1, 30: 2, 31: 3}
    for size, unit in zip(there, taken.times.unit.tolist(), strict=True):
        if of[size] in kept:
            assert kept[unit] == of[size]
        else:  # the unit that is left of the flow
            assert base.flow[kept[unit]] == base.flow[of[size]]
    expected = [waits.get(size) if waits.get(size) in there else None for size in there]
    found = [int(taken.wire_bytes[a]) if a >= 0 else None for a in taken.after]
    assert found == expected


def traffic_of(units: int) -> Traffic:
    import replay_traffic

    clos = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2")
    return replay_traffic.traffic(clos, [0] * units, [1] * units)


def test_closed_keeps_the_time_between_a_message_and_what_it_waited_for() -> None:
    """Two messages in a window of 1: sent at 0 and 500 us, the first acknowledged at 100 us."""
    n, us = 2, 1_000
    traffic = traffic_of(1)
    sent = SentMessages(
        flow=np.zeros(n, np.int32),
        responses=np.zeros(n, np.bool_),
        packets=np.full(n, 4, np.int64),
        payload_bytes=np.full(n, 4 * 4096, np.int64),
        wire_bytes=np.full(n, 4 * 4160, np.int64),
        begun_ns=np.array([0, 500 * us]),
        ended_ns=np.array([90 * us, 590 * us]),
        after=np.array([-1, 0], np.int32),
        on=np.full(n, ON_ACKED, np.uint8),
        idle_ns=np.array([0, 400 * us]),
    )
    fabric, model = parse_fabric(FABRIC.format("1us")), Model(pfc=None)
    done = {}
    for offer in OFFERS:
        workload, _ = captured(replace(traffic, messages=sent), model, offer=offer)
        result = run_packets(workload, fabric, parse_packet_strategy("ecmp"), model, 1)
        done[offer] = result.completion_ps
    message = done["asap"] // 2
    assert done["asap"] == 2 * message
    assert done["closed"] == done["asap"] + 400_000_000
    assert done["captured"] > 590_000_000 > done["closed"]


def test_closed_keeps_the_time_of_each_answer_of_a_real_ping_pong() -> None:
    """ib_write_lat: every message waits for the last one of the other side."""
    fabric, model = parse_fabric(FABRIC.format("1ns")), Model(pfc=None)
    name = str(DATA / "n05_rc_write_lat_timeouts.atB.pcap.gz")
    traffic = traffic_from_capture([name], fabric, "order", messages=True, links=True)
    sent = traffic.messages
    assert sent is not None and len(sent.flow) == 4000 and (sent.packets == 1).all()
    waits = sent.after >= 0
    between = (sent.begun_ns[waits] - sent.ended_ns[sent.after[waits]]).tolist()
    assert sent.idle_ns[waits].tolist() == [max(0, gap) for gap in between]
    workload, _ = captured(traffic, model, offer="closed")
    result = run_packets(workload, fabric, parse_packet_strategy("ecmp"), model, 1)
    took = int(sent.begun_ns.max() - sent.begun_ns.min()) * 1000
    way = LINKS * (138 * PS_PER_BYTE + 2_000)  # beside the captured times
    assert result.completion_ps is not None
    assert took <= result.completion_ps <= took + 4001 * (way + LINKS * ACK_BYTES * PS_PER_BYTE)
