"""Jobs from captures: rings and pairs with known sizes and gaps become jobs with these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from aggregating import ONE_RACK

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.results.flow import Owner
from rocescope.replay.aggregation.captured import HEADERS, captured_jobs
from rocescope.replay.aggregation.jobs import PAYLOAD_BYTES, parse_jobs, place
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes import atp
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import PacketKeys
from rocescope.replay.traffic.traffic import SentMessages, Traffic

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
