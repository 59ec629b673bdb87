"""Logs of NCCL Inspector: old and new forms, partial lines, late ranks, numbers of ranks."""

import json

import pytest
from recorded_jobs import START_NS, collective, header, metadata

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.jobs.beside import job_records
from rocescope.analyzer.jobs.inspector import read_inspector
from rocescope.analyzer.jobs.records import Recorded

_US = START_NS // 1_000


def _records(folder):
    recorded = Recorded()
    read_inspector(folder, recorded)
    recorded.finish()
    return job_records(recorded, [])


def _line(**parts):
    return json.dumps(parts) + "\n"


def _whole(rank, said, *, comm="0x7f", size=4, host=None, pid=None, **more):
    """A line of form 4.0 to 4.2."""
    host = f"node{rank}" if host is None else host
    pid = 100 + rank if pid is None else pid
    return _line(
        header=header(rank, size, comm) | more,
        metadata=metadata(host, pid, _US + 1_000 * int(said["coll_sn"])),
        coll_perf=said,
    )


def _write(folder, by_rank):
    for rank, text in by_rank.items():
        (folder / f"node{rank}-pid{100 + rank}.log").write_text(text)
    return folder


def _marker(rank, count, dropped=0):
    """The line of form 4.3 before `count` collectives."""
    return _line(
        header=header(rank, 4, "0x7f") | {"comm_name": "dp"},
        metadata=metadata(f"node{rank}", 100 + rank, _US, "v4.3"),
        dump_stats={
            "coll_records": count, "coll_dropped_total": dropped,
            "coll_dropped_since_last_dump": dropped, "p2p_records": 0, "p2p_dropped_total": 0,
            "p2p_dropped_since_last_dump": 0,
        },
    )  # fmt: skip


_TIMES = {0: 900, 1: 880, 2: 100, 3: 910}


def test_the_rank_with_the_shortest_execution_came_last(tmp_path):
    lines = {
        rank: "".join(_whole(rank, collective(n, us)) for n in range(10))
        for rank, us in _TIMES.items()
    }
    records = _records(_write(tmp_path, lines))
    (late,) = records.late
    assert (late.rank, late.last, late.collectives, late.slowest) == (2, 10, 10, True)
    assert late.others_wait_ns == 10 * 790_000
    assert (records.files, records.collectives, records.missing) == (4, 40, [])
    (group,) = records.groups
    assert (group.source, group.name, group.size, group.ranks_are) == (
        "nccl_inspector", "0x7f", 4, "global",
    )  # fmt: skip
    assert [(r.rank, r.host, r.collectives) for r in group.ranks] == [
        (rank, f"node{rank}", 10) for rank in range(4)
    ]


def test_each_operation_has_its_own_numbers(tmp_path):
    """NCCL counts calls per operation: AllReduce 1 and AllGather 1 are not one collective."""
    lines = {
        rank: "".join(
            _whole(rank, collective(n, us, coll, size))
            for n in range(4)
            for coll, us, size in (("AllReduce", 500, 64), ("AllGather", _TIMES[rank], 128))
        )
        for rank in range(4)
    }
    records = _records(_write(tmp_path, lines))
    assert records.mismatches == []
    (late,) = records.late
    assert (late.rank, late.last, late.collectives, late.slowest) == (2, 4, 8, False)


@pytest.mark.parametrize("source", ["collective_cpu", "unknown"])
def test_times_of_calls_are_not_executions(tmp_path, source):
    lines = {
        rank: "".join(_whole(rank, collective(n, us, coll_timing_source=source)) for n in range(10))
        for rank, us in _TIMES.items()
    }
    assert _records(_write(tmp_path, lines)).late == []


def test_broadcasts_and_collectives_that_one_rank_lacks_do_not_count(tmp_path):
    """A root of a broadcast does not wait for others; the Inspector leaves collectives out."""
    lines = {
        rank: "".join(
            _whole(rank, collective(n, us, "Broadcast" if n > 3 else "AllReduce"))
            for n in range(10)
            if (rank, n) != (1, 2)
        )
        for rank, us in _TIMES.items()
    }
    (late,) = _records(_write(tmp_path, lines)).late
    assert (late.rank, late.last, late.collectives) == (2, 3, 3)


def test_the_form_with_one_header_for_many_lines(tmp_path):
    lines = {
        rank: _marker(rank, 3)
        + "".join(_line(coll_perf=collective(n, us)) for n in range(3))
        + _line(p2p_perf={"p2p": "Send", "p2p_sn": 1, "p2p_peer": 1})
        + _line(proxy_trace={"record_sn": 1})
        + _marker(rank, 2, dropped=7)
        + "".join(_line(coll_perf=collective(n, us)) for n in range(3, 5))
        for rank, us in _TIMES.items()
    }
    records = _records(_write(tmp_path, lines))
    assert (records.collectives, [late.rank for late in records.late]) == (20, [2])
    assert records.groups[0].description == "dp"
    assert any("dropped 28 collectives" in note for note in records.notes)


