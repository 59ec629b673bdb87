"""Runs of training jobs: what taps see, the frames, and the truth."""

from __future__ import annotations

import io
import struct
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import dpkt
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from training_runs import FABRIC, training_run

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.replay.packets.model.model import ACK, MARKED, TRIMMED
from rocescope.replay.training.frames import Seen, grant_body, identifications
from rocescope.replay.training.nccl import DATA, GRANT
from rocescope.replay.training.truth import Made

KINDS = ("ddp", "ddp,algorithm=tree,channels=2", "fsdp", "moe,steps=3", "pipeline,ranks=8,steps=3")


def _frames(made: Made, tap: str, snap: int = 5000) -> list[tuple[float, bytes]]:
    reader = dpkt.pcap.Reader(io.BytesIO(b"".join(made.pcap(made.captures()[tap], snap))))
    return list(reader)


# Frames.


@pytest.mark.parametrize(("layout", "at"), [("2.26", (106, 110)), ("2.20", (94, 102))])
def test_grants_name_rank_slot_and_message_at_the_places_of_nccl(
    layout: str, at: tuple[int, int]
) -> None:
    """Offsets of tag and index within a frame, and what they say by queue pair."""
    made = training_run((f"job:kind=ddp,steps=2,nccl={layout}",))
    to = {(q["dst"], q["src_qp"]): q for q in made.truth["queue_pairs"]}
    count: dict[int, int] = defaultdict(int)
    rows: dict[int, int] = {}
    for tap in made.captures():
        for _, frame in _frames(made, tap, 128):
            if frame[42] != 0x0A:
                continue
            pair = to[".".join(map(str, frame[26:30])), int.from_bytes(frame[47:50], "big")]
            count[pair["from_rank"]] += 1
            tag, index = struct.unpack_from("<I", frame, at[0])[0], at[1]
            assert tag == pair["from_rank"]
            assert struct.unpack_from("<Q", frame, index)[0] == count[tag]
            assert struct.unpack_from("<I", frame, 78)[0] == 32768  # size, after the address
            row = struct.unpack_from(">Q", frame, 54)[0]
            assert row == rows.setdefault(tag, row) + 512 * (count[tag] - 1)  # of the table
    assert set(count.values()) == {96} and len(count) == 4


@given(rank=st.integers(0, 1 << 31), number=st.integers(0, 1 << 40), size=st.integers(1, 1 << 30))
@examples(30)
def test_bodies_of_grants_as_nccl_declares_them(rank: int, number: int, size: int) -> None:
    columns = [np.array([value]) for value in (0x7E00_1234_0000, size, 77, rank, number)]
    wide = struct.pack("<QQ4IIIQ", 0x7E00_1234_0000, size, 77, 0, 0, 0, 1, rank, number + 1)
    narrow = struct.pack("<QiIIIIxxxxQ", 0x7E00_1234_0000, size, 77, 0, 1, rank, number + 1)
    assert grant_body("2.26", *columns)[0].tobytes() == wide.ljust(64, b"\0")
    assert grant_body("2.20", *columns)[0].tobytes() == narrow.ljust(64, b"\0")


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_whole_by_an_independent_reader(kind: str) -> None:
    """dpkt reads lengths and checksums; messages are FIRST ... LAST_IMM with their bytes."""
    made = training_run((f"job:kind={kind}",), taps="hosts")
    for tap in list(made.captures())[:2]:
        messages: dict[tuple[bytes, bytes, bytes], list[bytes]] = defaultdict(list)
        for _, data in _frames(made, tap):
            ip = dpkt.ethernet.Ethernet(data).data
            assert ip.len == len(data) - 14 and ip.data.dport == 4791
            assert ip.data.ulen == ip.len - 20
            checked = bytes(ip)[:20]
            ip.sum = 0
            assert bytes(ip)[:20] == checked
            bth = bytes(ip.data.data)
            if bth[0] in (6, 7, 9, 11):
                messages[ip.src, ip.dst, bth[5:8]].append(bth)
        assert messages
        for packets in messages.values():
            psns = [int.from_bytes(bth[9:12], "big") for bth in packets]
            assert all((b - a) & 0xFFFFFF == 1 for a, b in pairwise(psns))
            for bth in packets:
                pad = bth[1] >> 4 & 3
                if bth[0] in (6, 11):
                    length, got = struct.unpack_from(">I", bth, 24)[0], 0
                got += len(bth) - 12 - 4 - pad - {6: 16, 7: 0, 9: 4, 11: 20}[bth[0]]
                if bth[0] in (9, 11):
                    at = 12 + (16 if bth[0] == 11 else 0)
                    assert struct.unpack_from("<I", bth, at)[0] == length == got


