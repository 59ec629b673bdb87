"""Messages and latencies: known flows, and a twin that keeps every packet in dictionaries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracked_batches import START_NS, parts, tracked, updated

from rocescope.analyzer.measures.messages import MessageStatistics
from rocescope.analyzer.opcodes import opcode_name
from rocescope.analyzer.packets import ACK_REQUEST, HAS_AETH, HAS_RETH
from rocescope.analyzer.track.batch import (
    DUPLICATE,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)

OPCODES = {opcode_name(op): op for op in range(256)}
HALF = 1 << 23


def ahead_of(psn, origin):
    return (psn - origin + HALF) % (1 << 24) - HALF


def row(name, psn, time, flow=0, payload=0, **more):
    """One packet; times are in ns since the start."""
    return {
        "flow": flow,
        "opcode": OPCODES[name],
        "psn": psn % (1 << 24),
        "time_ns": START_NS + time,
        "payload_bytes": payload,
        "verdict": IN_ORDER,
    } | more


def ack(psn, time, flow=1, syndrome=0x1F):
    return row(
        "RC_ACK",
        psn,
        time,
        flow,
        aeth=syndrome << 24,
        decode_flags=HAS_AETH,
        verdict=NOT_SEQUENCED,
    )


def batch_of(rows, peers=(1, 0)):
    batch = tracked(rows, len(peers))
    return replace(batch, peer=np.array(peers, np.int32))


def measure(rows, peers=(1, 0)):
    return updated(MessageStatistics(), [batch_of(rows, peers)])


def write(psn, packets, time, step=10, payload=1024, flow=0, **more):
    """A WRITE of several packets whose last one asks for an ACK."""
    names = ["FIRST", *["MIDDLE"] * (packets - 2), "LAST"] if packets > 1 else ["ONLY"]
    rows = [
        row(f"RC_WRITE_{name}", psn + i, time + i * step, flow, payload, **more)
        for i, name in enumerate(names)
    ]
    rows[-1]["bth_flags"] = ACK_REQUEST
    return rows


def summary(quantiles):
    if quantiles is None:
        return None
    return quantiles.count, quantiles.min, pytest.approx(quantiles.mean), quantiles.max


def of(*values):
    return (len(values), min(values), pytest.approx(sum(values) / len(values)), max(values))


def test_writes_in_order_across_the_psn_wrap():
    first = (1 << 24) - 2
    rows = [*write(first, 4, 0, payload=1000), ack(first + 3, 500)]
    rows += [*write(first + 4, 1, 600, payload=10), ack(first + 4, 700)]
    got = measure(rows)
    messages = got.messages(0)
    assert (messages.count, messages.incomplete, messages.max_outstanding) == (2, 0, 1)
    assert summary(messages.size_bytes) == of(4000, 10)
    assert summary(messages.duration_ns) == of(30)
    assert summary(messages.completion_ns) == of(500, 100)
    assert summary(got.latency(0).request_to_ack_ns) == of(470, 100)
    assert got.goodput_bits_per_second(0) == 4010 * 8e9 / 600
    assert got.messages(1).count == got.untracked(0) == 0
    assert got.messages(1).max_outstanding is None


def test_a_reordered_message_is_as_good_as_one_in_order():
    rows = write(100, 6, 0)
    for place, i in enumerate((3, 5, 1, 0, 4, 2)):
        rows[i]["time_ns"] = START_NS + 10 * place
        rows[i]["verdict"] = REORDERED if i < 5 else IN_ORDER
    shuffled = sorted(rows, key=lambda r: r["time_ns"])
    got = measure([*shuffled, ack(105, 300)])
    assert got.messages(0).count == 1
    assert got.messages(0).incomplete == 0
    assert summary(got.messages(0).size_bytes) == of(6 * 1024)
    assert summary(got.messages(0).duration_ns) == of(50)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert summary(got.latency(0).request_to_ack_ns) == of(290)


def test_copies_and_retransmissions_are_no_messages():
    rows = write(0, 3, 0)
    for verdict in (RETRANSMITTED, DUPLICATE, TAP_COPY):
        rows += write(0, 3, 100, verdict=verdict)
    got = measure([*rows, ack(2, 500)])
    assert got.messages(0).count == 1
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None  # Karn: which of them was acknowledged?


def test_one_ack_completes_all_messages_before_it():
    rows = [r for k in range(5) for r in write(2 * k, 2, 100 * k)]
    got = measure([*rows, ack(9, 1000), ack(9, 1200)])
    assert summary(got.messages(0).completion_ns) == of(1000, 900, 800, 700, 600)
    assert got.messages(0).max_outstanding == 5
    assert summary(got.latency(0).request_to_ack_ns) == of(1000 - 410)


def test_a_nak_acknowledges_what_lies_before_it():
    rows = [*write(0, 2, 0), *write(2, 2, 100)]
    got = measure([*rows, ack(2, 500, syndrome=0x60), ack(3, 900, syndrome=0x2E)])
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None


def read(psn, length, time):
    return row(
        "RC_READ_REQUEST",
        psn,
        time,
        dma_length=length,
        decode_flags=HAS_RETH,
        bth_flags=ACK_REQUEST,
    )


def responses(psn, packets, time, payload=1024):
    names = ["FIRST", *["MIDDLE"] * (packets - 2), "LAST"] if packets > 1 else ["ONLY"]
    return [
        row(f"RC_READ_RESPONSE_{name}", psn + i, time + 10 * i, 1, payload)
        for i, name in enumerate(names)
    ]


def test_reads_complete_with_their_last_response():
    rows = [read(7, 3000, 0), read(10, 100, 5), *responses(7, 3, 100), *responses(10, 1, 200, 100)]
    got = measure(rows)
    assert got.messages(0).count == 2
    assert got.messages(1).count == 0
    assert summary(got.messages(0).size_bytes) == of(3000, 100)
    assert summary(got.messages(0).completion_ns) == of(120, 195)
    assert summary(got.latency(0).read_to_first_response_ns) == of(100, 195)
    assert got.latency(0).request_to_ack_ns is None
    assert got.messages(0).max_outstanding == 2
    assert got.goodput_bits_per_second(1) == (3 * 1024 + 100) * 8e9 / 100
    assert got.goodput_bits_per_second(0) is None


def test_a_response_acknowledges_the_writes_before_its_read_but_an_ack_no_read():
    rows = [*write(0, 2, 0), read(2, 2048, 20), *write(4, 1, 30), ack(4, 100), ack(4, 150)]
    got = measure([*rows, *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(100, 70, 210 - 20)
    got = measure([*write(0, 2, 0), read(2, 2048, 20), *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(200, 190)


def test_atomics_complete_with_their_ack():
    rows = [row("RC_FETCH_ADD", 5, 0), row("RC_ATOMIC_ACK", 5, 80, flow=1)]
    got = measure(rows)
    assert got.messages(0).count == 1
    assert summary(got.messages(0).size_bytes) == of(8)
    assert summary(got.messages(0).completion_ns) == of(80)


def test_datagrams_and_unreliable_writes_have_sizes_only():
    rows = [row("UD_SEND_ONLY", 3, 0, payload=77, verdict=NOT_SEQUENCED)]
    rows += [
        row("UC_WRITE_FIRST", 0, 10, flow=1, payload=512),
        row("UC_WRITE_LAST", 1, 20, flow=1, payload=5),
    ]
    got = measure(rows)
    assert summary(got.messages(0).size_bytes) == of(77)
    assert summary(got.messages(1).size_bytes) == of(517)
    assert got.messages(1).completion_ns is got.messages(1).max_outstanding is None
    assert got.untracked(1) == 0


def test_messages_cut_off_or_broken_are_incomplete():
    """The first lacks its beginning, the second its middle, the third its end."""
    rows = [*write(0, 3, 0)[1:], *write(3, 3, 100)[::2], *write(6, 3, 200)[:2]]
    got = measure(rows)
    assert got.messages(0).count == 0
    assert got.messages(0).incomplete == 2  # two begun and not ended, two ended and not begun
    late = batch_of([write(3, 3, 100)[1] | {"verdict": RECOVERED, "time_ns": START_NS + 300}])
    got.update(late)
    assert (got.messages(0).count, got.messages(0).incomplete) == (1, 1)


def test_a_restart_gives_up_what_was_open():
    rows = [*write(0, 2, 0), *write(2, 3, 50)[:2], *write(90_000, 2, 100)]
    rows[4]["verdict"] = RESTARTED
    got = measure([*rows, ack(90_001, 400)])
    assert (got.messages(0).count, got.messages(0).incomplete) == (2, 1)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert got.untracked(0) == 1


def test_answers_from_before_the_pairing_do_not_lengthen_completions():
    unpaired = batch_of(
        [*write(0, 2, 0), ack(1, 50), *write(2, 2, 100), *write(4, 2, 200)], (-1, -1)
    )
    paired = batch_of([*write(6, 2, 300), ack(7, 500)])
    got = updated(MessageStatistics(), [unpaired, paired])
    assert summary(got.messages(0).completion_ns) == of(200)
    assert got.messages(0).max_outstanding == 1


def test_more_outstanding_than_the_ring_holds():
    rows = [r for k in range(200) for r in write(k, 1, k)]
    got = measure([*rows, ack(199, 1000), *write(200, 1, 1001), ack(200, 1100)])
    assert got.untracked(0) == 72
    assert got.messages(0).completion_ns.count == 129
    assert got.messages(0).max_outstanding == 200


class Twin:
    """The same statistics from dictionaries of all packets and all requests; peers 0 and 1."""

    def __init__(self, rows):
        self.seen = defaultdict(dict)
        self.waiting = defaultdict(list)
        self.values = defaultdict(list)
        self.count = defaultdict(int)
        self.outstanding = defaultdict(int)
        self.most = defaultdict(int)
        self.covered = {}
        for r in rows:
            self.take(r, opcode_name(r["opcode"]).removeprefix("RC_"))

    def take(self, r, name):
        flow, psn, time, verdict = r["flow"], r["psn"], r["time_ns"], r["verdict"]
        if name == "ACK":
            kind = r["aeth"] >> 29 & 3
            if kind == 0:
                self.answer(1 - flow, psn, time, acknowledged=psn)
            elif kind != 2:
                self.answer(1 - flow, (psn - 1) % (1 << 24), time)
            return
        response = name.startswith("READ_RESPONSE") or name == "ATOMIC_ACK"
        if verdict == RETRANSMITTED and not response:
            for entry in self.waiting[flow]:
                if entry["psn"] == psn:
                    entry["ack"] = entry["first"] = False
        if verdict not in (IN_ORDER, REORDERED, RECOVERED):
            return
        begins, ends = name.endswith(("FIRST", "ONLY")), name.endswith(("LAST", "ONLY"))
        timed = verdict != RECOVERED
        if response:
            exact = psn if timed else None
            whole = name == "ATOMIC_ACK"
            self.answer(1 - flow, psn, time, exact, begins or whole, ends or whole)
            return
        if name in ("READ_REQUEST", "FETCH_ADD"):
            self.begin(flow)
            self.complete(flow, r["dma_length"] if name == "READ_REQUEST" else 8)
            first = timed and name == "READ_REQUEST"
            self.wait(flow, psn, time, time, done=False, read=True, first=first)
            return
        if begins:
            self.begin(flow)
        if r["bth_flags"] and timed:
            self.wait(flow, psn, time, time, done=True, ack=True)
        self.seen[flow][psn] = (begins, ends, r["payload_bytes"], time)
        self.assemble(flow, psn)

    def begin(self, flow):
        self.outstanding[flow] += 1
        self.most[flow] = max(self.most[flow], self.outstanding[flow])

    def complete(self, flow, size):
        self.count[flow] += 1
        self.values[flow, "size"].append(size)

    def run(self, flow, psn):
        """The PSNs seen around `psn` that belong to the same message."""
        seen, run = self.seen[flow], [psn]
        while not seen[run[0]][0]:
            before = (run[0] - 1) % (1 << 24)
            if before not in seen or seen[before][1]:
                break
            run.insert(0, before)
        while not seen[run[-1]][1]:
            after = (run[-1] + 1) % (1 << 24)
            if after not in seen or seen[after][0]:
                break
            run.append(after)
        return run

    def assemble(self, flow, psn):
        run, seen = self.run(flow, psn), self.seen[flow]
        if not (seen[run[0]][0] and seen[run[-1]][1]):
            return
        times = [seen[p][3] for p in run]
        self.complete(flow, sum(seen[p][2] for p in run))
        if len(run) > 1:
            self.values[flow, "duration"].append(max(times) - min(times))
        self.wait(flow, run[-1], max(times), min(times), done=False)

    def wait(self, flow, psn, sent, begun, done, ack=False, read=False, first=False):
        if not read and flow in self.covered and ahead_of(psn, self.covered[flow]) <= 0:
            self.outstanding[flow] -= not done
            return
        for entry in self.waiting[flow]:
            if entry["psn"] == psn:
                entry |= {"done": False, "begun": begun}
                return
        self.waiting[flow].append(
            {"psn": psn, "sent": sent, "begun": begun, "done": done, "ack": ack}
            | {"read": read, "first": first}
        )

    def answer(self, flow, psn, time, acknowledged=None, begins=None, ends=None):
        response = begins is not None
        if flow not in self.covered or ahead_of(psn, self.covered[flow]) > 0:
            self.covered[flow] = psn
        covered = [e for e in self.waiting[flow] if ahead_of(e["psn"], psn) <= 0]
        for e in covered:
            if e["psn"] == acknowledged and e["ack"] and not response:
                self.values[flow, "ack"].append(time - e["sent"])
            if e["psn"] == acknowledged and e["first"] and begins:
                self.values[flow, "first"].append(time - e["sent"])
            e["ack"] = False
            if e["psn"] == psn and begins:
                e["first"] = False
        done = [e for e in covered if not e["read"]]
        reads = [e for e in covered if e["read"] and not e["done"]]
        if response and ends and reads:
            done.append(max(reads, key=lambda e: ahead_of(e["psn"], psn)))
        for e in done:
            if not e["done"]:
                self.values[flow, "completion"].append(time - e["begun"])
                self.outstanding[flow] -= 1
            e["done"] = True
            e["first"] = False
        self.waiting[flow] = [e for e in self.waiting[flow] if e["read"] or e not in done]

    def incomplete(self, flow):
        runs = {tuple(self.run(flow, psn)) for psn in self.seen[flow]}
        ends = [(self.seen[flow][r[0]][0], self.seen[flow][r[-1]][1]) for r in runs]
        return max(ends.count((True, False)), ends.count((False, True)))

    def of(self, flow, what):
        values = self.values[flow, what]
        return of(*values) if values else None


def check(got, rows):
    twin = Twin(rows)
    for flow in (0, 1):
        messages, latency = got.messages(flow), got.latency(flow)
        assert messages.count == twin.count[flow]
        assert messages.incomplete == twin.incomplete(flow)
        assert summary(messages.size_bytes) == twin.of(flow, "size")
        assert summary(messages.duration_ns) == twin.of(flow, "duration")
        assert summary(messages.completion_ns) == twin.of(flow, "completion")
        assert messages.max_outstanding in (None, twin.most[flow])
        assert summary(latency.request_to_ack_ns) == twin.of(flow, "ack")
        assert summary(latency.read_to_first_response_ns) == twin.of(flow, "first")


BASE = (1 << 24) - 20


@st.composite
def conversations(draw):
    """Messages of flow 0 with ACKs and responses of flow 1: shuffled, lost, sent again."""
    rows, psn = [], BASE
    for kind, size in draw(
        st.lists(st.tuples(st.sampled_from("wwwsra"), st.integers(1, 5)), max_size=12)
    ):
        at = 100 * len(rows)
        if kind == "r":
            rows += [read(psn, 1000 * size, at), *responses(psn, size, at + 150)]
        elif kind == "a":
            rows += [row("RC_FETCH_ADD", psn, at), row("RC_ATOMIC_ACK", psn, at + 150, flow=1)]
        else:
            rows += write(psn, size, at, payload=draw(st.integers(0, 1024)))
        psn += size if kind != "a" else 1
        if draw(st.booleans()):
            rows.append(ack(psn - 1, at + 140, syndrome=draw(st.sampled_from([0x1F, 0x60, 0x20]))))
    delays = draw(st.lists(st.sampled_from([0, 0, 0, 170, 450]), min_size=80, max_size=80))
    rows = [r | {"time_ns": r["time_ns"] + d} for r, d in zip(rows, delays, strict=False)]
    rows = [r for r in rows if not draw(st.integers(0, 9)) == 9]
    for r in draw(st.lists(st.sampled_from(rows), max_size=3)) if rows else []:
        again = draw(st.sampled_from([RETRANSMITTED, DUPLICATE]))
        if r["verdict"] != NOT_SEQUENCED:
            rows.append(r | {"time_ns": r["time_ns"] + 333, "verdict": again})
    rows.sort(key=lambda r: r["time_ns"])
    fates = draw(
        st.lists(st.sampled_from([IN_ORDER, IN_ORDER, RECOVERED]), min_size=90, max_size=90)
    )
    blank = {"bth_flags": 0, "dma_length": 0, "aeth": 0, "decode_flags": 0}
    return [
        blank | r | ({"verdict": fate} if r["verdict"] == IN_ORDER else {})
        for r, fate in zip(rows, fates, strict=False)
    ]


@st.composite
def nonsense(draw):
    """Any opcodes at any near PSNs; the first copy of each PSN is new."""
    names = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_MIDDLE",
        "SEND_LAST",
        "WRITE_ONLY",
        "READ_RESPONSE_LAST",
        "ATOMIC_ACK",
        "ACK",
    ]
    rows, seen = [], set()
    for time, (name, psn, wants) in enumerate(
        draw(
            st.lists(
                st.tuples(st.sampled_from(names), st.integers(0, 40), st.booleans()), max_size=100
            )
        )
    ):
        answer = name.startswith("READ") or "ACK" in name
        r = {"aeth": 0, "dma_length": 0, "bth_flags": ACK_REQUEST if wants and not answer else 0}
        r |= row(f"RC_{name}", BASE + psn, time, int(answer), psn)
        if name == "ACK":
            r = ack(BASE + psn, time)
        elif (answer, psn) in seen:
            r["verdict"] = RETRANSMITTED
        seen.add((answer, psn))
        rows.append(r)
    return rows


@settings(max_examples=200)
@given(conversations() | nonsense(), st.lists(st.integers(0, 60), max_size=4))
def test_equals_the_twin_however_the_capture_is_split(rows, cuts):
    check(updated(MessageStatistics(), parts(batch_of(rows), cuts)), rows)


@settings(max_examples=60)
@given(conversations(), conversations(), st.integers(0, 60))
def test_merge(rows, others, cut):
    """Flows of one side go on after the merge; flows of both sides add up."""
    left = measure(rows)
    right = measure(others[:cut])
    left.merge(right, np.array([70, 71], np.int32))
    moved = [r | {"flow": r["flow"] + 70} for r in others[cut:]]
    left.update(batch_of(moved, [1, 0, *[-1] * 68, 71, 70]))
    check(left, rows)
    alone = measure(others)
    for flow in (0, 1):
        assert left.messages(70 + flow) == alone.messages(flow)
        assert left.latency(70 + flow) == alone.latency(flow)
        assert left.untracked(70 + flow) == alone.untracked(flow)
        assert left.goodput_bits_per_second(70 + flow) == alone.goodput_bits_per_second(flow)
    both = measure(rows)
    both.merge(alone, np.array([0, 1], np.int32))
    assert both.messages(0).count == measure(rows).messages(0).count + alone.messages(0).count
