"""What the lines of a job say together."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_logs import COMM, encoded, nccl, ucx, ucx_dc, ucx_end

from rocescope.analyzer.jobs import job as following
from rocescope.analyzer.jobs import job as module
from rocescope.analyzer.jobs.job import FollowedLogs, Job
from rocescope.analyzer.jobs.lines import LONGEST_LINE_BYTES, Speaker

# What the lines of a job say together.

NODEA = Speaker("nodea", 7, 0)
HEAD = "nodea:7:9 [0] NCCL INFO "
SECOND = HEAD + (
    "ncclCommInitRank comm 0x77 rank 2 nranks 4 cudaDev 0 nvmlDev 0 busId 1000"
    " commId 0xdef - Init START"
)


def read(*logs):
    job = Job()
    for log in logs:
        job.read(encoded(log))
    return job


def test_a_queue_pair_has_process_rank_communicator_device_and_channel():
    job = read(nccl("nodea", 7, 11, 3, "10.0.0.1", [34, 35]))
    one, other = job.pairs()
    assert (one.qpn, one.speaker, one.rank, one.comm) == (34, NODEA, 11, COMM)
    assert (one.address, one.device, one.time_ns) == ("10.0.0.1", "rxe0", None)
    assert (one.channel, other.channel) == (0, 1)
    assert job.neighbours == {(COMM, 11): {3}}
    assert job.pair_of(NODEA, 35, None) is other


def test_several_queue_pairs_of_each_channel():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34, 35, 36, 37]))
    log = [line for line in log if "Channel 02" not in line and "Channel 03" not in line]
    assert [pair.channel for pair in read(log).pairs()] == [0, 0, 1, 1]


def test_channels_that_do_not_divide_the_queue_pairs_stay_unknown():
    log = [x for x in nccl("nodea", 7, 11, 3, "10.0.0.1", [34, 35, 36]) if "Channel 02" not in x]
    assert [pair.channel for pair in read(log).pairs()] == [None] * 3


def test_processes_of_one_file_are_told_apart():
    logs = [nccl("nodea", 7, 11, 3, "10.0.0.1", [34]), nccl("nodea", 8, 12, 4, "10.0.0.1", [35])]
    mixed = [line for both in zip(*logs, strict=True) for line in both]
    assert [(p.speaker.pid, p.rank) for p in read(mixed).pairs()] == [(7, 11), (8, 12)]


def test_a_later_communicator_leaves_queue_pairs_of_neither_certain():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    late = [SECOND, SECOND.replace("START", "COMPLETE"), log[3].replace("qpn 34", "qpn 35")]
    first, second = read([*log, *late]).pairs()
    assert (first.comm, first.rank) == (COMM, 11)
    assert (second.qpn, second.comm, second.rank) == (35, None, None)


def test_a_communicator_that_begins_owns_the_queue_pairs_up_to_its_end():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    _, second = read([*log, SECOND, log[3].replace("qpn 34", "qpn 35")]).pairs()
    assert (second.comm, second.rank) == ("0xdef", 2)


def test_a_destroyed_communicator_is_no_candidate():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    gone = log[-1].replace("Init COMPLETE", "Destroy COMPLETE")
    late = [gone, SECOND, SECOND.replace("START", "COMPLETE"), log[3].replace("34", "35")]
    assert read([*log, *late]).pairs()[1].comm == "0xdef"


def test_receivers_get_their_address_from_other_lines_of_the_host():
    created = HEAD + (
        "NET/IB: ncclIbReceiverQpsCreateToRts: QP created: port=1 dev=0 devName=rxe0 ndevs=1"
        " nmdevs=1 qp_num=50 pkey=0 pd=0x1 oooRq=0"
    )
    log = [created, *nccl("nodea", 7, 11, 3, "10.0.0.1", [34])]
    assert read(log).pairs()[0].address == "10.0.0.1"
    assert read([created]).pairs()[0].address is None
    two = [*log, *nccl("nodea", 8, 12, 3, "10.0.0.9", [36])]
    assert read(two).pairs()[0].address is None  # which of the two?


def test_devices_have_the_numbers_of_their_process():
    """Processes of one host may use different devices (NCCL_IB_HCA)."""
    created = (
        "nodea:8:9 [0] NCCL INFO NET/IB: ncclIbReceiverQpsCreateToRts: QP created: port=1 dev=0"
        " devName=rxe1 ndevs=1 nmdevs=1 qp_num=50 pkey=0 pd=0x1 oooRq=0"
    )
    job = read(
        nccl("nodea", 7, 11, 3, "10.0.0.1", [34]),
        nccl("nodea", 8, 12, 3, "10.0.0.9", [35], device="rxe1"),
        [created],
    )
    assert [(pair.qpn, pair.device, pair.address) for pair in job.pairs()] == [
        (34, "rxe0", "10.0.0.1"),
        (35, "rxe1", "10.0.0.9"),
        (50, "rxe1", "10.0.0.9"),
    ]
    only = read(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]), [created])
    assert only.pairs()[1].address is None


def test_both_lines_of_an_error_are_one_error():
    warn = "[2026-11-21 09:05:07] nodea:7:9 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: "
    failed = warn + "ncclIbTest: Got CQE with error (devIndex=0, req=0x1, qp_num=34)"
    status = warn + (
        "Got completion from peer 10.0.0.2<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=1"
        " vendor_err=129 localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca rxe0"
    )
    (error,) = read([failed, status]).errors
    assert (error.qpn, error.status, error.remote) == (34, 12, "10.0.0.2")
    assert len(read([failed, status, status]).errors) == 2
    other = status.replace("nodea:7", "nodea:8")
    assert [error.status for error in read([failed, other]).errors] == [None, 12]


def test_unknown_lines_are_counted():
    log = [HEAD + "NET/IB: NCCL Dev 0 Port 1 queuepair 4 mtu 3", HEAD + "Init timings", "junk"]
    assert read(log).unknown_lines == 1


def split(pid, pointer, parent, rank, host="nodea", step="START", number=1, colour=1):
    """A line of NCCL 2.27 on a communicator that a process splits off."""
    return (
        f"{host}:{pid}:9 [0] NCCL INFO ncclCommSplit comm {pointer} rank {rank} nranks 2 cudaDev 0"
        f" nvmlDev 0 busId 1000 parent {parent} splitCount {number} color {colour} key 5"
        + ("- Init START" if step == "START" else f" - Init {step}")
    )


def test_a_communicator_that_is_split_off_has_the_queue_pairs_of_its_setup():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    log += [split(7, "0x77", "0x55d0000007", 1), log[3].replace("qpn 34", "qpn 35")]
    first, second = read(log).pairs()
    assert (first.comm, first.rank) == (COMM, 11)
    assert (second.comm, second.rank, second.has_several_ranks) == ("0x77", 1, False)


def test_communicators_that_were_split_off_together_are_one():
    """Pointers differ between processes, and the same pointer may be another communicator."""
    logs = [
        [*nccl("nodea", 7, 11, 3, "10.0.0.1", []), split(7, "0x77", "0x55d0000007", 1)],
        [*nccl("nodeb", 8, 3, 11, "10.0.0.2", []), split(8, "0x88", "0x55d0000008", 0, "nodeb")],
        [
            *nccl("nodec", 9, 5, 11, "10.0.0.3", []),
            split(9, "0x77", "0x55d0000009", 0, "nodec", colour=2),
            split(9, "0x99", "0x66", 1, "nodec"),  # of an unknown communicator
        ],
    ]
    job = read(*logs)
    names = {host: [*process.communicators.values()] for (host, *_), process in (
        job._processes.items()
    )}  # fmt: skip
    assert names == {
        "nodea": [(COMM, 11), ("0x77", 1)],
        "nodeb": [(COMM, 3), ("0x77", 0)],
        "nodec": [(COMM, 5), ("0x77/2", 0), ("0x99", 1)],
    }


def test_a_communicator_keeps_its_name_when_it_is_ready():
    """NCCL 2.30 writes the identifier of a grown communicator only when it begins."""
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    grown = (
        HEAD + "ncclCommGrow comm 0x55d0000007 rank 11 nranks 16 cudaDev 0 nvmlDev 0 busId 1000"
        " parent 0x66 childCount 1 color 0 key 0 - Init COMPLETE"
    )
    (process,) = read([*log[:-1], grown])._processes.values()
    assert process.communicators == {"0x55d0000007": (COMM, 11)}


def test_a_queue_pair_of_a_process_with_several_ranks_has_none():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34]))
    both = [split(7, "0x77", "0x55d0000007", 1, step=step) for step in ("START", "COMPLETE")]
    first, second = read([*log, *both, log[3].replace("qpn 34", "qpn 35")]).pairs()
    assert (first.rank, first.has_several_ranks) == (11, False)
    assert (second.rank, second.comm, second.has_several_ranks) == (None, None, True)


def test_a_channel_that_names_its_communicator():
    """As RCCL does, also while the process has several."""
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", []))
    both = [split(7, "0x77", "0x55d0000007", 1, step=step) for step in ("START", "COMPLETE")]
    channel = HEAD + "Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0 comm {} nRanks 02"
    job = read([*log, *both, channel.format("0x77"), channel.format("0x66")])
    assert job.neighbours == {("0x77", 1): {0}, (None, 1): {0}}


def test_lines_of_two_processes_with_errors_are_mixed():
    warn = "[2026-11-21 09:05:07] nodea:{}:9 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: "
    failed = warn + "ncclIbTest: Got CQE with error (devIndex=0, req=0x1, qp_num={})"
    status = warn + "Got completion from peer 10.0.0.2<5> with status=IBV_WC_RETRY_EXC_ERR({})"
    log = [failed.format(7, 34), failed.format(8, 35), status.format(7, 12), status.format(8, 13)]
    errors = read(log).errors
    assert [(error.speaker.pid, error.qpn, error.status) for error in errors] == [
        (7, 34, 12),
        (8, 35, 13),
    ]


@pytest.mark.parametrize("limit", ["MOST_QUEUE_PAIRS", "_MOST_SPEAKERS", "MOST_ERRORS"])
def test_what_is_kept_is_bounded(monkeypatch, limit):
    monkeypatch.setattr(module, limit, 3)
    warn = "node{0}:7:9 [0] x.cc:1 NCCL WARN NET/IB: f: Got CQE with error (req=0x1, qp_num=34)"
    logs = [nccl(f"node{n}", 7, n, 3, "10.0.0.1", [34]) for n in range(6)]
    job = read(*logs, [warn.format(n) for n in range(6)])
    assert job.dropped > 0
    assert len(job.pairs()) == (6 if limit == "MOST_ERRORS" else 3)
    assert len(job.errors) == (6 if limit == "MOST_QUEUE_PAIRS" else 3)


def test_the_gid_that_a_device_uses_is_the_address_of_its_queue_pairs():
    pairs = read(ucx_dc("nodea", 7, 0x1A3, [0x1A4], "10.0.0.1")).pairs()
    assert [(pair.qpn, pair.device, pair.address) for pair in pairs] == [
        (0x1A4, "mlx5_0", "10.0.0.1"),
        (0x1A3, "mlx5_0", "10.0.0.1"),
    ]
    log = list(ucx_dc("nodea", 7, 0x1A3, [], "10.0.0.1"))
    unused = [line for line in log if "using gid_index" not in line]
    unlisted = [line for line in log if "adding gid" not in line]
    other = ucx_dc("nodea", 8, 0x1A9, [], "10.0.0.9")
    elsewhere = ucx_dc("nodeb", 7, 0x1A9, [], "10.0.0.9")
    assert [pair.address for pair in read(unused).pairs()] == [None]
    assert [pair.address for pair in read(unlisted).pairs()] == [None]
    assert [pair.address for pair in read(log, other).pairs()] == [None, None]
    assert [pair.address for pair in read(log, elsewhere).pairs()] == ["10.0.0.1", "10.0.0.9"]


BEGUN_S = 1_795_000_000


def after(time_ns):
    return None if time_ns is None else time_ns / 1e9 - BEGUN_S


def lives(*logs):
    pairs = read(*logs).pairs()
    return [(pair.qpn, after(pair.time_ns), after(pair.ended_ns)) for pair in pairs]


def connected(pid, qpn, time_s, peer="10.0.0.2"):
    return ucx("nodea", pid, [(qpn, 9)], peer, time_s=BEGUN_S + time_s)


def test_a_number_that_is_connected_again_after_its_end_is_another_queue_pair():
    """To the same number of the same host, too."""
    first = [*connected(7, 34, 100), ucx_end("nodea", 7, 34, BEGUN_S + 105)]
    assert lives([*first, *connected(7, 34, 110)]) == [(34, 100, 105), (34, 110, None)]
    assert lives(first, connected(8, 34, 110)) == [(34, 100, 105), (34, 110, None)]
    assert lives([ucx_end("nodea", 7, 35, BEGUN_S + 105), *connected(7, 34, 100)])[0][2] is None


def test_the_end_of_a_device_ends_the_queue_pairs_that_are_left_on_it():
    log = list(ucx_dc("nodea", 7, 0x1A3, [0x1A4], "10.0.0.1", time_s=BEGUN_S + 100))
    log += connected(7, 34, 100)
    log.append(ucx_end("nodea", 7, 0x1A4, BEGUN_S + 101, "mlx5_0"))
    head = ucx_end("nodea", 7, 1, BEGUN_S + 105).partition("IB Async")[0]
    log.append(head + "destroying ib device mlx5_0")
    assert sorted(lives(log)) == [(34, 100, None), (0x1A3, 100, 105), (0x1A4, 100, 101)]


def test_a_queue_pair_is_on_the_device_that_was_named_last():
    head = ucx_end("nodea", 7, 1, BEGUN_S + 100).partition("IB Async")[0]
    made = "{}iface=0x1: created UD QP 0x22 on {}:1 TX wr:256"
    opened = "{}initialized device '{}' (InfiniBand channel adapter)"
    log = [text.format(head, name) for name in ("mlx5_0", "mlx5_1") for text in (opened, made)]
    ends = [
        ucx_end("nodea", 7, 1, BEGUN_S + at).partition("IB Async")[0] + f"destroying ib device {of}"
        for at, of in ((105, "mlx5_0"), (107, "mlx5_1"))
    ]
    assert lives([*log, ends[0]]) == [(34, 100, None)]
    assert lives([*log, *ends]) == [(34, 100, 107)]


def test_the_end_of_a_communicator_ends_its_queue_pairs_and_no_others():
    log = list(nccl("nodea", 7, 11, 3, "10.0.0.1", [34, 35], stamp="[2026-11-22 10:00:00] "))
    gone = log[-1].replace("Init COMPLETE", "Destroy COMPLETE")
    job = read(log)
    (process,) = job._processes.values()
    assert [*process.open_in] == [COMM] and [*process.open_in[COMM]] == [34, 35]
    job.read(encoded([gone]))
    first = [(pair.qpn, pair.ended_ns is not None) for pair in job.pairs()]
    assert first == [(34, True), (35, True)] and not process.open_in
    ends = [pair.ended_ns for pair in job.pairs()]
    job.read(encoded([gone]))
    assert [pair.ended_ns for pair in job.pairs()] == ends


def test_an_error_belongs_to_the_queue_pair_of_its_time():
    log = [*connected(7, 34, 100), *connected(7, 34, 110, "10.0.0.3")]
    job = read(log)
    speaker = job.pairs()[0].speaker
    peers = [job.pair_of(speaker, 34, at and (BEGUN_S + at) * 10**9) for at in (105, 115, None, 50)]
    assert [pair.remote_address[-1] for pair in peers] == ["2", "3", "3", "3"]


def test_kept_gids_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_GIDS", 3)
    job = read(ucx_dc("nodea", 7, 0x1A3, [], "10.0.0.1"))
    assert job.dropped == 1  # the fourth, which is the one in use
    assert [pair.address for pair in job.pairs()] == [None]


# Logs of a running job: they appear, grow, rotate and vanish.

LOG = "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", [17, 18, 19]))


def known(logs):
    return sorted(pair.qpn for pair in logs.job.pairs())


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_a_log_in_parts_tells_what_the_whole_one_tells(cuts):
    path = f"/dev/shm/rocescope-test-{os.getpid()}.log"
    try:
        open(path, "w").close()
        logs = FollowedLogs([path])
        edges = [0, *sorted(cuts), len(LOG)]
        for begin, end in pairwise(edges):
            with open(path, "a") as file:
                file.write(LOG[begin:end])
            logs.update()
        whole = FollowedLogs([path])
        assert known(logs) == [17, 18, 19]
        assert logs.job.pairs() == whole.job.pairs()
        assert logs.job.files <= 1 and logs.update() is False
    finally:
        os.unlink(path)


def test_logs_appear_rotate_and_vanish(tmp_path):
    pattern = str(tmp_path / "*.log")
    logs = FollowedLogs([pattern])
    assert known(logs) == [] and "No such file" in logs.notes()[0]
    path = tmp_path / "a.log"
    path.write_text(LOG)
    assert logs.update() and known(logs) == [17, 18, 19] and logs.notes() == []
    path.rename(tmp_path / "old")
    other = "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", [44]))
    path.write_text(other)
    assert logs.update() and known(logs) == [17, 18, 19, 44]
    path.unlink()
    logs.update()
    assert known(logs) == [17, 18, 19, 44] and len(logs.notes()) == 1


def of(*qpns):
    return "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", qpns))


def test_a_renamed_log_is_read_once_and_to_its_end(tmp_path):
    path, moved = tmp_path / "a.log", tmp_path / "a.log.1"
    path.write_text(of(17))
    narrow, wide = FollowedLogs([str(path)]), FollowedLogs([f"{path}*"])
    before = wide.job.files
    with path.open("a") as writer:  # continues writing after the file is renamed
        writer.write(of(18))
        writer.flush()
        path.rename(moved)
        path.write_text(of(44))
        for logs in (narrow, wide):
            assert logs.update() and known(logs) == [17, 18, 44]
        writer.write(of(19))
    for logs in (narrow, wide):
        logs.update()
        assert known(logs) == [17, 18, 19, 44] and not logs.update()
    assert wide.job.files == before + 1


def test_a_log_that_is_emptied_and_grows_beyond_its_old_end_is_read_anew(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(of(17))
    logs = FollowedLogs([str(path)])
    path.write_text(of(44, 45))
    assert logs.update() and known(logs) == [17, 44, 45]


def test_files_of_the_past_are_closed(tmp_path):
    path = tmp_path / "a.log"
    open_files = len(os.listdir("/proc/self/fd"))
    logs = FollowedLogs([str(path)])
    for number in range(6):
        path.write_text(of(number + 1))
        logs.update()
        path.rename(tmp_path / f"old{number}")
    for _ in range(6):
        logs.update()
    assert len(os.listdir("/proc/self/fd")) <= open_files and len(known(logs)) == 6


def test_compressed_logs_and_folders(tmp_path):
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "a.log").write_bytes(gzip.compress(LOG.encode()))
    logs = FollowedLogs([str(tmp_path / "*.log")])
    assert known(logs) == [17, 18, 19] and logs.notes() == []


@pytest.mark.parametrize("long", [LONGEST_LINE_BYTES + 1, 5 * LONGEST_LINE_BYTES])
def test_lines_that_are_too_long_are_left_out(tmp_path, monkeypatch, long):
    monkeypatch.setattr(following, "_PIECE_BYTES", 2 * LONGEST_LINE_BYTES)
    path = tmp_path / "a.log"
    path.write_text("x" * long + LOG.splitlines()[5] + "\n" + LOG)
    assert known(FollowedLogs([str(path)])) == [17, 18, 19]