def test_the_analyzer_finds_no_fault_in_a_clean_run_and_the_same_packets(tmp_path: Path) -> None:
    made = training_run(("job:kind=fsdp,steps=4",), taps="uplinks")
    paths = []
    for name, seen in made.captures().items():
        paths.append(tmp_path / f"{name}.pcap")
        paths[-1].write_bytes(b"".join(made.pcap(seen, 4300)))
    analysis = analyze([str(path) for path in paths], AnalyzeOptions())
    assert not analysis.diagnosis.findings
    flows = {(f.src, f.dst, f.dest_qp): f for f in analysis.flows}
    assert len(flows) == len(made.truth["flows"])
    for true in made.truth["flows"]:
        flow = flows[true["src"], true["dst"], true["dest_qp"]]
        assert flow.packets == true["packets"] and flow.payload_bytes == true["payload_bytes"]
    assert not analysis.events


def _numbers_twin(way: list[int], key: list[int], stamp: list[int], time: list[int]) -> list[int]:
    first: dict[tuple[int, int, int], int] = {}
    rows = list(zip(way, (k & ~MARKED for k in key), stamp, strict=True))
    for row, at in zip(rows, time, strict=True):
        first[row] = min(first.get(row, at), at)
    order = sorted(first, key=lambda row: (row[0], first[row]))
    place = {row: sum(r[0] == row[0] for r in order[:i]) + 1 for i, row in enumerate(order)}
    return [place[row] for row in rows]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.integers(0, 2)),
        max_size=30,
    )
)
@examples(60)
def test_packets_keep_their_number_at_all_taps(rows: list[tuple[int, int, bool, int]]) -> None:
    way = [row[0] for row in rows]
    key = [row[1] | MARKED * row[2] for row in rows]
    stamp = [row[3] for row in rows]
    time = list(range(len(rows)))  # no two at once: their order would not be told
    found = identifications(*(np.array(c, np.int64) for c in (way, key, stamp, time)))
    assert found.tolist() == _numbers_twin(way, key, stamp, time)


# Taps.


def test_taps_see_packets_when_they_leave_or_arrive() -> None:
    """A packet passes a leaf's uplink after the host's link and before the other leaf: at least
    the time on the wire and two delays lie between."""
    made = training_run(("job:kind=ddp,steps=2",), taps="uplinks+hosts")
    times: dict[int, dict[str, int]] = defaultdict(dict)
    for view in made.views:
        seen = view.seen
        assert (np.diff(seen.time_ns) >= 0).all() and (view.lost == 0).all()
        data = (seen.key & ACK) == 0
        for message, number, at, hops in zip(
            seen.message[data], seen.number[data], seen.time_ns[data], seen.hops[data], strict=True
        ):
            times[int(message) << 20 | int(number)][int(hops)] = int(at)
    longest = max(len(stages) for stages in times.values())
    assert longest == 4  # of hosts on different leaves: both hosts and both uplinks
    for stages in times.values():
        order = [stages[hops] for hops in sorted(stages)]
        assert order == sorted(order)
        if len(order) == 4:
            assert order[1] - order[0] >= 1_000 + 62 * 4  # a delay of 1 us, and 2 Gb/s
            assert order[2] - order[1] >= 2_000 + 62 * 4


def test_lost_packets_are_missing_after_their_link_and_sent_again() -> None:
    made = training_run(
        ("job:kind=ddp,steps=6",), ("loss:link=leaf1>spine1,from=1,chance=2%",), "uplinks"
    )
    before = next(v for v in made.views if v.tap.name == "leaf1-spine1")
    after = next(v for v in made.views if v.tap.name == "leaf2-spine1")

    def packets(seen: Seen) -> list[tuple[int, int]]:
        return list(zip(seen.message.tolist(), seen.number.tolist(), strict=True))

    data = (before.seen.key & ACK) == 0
    gone = before.seen.take(np.flatnonzero((before.lost != 0) & data))
    whole = set(packets(after.seen.take(np.flatnonzero((after.seen.key & ACK) == 0))))
    assert all(packet in whole for packet in packets(gone))  # retransmitted
    assert ((after.seen.key & TRIMMED) != 0).any()  # after a NAK
    assert len(gone.key) > 3 and not after.lost.any()


