"""Queue pairs of two hosts with one UDP port and one first PSN, paired by what they do."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest
from traffic import ACK, NAK_SEQUENCE_ERROR, READ_REQUEST, START_NS, packets
from work import lines_run

from rocescope.analyzer.track import matching
from rocescope.analyzer.track.matching import END, ENDS_KEPT, SIDE, Group, Matching
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import ACK_REQUEST, IPV6

MTU = 1024
FIRST, MIDDLE, LAST, ONLY = 6, 7, 8, 10


def opcode_of(packet, length, first=FIRST):
    """First, Middle, Last or Only of a WRITE, or of READ responses (`first` 13)."""
    if length == 1:
        return ONLY if first == FIRST else 16
    return first if packet == 0 else first + (2 if packet == length - 1 else 1)


def traffic(
    seed, queue_pairs=8, messages=24, sizes=(8,), jitter_ns=0, both=False, reads=0.0, loss=0.0
):
    """Rows of queue pairs that send one message at a time, at a tap near the first host.

    They differ a little in pace and delay. Queue pair k of the second host has number 0x200 + 3 k,
    its partner 0x100 + k.
    """
    rng, rows = random.Random(seed), []
    for k in range(queue_pairs):
        for way in range(1 + both):
            asks = {"src": way, "dst": 1 - way, "dest_qp": (0x200 + 3 * k, 0x100 + k)[way]}
            answers = {"src": 1 - way, "dst": way, "dest_qp": (0x100 + k, 0x200 + 3 * k)[way]}
            answers |= {"payload_bytes": 0}
            gap, delay = 1000 + rng.random() * 100, 15_000 + rng.random() * 2000
            time, psn = rng.random() * 1000, 0
            for n in range(1, messages + 1):
                length, jitter = rng.choice(sizes), rng.random() * jitter_ns
                if rng.random() < reads:
                    asked = {"dma_length": length * MTU, "payload_bytes": 0, "bth_flags": 0}
                    rows.append(asks | asked | {"opcode": READ_REQUEST, "psn": psn, "at": time})
                    time += delay + jitter
                    for i in range(length):
                        row = answers | {"opcode": opcode_of(i, length, 13), "payload_bytes": MTU}
                        row |= {"msn": n} if row["opcode"] != 14 else {}
                        rows.append(row | {"psn": psn + i, "at": time + 90 * i})
                    time, psn = time + 90 * length + gap, psn + length
                    continue
                sent: list[int | None] = list(range(length))
                if rng.random() < loss and length > 1:  # lost after the tap, the next one is NAKed
                    lost = rng.randrange(length - 1)
                    nak = {"opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR, "msn": n - 1}
                    at = time + (lost + 1) * gap + delay
                    rows.append(answers | nak | {"psn": psn + lost, "at": at})
                    sent += [None, *range(lost, length)]
                for i in sent:
                    if i is None:
                        time = at + gap
                        continue
                    row = {"opcode": opcode_of(i, length), "psn": psn + i, "at": time}
                    rows.append(asks | row | {"bth_flags": ACK_REQUEST * (i == length - 1)})
                    time += gap
                time += delay + jitter
                psn += length
                row = {"opcode": ACK, "syndrome": 0x1F, "msn": n, "psn": psn - 1}
                rows.append(answers | row | {"at": time - gap})
    return sorted(rows, key=lambda row: row["at"])


def table_of(rows, decode_flags=0, step_ns=1):
    """The rows as a table with one source port."""
    table = packets([{k: v for k, v in r.items() if k not in ("at", "msn")} for r in rows])
    at = np.array([row["at"] for row in rows]).astype(np.int64)
    table.time_ns[:] = START_NS + at // step_ns * step_ns
    table.aeth[:] |= np.array([row.get("msn", 0) for row in rows], np.uint32)
    table.decode_flags[:] |= decode_flags
    return table


def pairs(table, batch=1 << 15):
    """(number of right pairs, number of wrong ones)."""
    tracker = FlowTracker()
    for first in range(0, len(table), batch):
        tracker.update(table.slice(first, min(first + batch, len(table))))
    flows = tracker.flows
    named = [
        (int(flow["dest_qp"]), int(flows[flow["peer"]]["dest_qp"]))
        for flow in flows
        if flow["peer"] >= 0 and flow["src"] == 0
    ]
    right = sum((qp - 0x200) // 3 == other - 0x100 for qp, other in named)
    return right, len(named) - right


KINDS: dict[str, dict[str, Any]] = {
    "steady": {},
    "two": {"queue_pairs": 2},
    "sizes": {"sizes": (1, 2, 4, 16), "jitter_ns": 3000, "queue_pairs": 24},
    "both ways": {"both": True, "sizes": (2, 3, 8)},
    "reads": {"reads": 0.4, "sizes": (2, 3, 8), "jitter_ns": 1000},
    "losses": {"loss": 0.1, "jitter_ns": 3000, "messages": 60},
    "sixty-four": {"queue_pairs": 64, "sizes": (1, 2, 8), "jitter_ns": 500},
}


@pytest.mark.parametrize("batch", [1 << 15, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_all_pairs_are_found(kind, batch):
    rows = traffic(7, **KINDS[kind])
    assert pairs(table_of(rows), batch) == (KINDS[kind].get("queue_pairs", 8), 0)


@pytest.mark.parametrize("kind", ["sizes", "both ways", "reads", "losses"])
def test_a_capture_may_begin_in_the_middle_and_be_of_ipv6(kind):
    rows = traffic(11, **KINDS[kind])
    table = table_of(rows[len(rows) // 3 :], IPV6, step_ns=1000)
    assert pairs(table) == (KINDS[kind].get("queue_pairs", 8), 0)


@pytest.mark.parametrize("seed", range(6))
def test_no_pair_is_guessed(seed):
    """Jitter hides who answers whom, the capture misses packets, or the clock is coarse."""
    for missed in (0, 0.03):
        rng = random.Random(seed)
        rows = [
            row
            for row in traffic(seed, messages=30, jitter_ns=400 * seed)
            if rng.random() >= missed
        ]
        for batch in (1 << 15, 100):
            assert pairs(table_of(rows), batch)[1] == 0
            assert pairs(table_of(rows, step_ns=1000), batch)[1] == 0


def test_a_nak_tells_which_queue_pair_it_is_for():
    """Two queue pairs in lock-step: only one of them begins again where a NAK asks for it."""
    rows = []
    for n in range(20):
        at = n * 10_000
        for k in (0, 1):
            rows.append({"dest_qp": 0x200 + 3 * k, "psn": 2 * n, "opcode": FIRST, "at": at + k})
            last = {"dest_qp": 0x200 + 3 * k, "psn": 2 * n + 1, "opcode": LAST}
            rows.append(last | {"at": at + 100 + k, "bth_flags": ACK_REQUEST})
            answer = {"answer": True, "opcode": ACK, "dest_qp": 0x100 + k, "at": at + 5000 + k}
            if n == 9 and k == 1:
                rows.append(answer | {"psn": 2 * n, "msn": n, "syndrome": NAK_SEQUENCE_ERROR})
                for packet in (0, 1):
                    row = {"dest_qp": 0x203, "psn": 2 * n + packet, "opcode": FIRST + 2 * packet}
                    rows.append(row | {"at": at + 6000 + packet})
                answer["at"] = at + 9000
            rows.append(answer | {"psn": 2 * n + 1, "msn": n + 1, "syndrome": 0x1F})
    rows.sort(key=lambda row: row["at"])
    assert pairs(table_of([r for r in rows if r["at"] < 90_000])) == (0, 0)
    tracker = FlowTracker()
    tracker.update(table_of(rows))
    told = {int(flow["dest_qp"]): flow["nak_codes"][0] for flow in tracker.flows}
    assert pairs(table_of(rows))[0] >= 1 and told[0x203] == 1 and told[0x200] == 0


def test_ports_that_tell_the_pairs_need_no_comparison():
    """One flow of each direction has the port: nothing is compared."""
    rows = traffic(3)
    table = table_of(rows)
    table.udp_sport[:] = 50_000 + np.where(table.src == 0, (table.dest_qp - 0x200) // 3, 0)
    table.udp_sport[table.src == 1] += (table.dest_qp[table.src == 1] - 0x100).astype(np.uint16)
    tracker = FlowTracker()
    flow = tracker.index_flows(table)
    looking = Matching()
    assert looking.look_ahead(tracker.state, flow, table, 0) == [] and not looking._groups


def test_copies_at_other_taps_are_not_compared():
    """Each packet passes two taps with clocks 3 ms apart."""
    rows = traffic(5, sizes=(1, 2, 8))
    both = [row | {"tap": 0} for row in rows]
    both += [row | {"tap": 1, "at": row["at"] + 3_000_000, "hop_limit": 63} for row in rows]
    table = table_of(sorted(both, key=lambda row: row["at"]))
    for name in ("ip_id",):
        getattr(table, name)[:] = table.psn & 0xFFFF
    assert pairs(table) == (8, 0)


def test_too_many_queue_pairs_are_left_open(monkeypatch):
    monkeypatch.setattr(matching, "MOST_COMPARED", 50)
    table, tracker, looking = table_of(traffic(7)), FlowTracker(), Matching()
    flow = tracker.index_flows(table)
    assert looking.look_ahead(tracker.state, flow, table, 0) == [] and not looking._groups


def plain(rows):
    """{(answering QP, asking QP): (compared, against, delays, mean delay)}, as FIT has them."""
    sent, fits, latest = defaultdict(dict), {}, {}
    nexts, firsts, messages = {}, {}, defaultdict(list)
    known = defaultdict(lambda: None)
    count: dict[Any, list[Any]] = defaultdict(lambda: [0, 0, []])
    for row in rows:
        qp, psn, opcode, at = row["dest_qp"], row["psn"], row["opcode"], int(row["at"])
        if opcode in (FIRST, MIDDLE, LAST, ONLY, READ_REQUEST):
            firsts.setdefault(qp, psn)
            span = row["dma_length"] // MTU if opcode == READ_REQUEST else 1
            nexts[qp] = psn + span
            if opcode in (LAST, ONLY, READ_REQUEST):
                messages[qp].append(psn)
                sent[qp][psn] = at, opcode == READ_REQUEST
            continue
        if opcode in (14, 15):
            continue
        msn = row.get("msn")
        new_msn = opcode == ACK and latest.get(qp) != msn
        latest[qp] = msn
        for other in list(nexts):
            if (other >= 0x200) == (qp >= 0x200) or psn < firsts[other]:
                continue
            fit = count[qp, other]
            fit[0] += 1
            time, is_read = sent[other].get(psn, (None, None))
            if (
                psn >= nexts[other]
                or (opcode != ACK and not is_read)
                or (opcode == ACK and is_read)
            ):
                fit[1] += 1
                continue
            if new_msn:
                ahead = msn - sum(end <= psn for end in messages[other])
                fit[1] += known[qp, other] not in (None, ahead)
                known[qp, other] = ahead
            if time is not None:
                fit[2].append(at - time)
    for key, (compared, against, delays) in count.items():
        fits[key] = compared, against, len(delays), round(np.mean(delays or [0]), 3)
    return fits


@pytest.mark.parametrize("kind", ["steady", "sizes", "both ways", "reads"])
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_compares_like_its_plain_twin(kind, seed, monkeypatch):
    rows = traffic(seed, **KINDS[kind] | {"queue_pairs": 4})
    rows = rows[len(rows) // 5 :] if seed else rows
    monkeypatch.setattr(Group, "decide", lambda self: [])
    tracker, looking, table = FlowTracker(), Matching(), table_of(rows)
    flow = tracker.index_flows(table)
    looking.look_ahead(tracker.state, flow, table, 0)
    (group,) = looking._groups.values()
    qps = tracker.flows["dest_qp"][group.sides["flow"]].tolist()
    found = {}
    for way, low, high in np.argwhere(group.fits["compared"] > 0).tolist():
        fit, ends = group.fits[way, low, high], (qps[low], qps[group.low + high])
        key = ends if way == 0 else ends[::-1]
        found[key] = tuple(int(fit[n]) for n in ("compared", "against", "delays"))
        found[key] += (round(float(fit["mean_delay"]), 3),)
    assert found == plain(rows)


@pytest.mark.parametrize("count", [0, 1, 2, 7, ENDS_KEPT, ENDS_KEPT + 1, 3 * ENDS_KEPT])
def test_the_end_that_an_answer_covers_is_found_in_few_steps(count):
    """Also the oldest of a full ring: an answer is compared with all queue pairs of a host."""
    rng = np.random.default_rng(count)
    psns = (0xFFFF00 + np.cumsum(rng.integers(0, 4, count))) & 0xFFFFFF
    ends, sides = np.zeros(ENDS_KEPT, END).view(np.recarray), np.zeros(1, SIDE).view(np.recarray)
    ends.psn[np.arange(count) % ENDS_KEPT], sides.ends[0] = psns, count
    kept = range(max(0, count - ENDS_KEPT), count)
    for psn in [0xFFFEFF, *psns, *(psns + 1 & 0xFFFFFF), 0x1000]:
        up_to = [at for at in kept if (int(psn) - int(psns[at])) & 0xFFFFFF < 1 << 23]
        found = []
        find = partial(matching._find_end, ends, sides[0], np.int64(psn))
        lines = lines_run(lambda into=found, find=find: into.append(find()))
        assert found == [max(up_to, default=-1)]
        assert lines < 150