def test_lines_without_their_header_belong_to_nobody(tmp_path):
    text = _line(coll_perf=collective(0, 1)) + _marker(0, 1)
    text += _line(coll_perf=collective(1, 1)) + _line(coll_perf=collective(2, 1))
    records = _records(_write(tmp_path, {0: text}))
    assert records.collectives == 1
    (note, _) = records.notes
    assert note == (
        "NCCL Inspector: 2 lines could not be read; first line 1 of node0-pid100.log: no header"
        " belongs to it"
    )


def test_partial_and_damaged_lines(tmp_path):
    whole = _whole(0, collective(1, 5))
    damaged = [
        whole[:80] + "\n", "{}\n", "[]\n", "null\n", "\x00\xff\n",
        _whole(0, collective(2, 5) | {"coll_sn": "2"}), _whole(0, collective(2, -5)),
        _whole(0, collective(2, 5) | {"coll_msg_size_bytes": 1 << 80}),
        _whole(-1, collective(2, 5)),
        _line(header=7, coll_perf=collective(2, 5)), "[" * 16_000 + "\n",
        _whole(0, collective(2, 5), size=1 << 30), _whole(0, collective(2, 5), comm="x" * 400),
    ]  # fmt: skip
    text = whole + "".join(damaged) + "\n" + whole.replace('"coll_sn": 1', '"coll_sn": 3')
    records = _records(_write(tmp_path, {0: text + whole[:-30]}))
    assert records.collectives == 2
    assert f"{len(damaged)} lines could not be read" in records.notes[0]
    assert len(records.notes[0].splitlines()) == 1


def test_verbose_lines_have_times(tmp_path):
    trace = {
        "coll_start_ts": _US + 5,
        "coll_stop_ts": _US + 6,
        "kernel_events": [
            {"channel_id": 0, "kernel_start_ts": _US + 9, "kernel_stop_ts": _US + 80},
            {"channel_id": 1, "kernel_start_ts": _US + 8, "kernel_stop_ts": _US + 90},
        ],
    }
    _write(tmp_path, {0: _whole(0, collective(1, 81, event_trace_ts=trace))})
    recorded = Recorded()
    read_inspector(tmp_path, recorded)
    ((log,),) = recorded.logs.values()
    (row,) = log.collectives
    names = ("created_ns", "started_ns", "completed_ns", "execution_ns")
    assert [int(row[name]) for name in names] == [
        START_NS + 5_000, START_NS + 8_000, START_NS + 90_000, 81_000,
    ]  # fmt: skip


def test_ranks_of_smaller_communicators_become_global(tmp_path):
    """The communicator with all processes numbers them; pairs {0, 2} and {1, 3} are split."""
    lines = {}
    for rank in range(4):
        pair, place = f"0xa{rank % 2}", rank // 2
        lines[rank] = _whole(rank, collective(0, 50)) + _whole(
            place, collective(0, 50), comm=pair, size=2, host=f"node{rank}", pid=100 + rank
        )
    groups = {group.name: group for group in _records(_write(tmp_path, lines)).groups}
    assert [(r.rank, r.group_rank) for r in groups["0xa1"].ranks] == [(1, 0), (3, 1)]
    del lines[3]
    (tmp_path / "node3-pid103.log").unlink()
    groups = {group.name: group for group in _records(_write(tmp_path, lines)).groups}
    assert (groups["0x7f"].ranks_are, groups["0x7f"].unrecorded) == ("group", [3])
    assert (groups["0xa1"].ranks_are, groups["0xa1"].unrecorded) == ("group", [1])


def test_processes_of_several_gpus_have_no_global_ranks(tmp_path):
    lines = {0: "".join(_whole(rank, collective(0, 50), host="n", pid=1) for rank in range(4))}
    (group,) = _records(_write(tmp_path, lines)).groups
    assert (group.ranks_are, [r.rank for r in group.ranks]) == ("group", [0, 1, 2, 3])


def test_sizes_that_differ_are_a_mismatch(tmp_path):
    lines = {
        rank: "".join(
            _whole(rank, collective(n, 50, size=64 if (rank, n) == (3, 2) else 128))
            for n in range(5)
        )
        for rank in range(4)
    }
    (mismatch,) = _records(_write(tmp_path, lines)).mismatches
    assert (mismatch.sequence, mismatch.differs) == (2, "size")
    assert [(v.sizes, v.ranks) for v in mismatch.variants] == [
        ("128 bytes", [0, 1, 2]), ("64 bytes", [3]),
    ]  # fmt: skip


def test_a_folder_without_records(tmp_path):
    (tmp_path / "node0.prom").write_text("# HELP nccl_bus_bandwidth_gbs x\n")
    with pytest.raises(UnreadableInput, match="no line of it is a record"):
        _records(tmp_path)
