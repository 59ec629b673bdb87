"""Schemes side by side: what the result says of them."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from aggregating import ONE_RACK, small_jobs
from captures import DATA

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.results.flow import Owner
from rocescope.replay.aggregation import compare
from rocescope.replay.aggregation.all_reduce import PIECE_BYTES, _ring, _tree, run_all_reduce
from rocescope.replay.aggregation.captured import HEADERS, captured_jobs
from rocescope.replay.aggregation.compare import aggregation_result, check_sizes
from rocescope.replay.aggregation.jobs import PAYLOAD_BYTES, parse_jobs, place, priorities
from rocescope.replay.aggregation.request import (
    AggregationRequest,
    PreparedAggregation,
    parse_schemes,
)
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes import atp
from rocescope.replay.compare.packets import COMPILING
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import PacketKeys
from rocescope.replay.jobs.collectives import MODELS
from rocescope.replay.traffic.traffic import SentMessages, Traffic

# Schemes side by side: what the result says of them.


@pytest.mark.parametrize(("kernels", "said"), [(["run_jobs"], COMPILING), ([], "runs")])
def test_compiling_is_told_instead_of_runs(monkeypatch, kernels, said):
    jobs, fabric = small_jobs("workers=2,fragments=20,window=8,iterations=1")
    monkeypatch.setattr(compare, "IDLE_TICKS", 0)
    monkeypatch.setattr(compare, "compiling", kernels)
    steps = []
    aggregation_result(
        parse_schemes(["atp"]), [48], jobs, fabric, Conditions(0), 1,
        progress=lambda *now: steps.append(now),
    )  # fmt: skip
    assert steps[-1] == (said, 1, 1)


def test_what_is_assumed_of_a_scheme_is_named_where_it_matters():
    jobs, fabric = small_jobs(
        "workers=4,racks=2,fragments=20,window=8,iterations=1",
        fabric="leaf-spine:leaves=2,spines=1,hosts=4",
    )
    result = aggregation_result(
        parse_schemes(["switchml", "a2tp"]), [48], jobs, fabric, Conditions(0), 1
    )
    assert result.assumed[:2] == [compare.A2TP_ASSUMED, compare.RACKS_ASSUMED]
    assert [one.jobs[0].aggregated_percent for one in result.schemes] == [100, 100]
    alone, fabric = small_jobs("workers=2,fragments=20,window=8,iterations=1")
    result = aggregation_result(parse_schemes(["switchml"]), [48], alone, fabric, Conditions(0), 1)
    assert result.assumed == [compare.JOBS_ASSUMED]


def test_every_scheme_runs_with_every_memory_that_limits_it():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=200,window=32,iterations=2")
    schemes = parse_schemes(["atp", "switchml", "ideal", "none"])
    done = []
    result = aggregation_result(
        schemes, [48, 512], jobs, fabric, Conditions(0), 2, False, (), lambda *now: done.append(now)
    )
    named = [(one.name, one.slots) for one in result.schemes]
    assert named == [
        ("atp", 48), ("atp", 512), ("switchml", 48), ("switchml", 512),
        ("ideal", None), ("none", None),
    ]  # fmt: skip
    assert done[-1] == ("runs", 12, 12)
    by = dict(zip(named, result.schemes, strict=True))
    assert by["ideal", None].mean_completion_ns < by["none", None].mean_completion_ns
    assert by["ideal", None].jobs[0].aggregated_percent == 100
    assert by["none", None].jobs[0].aggregated_percent == 0
    assert by["atp", 48].jobs[0].collisions > 0 == by["atp", 512].jobs[1].preemptions
    for one in result.schemes:
        assert one.least_completion_ns <= one.mean_completion_ns <= one.most_completion_ns
        assert one.links == sorted(one.links, key=lambda link: -link.wire_bytes)
        if one.occupancy is not None:
            assert 0 < one.useful_percent <= one.used_percent <= 100
            shares = zip(one.occupancy.useful_percent, one.occupancy.used_percent, strict=True)
            assert all(useful <= used <= 100.001 for useful, used in shares)
    assert by["switchml", 48].occupancy is None  # fixed shares
    assert not result.warnings


def test_schemes_that_cannot_run_are_told_before_the_first_run():
    jobs, fabric = small_jobs("workers=2,fragments=50,window=32")
    schemes, ran = parse_schemes(["ideal", "atp"]), []
    with pytest.raises(UsageError, match="atp: job1 comm has a window of 32"):
        aggregation_result(
            schemes, [16], jobs, fabric, Conditions(0), 1, False, (), lambda *now: ran.append(now)
        )
    assert not ran
    result = aggregation_result(schemes, [16], jobs, fabric, Conditions(0), 1, True)
    assert [one.name for one in result.schemes] == ["ideal"]
    assert result.warnings[0].startswith("left out: atp: job1 comm")


def test_slots_that_late_copies_hold_are_told():
    jobs, fabric = small_jobs("workers=4,fragments=2000,iterations=4,window=400")
    noisy = Conditions(0, copies=0.05)
    result = aggregation_result(parse_schemes(["atp"]), [512], jobs, fabric, noisy, 1)
    assert "still occupied after the end of all jobs" in result.warnings[0]


def test_without_aggregation_nothing_is_aggregated():
    jobs, fabric = small_jobs("workers=1,fragments=50,window=32")
    result = aggregation_result(parse_schemes(["none"]), [64], jobs, fabric, Conditions(0), 1)
    assert result.schemes[0].jobs[0].aggregated_percent == 0


def test_a_job_that_does_not_end_is_named():
    jobs, fabric = small_jobs("workers=3,fragments=200,window=32")
    short = Conditions(64, until_ps=1_000_000)
    result = aggregation_result(parse_schemes(["atp"]), [64], jobs, fabric, short, 1)
    assert result.schemes[0].mean_completion_ns is None
    assert result.warnings == ["atp: a job did not end within the simulated time"]


def test_memory_without_slots():
    with pytest.raises(UsageError, match="--memory must be 1 to"):
        check_sizes([0])


def test_ring_and_tree_beside_the_schemes():
    jobs, fabric = small_jobs("workers=8,fragments=2000", "workers=1,fragments=10")
    schemes = parse_schemes(["atp", "ring", "tree"])
    result = aggregation_result(schemes, [4096], jobs, fabric, Conditions(0), 2)
    atp, ring, tree = result.schemes
    assert atp.mean_completion_ns < ring.mean_completion_ns  # every gradient leaves a host once
    for one in (ring, tree):
        assert one.slots is None and one.jobs[0].server_packets == 0 and one.links
        assert one.wire_bytes == pytest.approx(sum(link.wire_bytes for link in one.links))
        assert one.least_completion_ns <= one.mean_completion_ns <= one.most_completion_ns
    assert any(text.startswith("ring and tree") for text in result.assumed)


# Ring and tree all-reduces: their bytes, the time of a ring by hand, what a message waits for.

HEADER = ACK = 64


def test_a_ring_takes_its_steps_and_carries_its_bytes():
    jobs, fabric = small_jobs("workers=4,fragments=1000,iterations=2")
    found = run_all_reduce("ring", jobs, fabric, 0, 0.0)
    chunk = 1000 * PAYLOAD_BYTES // 4
    full, last = divmod(chunk, 4096)
    wire = [4096 + HEADER] * full + [last + HEADER] * (last > 0)
    byte_ps = 80  # 100 Gb/s
    # Through the switch a message takes its bytes, the packet before its short last one once
    # more, and the delays; ACKs of 64 B come between.
    step = (sum(wire) + wire[0]) * byte_ps + 2 * 500_000
    computing = jobs[0].steps[0].computed_ps[-1]
    least = 2 * (computing + 6 * step)
    done = found.completion_ps[0]
    assert done is not None and least <= done <= least + 2 * 6 * len(wire) * ACK * byte_ps * 2
    sent = int(fabric.attachments.access_link[jobs[0].workers[0], 0])
    acks = 2 * 6 * len(wire) * ACK
    assert found.link_bytes[sent] == 2 * 6 * sum(wire) + acks
    assert found.packets == [2 * 4 * 6 * len(wire)]


def test_the_trees_carry_every_byte_once_up_and_once_down_each_edge():
    size = 5 * PIECE_BYTES + 7
    for n in (2, 3, 5, 8):
        plan = _tree(tuple(range(n)), size)
        assert sum(plan.messages) == len(plan.sizes) == len(plan.after)
        assert 0 <= sum(plan.sizes) - 2 * (n - 1) * size <= 2 * (n - 1)
        flow = np.repeat(np.arange(len(plan.src)), plan.messages)
        for message, before in enumerate(plan.after):
            if before >= 0:  # arrived at the host that then sends
                assert plan.dst[flow[before]] == plan.src[flow[message]]
                assert plan.sizes[before] == plan.sizes[message]
        # Every host gets the whole result: half over each tree, unless it is the tree's root.
        assert sum(before < 0 for before in plan.after) >= plan.messages[0] * 2


@pytest.mark.parametrize("kind", ["ring", "tree"])
def test_no_message_waits_for_itself(kind):
    plan = (_ring if kind == "ring" else _tree)(tuple(range(6)), 1_000_000)
    done: set[int] = set()
    for _ in plan.after:
        ready = {m for m, before in enumerate(plan.after) if before < 0 or before in done}
        if ready == done:
            break
        done = ready
    assert len(done) == len(plan.after)


def test_stragglers_and_jobs_of_one_worker():
    jobs, fabric = small_jobs(
        "workers=3,fragments=500,iterations=2", "workers=1,fragments=500,iterations=3"
    )
    slow, _ = small_jobs(
        "workers=3,fragments=500,iterations=2,stragglers=1,slowdown=4",
        "workers=1,fragments=500,iterations=3",
    )
    even, late = (run_all_reduce("tree", both, fabric, 0, 0.0) for both in (jobs, slow))
    computing = jobs[0].steps[0].computed_ps[-1]
    assert late.completion_ps[0] - even.completion_ps[0] == 2 * 3 * computing
    assert even.completion_ps[1] == 3 * jobs[1].steps[0].computed_ps[-1] and even.packets[1] == 0


# Jobs from captures: rings and pairs with known sizes and gaps become jobs with these.

MS = 1_000_000
FABRIC = parse_fabric(ONE_RACK)
START = 1_700_000_000 * 10**9


def captured(rows, unmapped=()):
    """Traffic of (src, dst, begun ms, ended ms, payload): one flow per pair, one packet each."""
    pairs = sorted({row[:2] for row in rows})
    flow = {pair: number for number, pair in enumerate(pairs)}
    rows = sorted(rows, key=lambda row: (flow[row[:2]], row[2]))
    n, m = len(pairs), len(rows)
    zeros = np.zeros(n, np.int64)
    sent = SentMessages(
        flow=np.array([flow[row[:2]] for row in rows], np.int32),
        responses=np.zeros(m, np.bool_),
        packets=np.ones(m, np.int64),
        payload_bytes=np.array([row[4] for row in rows], np.int64),
        wire_bytes=np.array([row[4] + HEADERS[0] + 16 for row in rows], np.int64),
        begun_ns=np.array([START + round(row[2] * MS) for row in rows], np.int64),
        ended_ns=np.array([START + round(row[3] * MS) for row in rows], np.int64),
        after=np.full(m, -1, np.int32),
        on=np.zeros(m, np.uint8),
    )
    columns = dict.fromkeys(PacketKeys._fields, zeros)
    return Traffic(
        keys=PacketKeys(**{**columns, "ipv6": np.zeros(n, np.bool_)}),
        src_host=np.array([pair[0] for pair in pairs], np.int32),
        dst_host=np.array([pair[1] for pair in pairs], np.int32),
        flow=np.arange(n, dtype=np.int32),
        packets=zeros,
        wire_bytes=zeros,
        first_ns=zeros,
        last_ns=zeros,
        messages=sent,
        unmapped=tuple(unmapped),
    )


def ring(hosts, rounds):
    """Rows of a ring: rounds are (start of each host in ms, data bytes of a worker); each of
    2 (n - 1) steps takes 1 ms."""
    n, rows = len(hosts), []
    for begins, data in rounds:
        start = max(begins)
        for step in range(2 * (n - 1)):
            for at, host in enumerate(hosts):
                begun = begins[at] if step == 0 else start + step
                rows.append((host, hosts[(at + 1) % n], begun, start + step + 1, data // n))
    return rows


def test_a_ring_is_a_job_with_the_sizes_and_gaps_of_its_collectives():
    # Collectives of 4 ms (3 hosts: 4 steps); host 4 computes 6 ms, the others 10 ms.
    first, second = ((0, 0, 0), 3 * 24_800), ((14, 10, 14), 3 * 49_600)
    (job,), notes = captured_jobs(captured(ring((2, 4, 6), [first, second])), FABRIC, 100, 3 * MS)
    assert job.workers == (2, 4, 6) and job.name == "job1 captured ring" and not notes
    assert [step.fragments for step in job.steps] == [(300,), (600,)]
    assert job.steps[1].computed_ps == (10 * MS * 1000,)
    assert [own[1] for own in job.slowness] == [1.0, 0.6, 1.0]
    assert job.start_ps == 0 and job.took_ns == 18 * MS
    assert job.server not in job.workers

    still = Conditions(slots=4096)
    found = simulate(atp({}), [job], FABRIC, still)
    # Computing is as captured, whatever the jitter; summing takes microseconds here.
    assert 10 * 10**9 < found.finished_ps.max() < 10.3 * 10**9


def test_a_job_of_two_hosts_is_no_certain_job():
    rows = ring((2, 4), [((0, 0), 2 * 24_800), ((14, 10), 2 * 49_600)])
    (job,), notes = captured_jobs(captured(rows), FABRIC, 100, 3 * MS)
    assert job.workers == (2, 4)
    assert len(notes) == 1 and notes[0].endswith("to each other may do no all-reduce")


def test_an_exchange_between_all_pairs_is_a_job_and_starts_keep_their_distance():
    every = [(a, b, 5, 6, 31_000) for a in range(4) for b in range(4) if a != b]
    rows = ring((8, 9), [((0, 0), 2 * 24_800)]) + every
    jobs, _ = captured_jobs(captured(rows), FABRIC, 100, MS)
    by = {job.name.split()[-1]: job for job in jobs}
    assert by["pairs"].workers == (0, 1, 2, 3)
    assert by["pairs"].steps[0].fragments == (3 * 31_000 * 4 // (2 * 3) // PAYLOAD_BYTES,)
    assert by["pairs"].start_ps - by["ring"].start_ps == 5 * MS * 1000
    more = place(parse_jobs(["workers=3"], 3), FABRIC, jobs)
    taken = {host for job in jobs for host in (*job.workers, job.server)}
    assert not taken & {*more[0].workers, more[0].server} and more[0].name == "job3 comm"


def test_silences_within_a_collective_do_not_end_it():
    rows = ring((1, 2, 3), [((0, 0, 0), 74_400)])
    waits = [(a, b, x + 5 * (x >= 2), y + 5 * (x >= 2), size) for a, b, x, y, size in rows]
    # One host of the ring passes its message on before the others wait.
    waits.remove((1, 2, 1, 2, 24_800))
    waits.append((1, 2, 7, 8, 24_800))
    (job,), _ = captured_jobs(captured(waits), FABRIC, 100, 3 * MS)
    assert len(job.steps) == 1


def test_requests_for_data_are_no_data():
    rows = ring((1, 2, 3), [((0, 0, 0), 3 * 24_800)])
    rows += [(b, a, x, x, 16) for a, b, x, _, _ in rows]
    (job,), _ = captured_jobs(captured(rows), FABRIC, 100, MS)
    assert job.name == "job1 captured ring" and job.steps[0].fragments == (300,)


def test_a_server_shares_a_host_only_where_none_is_free():
    full = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=3,rate=100G")
    (job,), notes = captured_jobs(captured(ring((0, 1, 2), [((0, 0, 0), 74_400)])), full, 100, MS)
    assert job.server == 0 and "no free host for a parameter server" in notes[0]
    found = simulate(atp({}), [job], full, Conditions(slots=4096))
    assert (found.finished_ps >= 0).all()


def test_a_capture_that_begins_within_a_collective_counts_as_seen():
    rounds = [((at, at, at), 74_400) for at in range(0, 80, 20)]
    rows = ring((1, 2, 3), rounds)[1:]
    (job,), notes = captured_jobs(captured(rows), FABRIC, 100, MS)
    assert len(job.steps) == 1 and "begins or ends within a collective" in notes[0]


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (
            captured([(0, 1, 0, 1, 5000)]),
            "no all-reduce .* host1, host2: its hosts send 0 to 5,000",
        ),
        (captured([(0, 0, 0, 1, 5000)]), "no host sends messages"),
        (captured([(0, 1, 0, 1, 9)], ["10.9.9.9"]), "the address 10.9.9.9 of the captures"),
        (replace(captured([(0, 1, 0, 1, 9)]), messages=None), "too many messages"),
    ],
)
def test_captures_without_collectives(traffic, said):
    with pytest.raises(UsageError, match=said):
        captured_jobs(traffic, FABRIC, 100, MS)


def test_more_hosts_than_bits_of_a_bitmap():
    large = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=64,rate=100G")
    rows = ring(tuple(range(63)), [((0,) * 63, 63 * 248)])
    with pytest.raises(UsageError, match="63 hosts are more than the 62 workers of a bitmap"):
        captured_jobs(captured(rows), large, 100, MS)


def test_logs_name_the_ranks_of_workers():
    rows = [(host, (host + 1) % 3, at, at + 1, 10_000) for host in range(3) for at in (0, 10)]
    traffic = captured(rows)
    (job,), _ = captured_jobs(traffic, FABRIC, 8, MS)
    assert job.ranks == ()
    # Flows are sorted by their hosts: 0 to 1, 1 to 2, 2 to 0. Host 2 has two ranks.
    owners = {
        0: Owner(1, "train", 4, comm="0x1", peer_rank=3),
        1: Owner(1, "train", 7, comm="0x1", peer_rank=4),
        2: Owner(1, "train", None, comm="0x1", peer_rank=9),
    }
    (job,), _ = captured_jobs(replace(traffic, owners=owners), FABRIC, 8, MS)
    assert job.workers == (0, 1, 2) and job.ranks == ((3,), (4,), (7, 9))


# Requests: mistakes are told before anything runs; jobs of captures are read once.

JOBS = ("count=2,workers=3,fragments=100,window=32",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"jobs": ()}, "give captures, or jobs with --jobs"),
        ({"runs": 0}, "--runs must be 1 to 1,000"),
        ({"window": 1 << 20}, "--window must be 1 to 8,192"),
        ({"memory": ()}, "--memory needs"),
        ({"jitter": 11}, "--jitter must be 0 to 10"),
        ({"reorder": 0.4, "duplicate": 0.2}, "must be at most 0.5"),
        (
            {"schemes": ("ring:steps=3",)},
            "scheme ring has no option 'steps' at column 6; it has no options",
        ),
        ({"silence": "soon"}, "--silence"),
        ({"filter": "ip.addr == 10.0.0.1"}, "need captures"),
        ({"window": 100}, "--window and --silence need captures"),
        ({"silence": "2ms"}, "--window and --silence need captures"),
        ({"jobs": ("",)}, "--jobs is empty"),
        ({"jobs": ("workers=20",)}, "do not fit the free hosts"),
    ],
)
def test_mistakes(changes, said):
    with pytest.raises(UsageError, match=said):
        PreparedAggregation(AggregationRequest(**{"fabric": ONE_RACK, "jobs": JOBS, **changes}))


def test_a_capture_with_both_directions_is_a_ring_of_two_and_is_read_once():
    capture = str(DATA / "c16_rc_write_bidir.atB.pcap.gz")
    request = AggregationRequest(ONE_RACK, (capture,), JOBS, map="order", schemes=("switchml",))
    prepared, read = PreparedAggregation(request), []
    jobs = prepared.read(lambda done, size: read.append(done))
    assert [job.name for job in jobs] == ["job1 captured ring", "job2 comm", "job3 comm"]
    sent = 2 * 60 * 65536  # queue pairs, messages, bytes; two workers send all their gradients
    assert abs(jobs[0].total * 248 - sent) <= sent // 100
    before = len(read)
    result = prepared.run()
    assert len(read) == before and result.jobs[0].captured_ns == jobs[0].took_ns
    assert result.schemes[0].mean_completion_ns > 0


def test_a_stopped_run_ends():
    stop = Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        PreparedAggregation(AggregationRequest(ONE_RACK, jobs=JOBS)).run(stop=stop)


# Jobs: their keys, their hosts, their priorities.


def test_layers_are_computed_from_the_back():
    (plan,) = parse_jobs(["model=alexnet,scale=0.1"])
    assert plan.fragments[-1] == round(MODELS["alexnet"][0] * 0.1 / 62)
    jobs, _ = small_jobs("model=alexnet,scale=0.001,workers=2")
    assert list(jobs[0].steps[0].computed_ps) == sorted(jobs[0].steps[0].computed_ps)
    assert jobs[0].steps[0].computed_ps[0] > jobs[0].steps[0].computed_ps[-1] // 3


def test_workers_and_server_have_hosts_of_their_own_in_as_many_racks_as_asked_for():
    jobs, fabric = small_jobs(
        "count=2,workers=4,racks=2", fabric="leaf-spine:leaves=4,spines=2,hosts=4"
    )
    hosts = [host for job in jobs for host in (*job.workers, job.server)]
    assert len(set(hosts)) == 10
    for job in jobs:
        racks = {int(fabric.attachments.switch[host, 0]) for host in job.workers}
        assert len(racks) == 2 and int(fabric.attachments.switch[job.server, 0]) in racks


def test_starts_are_staggered():
    jobs, _ = small_jobs("count=3,workers=2,start=1ms,stagger=2us")
    assert [job.start_ps for job in jobs] == [10**9, 10**9 + 2_000_000, 10**9 + 4_000_000]


def test_priorities_rise_towards_the_end_the_front_and_with_communication():
    jobs, _ = small_jobs("workers=2,layers=2,iterations=3", "workers=2,layers=2,model=comp")
    heavy, light = priorities(jobs, 100_000_000_000)
    assert heavy[0][0] < heavy[1][0] < heavy[2][0]
    assert all(back < front for back, front in heavy)
    assert all(h > l for h, l in zip(heavy, light, strict=True))
    levels = [level for job in (heavy, light) for row in job for level in row]
    assert 0 <= min(levels) and max(levels) <= 255


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("workers=63", "workers '63' is not a whole number from 1 to 62"),
        ("model=gpt", "no model 'gpt'; there are comm"),
        ("sizes=3", "no key 'sizes'"),
        ("model=vgg16,fragments=3", "fragments is for comm and comp"),
        ("model=comm,ratio=2", "the ratio of comm is 2"),
        ("scale=-1", "scale .* is not a number"),
        ("scale=nan", "scale .* is not a number"),
        ("model=vgg16,scale=1000", "exceed"),
        ("start=soon", "start"),
        ("workers", "not key=value"),
        ("overflow=1.5", "overflow '1.5' is not a number from 0 to 1"),
        ("slowdown=0.5", "slowdown '0.5' is not a number from 1 to 100"),
        ("workers=2,stragglers=3", "2 workers have no 3 stragglers"),
        ("iterations=10000,layers=1000", "iterations times layers must be at most"),
    ],
)
def test_mistakes_jobs(spec, said):
    with pytest.raises(UsageError, match=said):
        parse_jobs([spec])


@pytest.mark.parametrize(
    ("spec", "fabric", "said"),
    [
        ("workers=16", ONE_RACK, "do not fit the free hosts"),
        ("workers=2,racks=3", ONE_RACK, "do not fill 3 racks"),
        ("workers=4,racks=2", ONE_RACK, "do not fit the free hosts"),
        ("count=300", ONE_RACK, "count '300' is not a whole number from 1 to 256"),
        ("workers=2,model=vgg16,ratio=1e-6", ONE_RACK, "computes for over an hour"),
        ("workers=2", "multi-plane:planes=2,leaves=2,spines=2,hosts=4", "hosts with one port"),
    ],
)
def test_jobs_that_do_not_fit(spec, fabric, said):
    with pytest.raises(UsageError, match=said):
        place(parse_jobs([spec]), parse_fabric(fabric))