# The truth.


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_run_has_steps_in_order_with_parts_that_add_up(kind: str) -> None:
    (job,) = training_run((f"job:kind={kind},compute=20ms",)).truth["jobs"]
    before = None
    for step in job["steps"]:
        assert step["complete"] and step["causes"] == [] and step["fault_ns"] is None
        assert 0 <= step["network_ns"] < step["duration_ns"]
        begin = step["start_ns"] if before is None else before["end_ns"]
        assert abs(step["end_ns"] - begin - step["duration_ns"]) <= 1
        if step["last_message_ns"] is not None:
            assert step["first_message_ns"] <= step["last_message_ns"] <= step["end_ns"]
        before = step


def test_without_jitter_a_perfect_network_leaves_the_compute_time() -> None:
    (job,) = training_run(("job:kind=ddp,jitter=0%,buckets=1,steps=4",)).truth["jobs"]
    for step in job["steps"][1:]:
        alone = step["duration_ns"] - step["network_ns"]
        assert 30_000_000 <= alone <= 30_100_000  # kernels and copies take some us


def test_a_slow_gpu_costs_what_it_computes_longer_and_comes_last() -> None:
    text = "job:kind=ddp,jitter=0.2%,compute=40ms"
    made = training_run((text,), ("slow-gpu:rank=2,from=3,until=6,factor=1.5",))
    (job,) = made.truth["jobs"]
    for step in job["steps"]:
        slow = 3 <= step["step"] < 6
        assert [cause["ranks"] for cause in step["causes"]] == ([[2]] if slow else [])
        if slow:
            assert 18e6 < step["fault_ns"] < 20.5e6  # half of 40 ms, after the network's slack
            assert step["last_rank"] == 2 and step["waited_ns"] > 18e6
        elif step["step"] < 3:
            assert step["fault_ns"] == 0
    clean = training_run((text,)).truth["jobs"][0]
    for one, other in zip(clean["steps"][:3], job["steps"][:3], strict=True):
        assert one["duration_ns"] == other["duration_ns"]


def test_late_launches_delay_grants_and_slow_gpus_do_not() -> None:
    """Of the slow rank: when its grants leave, after the step begins."""

    def lead(fault: str) -> float:
        made = training_run(("job:kind=ddp,jitter=0.2%",), (fault,), "hosts")
        step = made.truth["jobs"][0]["steps"][5]
        messages, wire = made.wire.messages, made.wire
        seen = made.captures()["host2"]  # spread over leaves: rank 2 is the second host of leaf 1
        at = seen.time_ns
        rows = (messages.kind[seen.message] == GRANT) & ((seen.key & ACK) == 0) & (seen.hops == 0)
        rows &= wire.step[seen.message] == 5
        return float(at[rows].min() - step["start_ns"])

    late = lead("late-launch:rank=2,from=4,delay=12ms")
    slow = lead("slow-gpu:rank=2,from=4,factor=1.6")
    assert late > 12e6 > slow


def test_a_congested_link_names_who_sends_through_it() -> None:
    fault = "congested-link:link=leaf1>spine1,from=2,factor=0.1"
    made = training_run(("job:kind=ddp,steps=5",), (fault,))
    (job,) = made.truth["jobs"]
    (cause,) = job["steps"][3]["causes"]
    assert cause["kind"] == "congested_link" and cause["link"] == "leaf1>spine1"
    seen = made.captures()["leaf1-spine1"]
    data = (made.wire.messages.kind[seen.message] == DATA) & ((seen.key & ACK) == 0)
    up = data & (seen.hops == 1)
    flows = np.unique(made.wire.messages.flow[seen.message[up]])
    sources = {".".join(map(str, made.wire.flows.src[flow])) for flow in flows}
    assert set(cause["sources"]) == sources
    assert job["steps"][3]["network_ns"] > 2 * job["steps"][0]["network_ns"]
    assert job["steps"][1]["causes"] == []


def test_a_hang_ends_a_job_or_a_restart_follows_with_new_queue_pairs() -> None:
    text = ("job:kind=ddp,steps=7",)
    (job,) = training_run(text, ("hang:rank=3,from=4",)).truth["jobs"]
    assert [step["complete"] for step in job["steps"]] == [True] * 4 + [False]
    made = training_run(text, ("hang:rank=3,from=4,restart=100ms,lost-steps=2",))
    (job,) = made.truth["jobs"]
    again = [step for step in job["steps"] if step["generation"] == 1]
    assert [step["step"] for step in again] == [2, 3, 4, 5, 6]
    assert all(step["complete"] for step in again)
    hang, (restart,) = made.truth["hang"], made.truth["restarts"]
    assert hang["ranks"] == [3] and hang["step"] == 4 and restart["first_step"] == 2
    assert restart["at_ns"] - hang["at_ns"] == 100_000_000
    assert hang["lost_ns"] == again[2]["start_ns"] - hang["at_ns"]
    first, second = (
        {(q["src_qp"], q["dst_qp"]) for q in made.truth["queue_pairs"] if q["generation"] == g}
        for g in (0, 1)
    )
    assert len(first) == len(second) == 4 and not first & second


@pytest.mark.parametrize("in_kernel", ["yes", "no"])
def test_a_rank_that_hangs_sends_nothing_and_grants_only_if_its_cpu_goes_on(
    in_kernel: str,
) -> None:
    made = training_run(
        ("job:kind=ddp,steps=7",), (f"hang:rank=3,from=4,kernel={in_kernel}",), "hosts"
    )
    messages, run = made.wire.messages, made.wire
    senders: dict[int, set[str]] = {DATA: set(), GRANT: set()}
    for seen in made.captures().values():
        sent = ((seen.key & ACK) == 0) & (run.step[seen.message] == 4)
        for message in np.unique(seen.message[sent]).tolist():
            source = made.wire.flows.src[messages.flow[message]]
            senders[int(messages.kind[message])].add(".".join(map(str, source)))
    hanging = made.truth["jobs"][0]["ranks"][3]["address"]
    assert hanging not in senders[DATA]
    assert len(senders[DATA]) == (3 if in_kernel == "yes" else 2)  # one has no grant from it
    assert (hanging in senders[GRANT]) == (in_kernel == "yes")


def test_two_jobs_on_the_same_ports_have_their_own_queue_pairs_and_steps() -> None:
    made = training_run(("job:kind=ddp,steps=4", "job:kind=fsdp,steps=5,with=a,start=7ms"))
    one, two = made.truth["jobs"]
    assert [r["address"] for r in one["ranks"]] == [r["address"] for r in two["ranks"]]
    assert two["steps"][0]["start_ns"] - one["steps"][0]["start_ns"] == 7_000_000
    pairs = [(q["dst"], q["dst_qp"]) for q in made.truth["queue_pairs"]]
    assert len(set(pairs)) == len(pairs) == 8


def test_rails_are_components_and_a_slow_gpu_delays_all_interfaces_of_its_host() -> None:
    made = training_run(
        ("job:kind=fsdp,ranks=8,nics=2,steps=5,jitter=0.5%",),
        ("slow-gpu:rank=2,from=2,factor=1.4",),
    )
    (job,) = made.truth["jobs"]
    assert len(job["visible_components"]) == 2
    assert [rank["host"] for rank in job["ranks"]][2:4] == [job["ranks"][2]["host"]] * 2
    assert job["steps"][3]["causes"][0]["ranks"] == [2, 3]
    assert job["steps"][3]["last_rank"] in (2, 3)
    for view in made.views:  # signals inside hosts are on no tap
        assert set(made.wire.messages.kind[view.seen.message].tolist()) == {DATA, GRANT}


def test_the_same_seed_makes_the_same_run_and_another_seed_another_one() -> None:
    jobs, faults = ("job:kind=moe,steps=2",), ("loss:link=leaf1-spine1,chance=1%",)
    training_run.cache_clear()
    one = training_run(jobs, faults)
    training_run.cache_clear()
    two, other = training_run(jobs, faults), training_run(jobs, faults, seed=2)
    for tap in one.captures():
        assert b"".join(one.pcap(one.captures()[tap], 128)) == b"".join(
            two.pcap(two.captures()[tap], 128)
        )
    assert one.truth == two.truth != other.truth
    assert FABRIC.hosts == 8
