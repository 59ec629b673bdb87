"""Dumps of PyTorch's flight recorder: forms, who misses a collective, mismatches, hostile files."""

import gzip
import json
import os
import pickle

import pytest
from recorded_jobs import START_NS, as_json, dump, entry, torch_pickle, write_dumps

from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.jobs.beside import job_records
from rocescope.analyzer.jobs.flight_recorder import read_flight_recorder
from rocescope.analyzer.jobs.records import Recorded


def _records(folder):
    recorded = Recorded()
    read_flight_recorder(folder, recorded)
    recorded.finish()
    return job_records(recorded, [])


def _complete(count, first=1, **more):
    return [entry(n, record_id=n - 1, **more) for n in range(first, first + count)]


def _hang(last=5, missing=2, **more):
    """Ranks 0 to 3 completed `last` collectives and wait in the next, which one did not call."""
    waiting = entry(last + 1, state="scheduled", **more)
    return {
        rank: dump(_complete(last) + ([waiting] if rank != missing else [])) for rank in range(4)
    }


def _named(records):
    return [(m.sequence, m.lacking, m.ranks, m.waiting, m.unknown) for m in records.missing]


def test_a_healthy_job_has_no_missing_collective(tmp_path):
    records = _records(write_dumps(tmp_path, {rank: dump(_complete(6)) for rank in range(4)}))
    assert (records.files, records.collectives) == (4, 24)
    assert records.missing == records.mismatches == records.late == records.notes == []
    (group,) = records.groups
    assert (group.name, group.description, group.size) == ("0", "default_pg", 4)
    assert (group.ranks_are, group.unrecorded) == ("global", [])
    assert [(r.rank, r.group_rank, r.first_sequence, r.last_sequence) for r in group.ranks] == [
        (rank, rank, 1, 6) for rank in range(4)
    ]


def test_the_rank_that_did_not_call_a_collective_is_named(tmp_path):
    records = _records(write_dumps(tmp_path, _hang()))
    assert _named(records) == [(6, "enqueued", [2], [0, 1, 3], [])]
    (missing,) = records.missing
    assert (missing.operation, missing.timed_out) == ("all_reduce", False)
    assert missing.since_ns == START_NS + 6 * 27_000_000
    timed_out = _records(write_dumps(tmp_path, _hang(retired=True)))
    assert timed_out.missing[0].timed_out


@pytest.mark.parametrize("form", ["torch", "python 5", "python 2", "json", "json.gz"])
def test_all_forms_say_the_same(tmp_path, form):
    for rank, value in _hang().items():
        write = {
            "torch": lambda v: torch_pickle(v),
            "python 5": lambda v: pickle.dumps(v, 5),
            "python 2": lambda v: pickle.dumps(v, 2),
            "json": as_json,
            "json.gz": lambda v: gzip.compress(as_json(v)),
        }[form]
        suffix = f".{form}" if form.startswith("json") else ""
        (tmp_path / f"nccl_trace_rank_{rank}{suffix}").write_bytes(write(value))
    records = _records(tmp_path)
    assert (records.files, records.collectives) == (4, 23)
    assert _named(records) == [(6, "enqueued", [2], [0, 1, 3], [])]


@pytest.mark.parametrize("version", ["2.0", "2.3", "2.4", "2.7", "2.10"])
def test_versions(tmp_path, version):
    dumps = _hang()
    for value in dumps.values():
        value["version"] = version
        if version == "2.0":  # without pg_status, is_p2p and types
            del value["pg_status"], value["comm_lib_version"]
            for one in value["entries"]:
                for key in ("is_p2p", "input_dtypes", "output_dtypes", "timeout_ms", "thread_id"):
                    one.pop(key, None)
    assert _named(_records(write_dumps(tmp_path, dumps))) == [(6, "enqueued", [2], [0, 1, 3], [])]


def test_a_rank_without_a_dump_is_not_accused(tmp_path):
    dumps = _hang()
    del dumps[2]
    records = _records(write_dumps(tmp_path, dumps))
    assert _named(records) == [(6, "completed", [], [0, 1, 3], [2])]
    assert records.groups[0].unrecorded == [2]


def test_what_left_the_buffer_is_not_missing(tmp_path):
    """The buffer of rank 2 no longer holds the group: its status decides, if it fits."""
    dumps = _hang()
    other = [
        entry(n, record_id=100 + n, group=("7", "tp"), pg_id=1, sizes=((8,),)) for n in range(1, 6)
    ]
    groups = {"0": ("default_pg", range(4)), "7": ("tp", [2])}
    dumps[2] = dump(other, groups=groups)
    del dumps[2]["pg_status"]
    assert _named(_records(write_dumps(tmp_path, dumps))) == [(6, "completed", [], [0, 1, 3], [2])]
    kept = entry(4, record_id=99)
    for status, expected in ((5, [2]), (6, []), (3, [])):
        dumps[2] = dump([kept, *other[:1], *other[3:]], groups=groups, last_enqueued=status)
        (missing,) = _records(write_dumps(tmp_path, dumps)).missing
        assert missing.ranks == expected, status
        assert missing.unknown == ([] if expected else [2])


def test_a_dump_that_is_older_than_the_end_of_a_collective_accuses_nobody(tmp_path):
    dumps = _hang()
    dumps[0]["entries"][5] = entry(6)  # an all-reduce cannot complete without rank 2
    records = _records(write_dumps(tmp_path, dumps))
    assert records.missing == []
    assert records.notes == [
        "group 0 (default_pg): all_reduce 6 was in flight on ranks 1 and 3 when the records were"
        " written"
    ]


def test_a_rank_whose_gpu_does_not_reach_the_collective(tmp_path):
    started = START_NS + 6 * 27_000_000 + 1
    past = [entry(n, started_ns=START_NS + n * 27_000_000 + 9) for n in range(1, 6)]
    dumps = {
        rank: dump([*past, entry(6, state="started", started_ns=started)]) for rank in (0, 1, 3)
    }
    dumps[2] = dump([*past, entry(6, state="scheduled")])
    records = _records(write_dumps(tmp_path, dumps))
    assert _named(records) == [(6, "started", [2], [0, 1, 3], [])]
    dumps[2] = dump([*_complete(5), entry(6, state="scheduled")])  # rank 2 records no starts
    assert _named(_records(write_dumps(tmp_path, dumps))) == [
        (6, "completed", [], [0, 1, 2, 3], [])
    ]


def test_a_rank_that_alone_does_not_complete_is_named_only_after_a_timeout(tmp_path):
    dumps = {rank: dump(_complete(6)) for rank in range(4)}
    dumps[1]["entries"][5] = entry(6, state="scheduled")
    assert _records(write_dumps(tmp_path, dumps)).missing == []
    dumps[1]["entries"][5] = entry(6, state="scheduled", retired=True)
    assert _named(_records(write_dumps(tmp_path, dumps))) == [(6, "completed", [1], [], [])]


def test_groups_with_one_name_and_other_ranks_are_two(tmp_path):
    """Split groups share a name; the ranks of a group are global."""
    dumps = {}
    for rank in range(4):
        members = [0, 2] if rank % 2 == 0 else [1, 3]
        entries = [entry(n, group=("5", "dp")) for n in range(1, 4)]
        if rank != 3:
            entries.append(entry(4, group=("5", "dp"), state="scheduled"))
        dumps[rank] = dump(entries, groups={"5": ("dp", members)})
    records = _records(write_dumps(tmp_path, dumps))
    assert [[(r.rank, r.group_rank) for r in g.ranks] for g in records.groups] == [
        [(0, 0), (2, 1)], [(1, 0), (3, 1)],
    ]  # fmt: skip
    assert [(m.group, m.ranks) for m in records.missing] == [(0, []), (1, [3])]


def test_sends_and_receives_are_not_collectives(tmp_path):
    def pair(n, name):
        more = {"is_p2p": True, "p2p_seq_id": n, "record_id": 5 + n}
        return entry(5, name=name, state="scheduled", **more)

    dumps = {rank: dump(_complete(5)) for rank in range(4)}
    dumps[0]["entries"] += [pair(1, "nccl:send 0->1"), pair(2, "nccl:coalesced")]
    del dumps[0]["entries"][-2]["is_p2p"]  # as before version 2.2
    records = _records(write_dumps(tmp_path, dumps))
    assert (records.collectives, records.missing) == (20, [])


def test_a_coalesced_collective_is_one(tmp_path):
    """Only its last entry has a state: the others stay `scheduled`."""
    parts = [
        entry(1, record_id=0, name="nccl:_all_gather_base", state="scheduled", sizes=((4,),)),
        entry(1, record_id=1, name="nccl:_all_gather_base", state="scheduled", sizes=((6,),)),
        entry(1, record_id=2, name="nccl:coalesced", sizes=()),
    ]
    records = _records(write_dumps(tmp_path, {rank: dump(parts) for rank in range(4)}))
    assert (records.collectives, records.missing) == (4, [])


@pytest.mark.parametrize(
    ("other", "differs", "variants"),
    [
        ({"name": "nccl:broadcast"}, "operation", ["all_reduce", "broadcast"]),
        ({"sizes": ((1 << 19,),)}, "size", ["[1048576] Float", "[524288] Float"]),
        ({"dtype": "BFloat16"}, "type", ["[1048576] Float", "[1048576] BFloat16"]),
    ],
)
def test_the_first_mismatch_of_a_group(tmp_path, other, differs, variants):
    dumps = {rank: dump(_complete(6)) for rank in range(4)}
    for n in (4, 5):
        dumps[2]["entries"][n - 1] = entry(n, **other)
    (mismatch,) = _records(write_dumps(tmp_path, dumps)).mismatches
    assert (mismatch.sequence, mismatch.differs) == (4, differs)
    assert [variant.ranks for variant in mismatch.variants] == [[0, 1, 3], [2]]
    attribute = "operation" if differs == "operation" else "sizes"
    assert [getattr(variant, attribute) for variant in mismatch.variants] == variants


def test_sizes_that_may_differ_are_no_mismatch(tmp_path):
    """all_to_all splits as its ranks like; only the root of a gather has outputs."""
    dumps = {
        rank: dump([
            entry(1, name="nccl:all_to_all", sizes=((100 + rank,),), outputs=((106 - rank,),)),
            entry(2, name="nccl:gather", outputs=((8,),) * 4 if rank == 0 else ()),
            entry(3, name="nccl:scatter", sizes=((8,),) * 4 if rank == 0 else (), outputs=((8,),)),
        ])
        for rank in range(4)
    }  # fmt: skip
    assert _records(write_dumps(tmp_path, dumps)).mismatches == []


def test_the_shortest_execution_is_of_the_rank_that_came_last(tmp_path):
    """duration_ms needs TORCH_NCCL_ENABLE_TIMING; it contains the wait for the last rank."""
    waits = {0: 9.0, 1: 8.8, 2: 1.0, 3: 9.1}
    dumps = {
        rank: dump([entry(n, duration_ms=waits[rank]) for n in range(1, 11)]) for rank in range(4)
    }
    (late,) = _records(write_dumps(tmp_path, dumps)).late
    assert (late.rank, late.last, late.collectives, late.slowest) == (2, 10, 10, True)
    assert late.others_wait_ns == 10 * 7_900_000
    even = {rank: dump(_complete(10, duration_ms=9.0 + rank / 100)) for rank in range(4)}
    assert _records(write_dumps(tmp_path, even)).late == []


def test_records_of_an_earlier_run_are_not_judged(tmp_path):
    dumps = _hang()
    dumps[2] = dump(_complete(3, created_ns=START_NS - 2 * 3_600_000_000_000))
    records = _records(write_dumps(tmp_path, dumps))
    assert _named(records) == [(6, "completed", [], [0, 1, 3], [2])]
    assert any("perhaps of an earlier run" in note for note in records.notes)


def test_of_two_files_of_a_rank_the_newer_counts(tmp_path):
    folder = write_dumps(tmp_path, {rank: dump(_complete(6)) for rank in range(4)})
    write_dumps(tmp_path / "before", {2: dump(_complete(3))})
    records = _records(folder)
    assert (records.files, records.missing) == (4, [])
    assert records.notes == ["nccl_trace_rank_2: not used: another file of rank 2 is newer"]


class _Runs:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def _with(**more):
    return torch_pickle({**dump(_complete(2)), **more})


def _with_entry(**more):
    return torch_pickle(dump([{**entry(1), **more}]))


_MANY = [7] * 60
_HOSTILE = {
    "empty": (b"", "neither a pickle nor JSON"),
    "text": (b"rank 3 hangs\n", "neither a pickle nor JSON"),
    "cut": (torch_pickle(dump(_complete(2)))[:-40], "ends within an instruction"),
    "cut json": (as_json(dump(_complete(2)))[:-40], "Input data was truncated"),
    "deep json": (b'{"version":"2.4","a":' + b"[" * 200_000, "nested too deeply"),
    "list": (torch_pickle([1]), "Expected `object`, got `array`"),
    "no version": (torch_pickle({"entries": []}), "missing required field `version`"),
    "version 1": (_with(version="1.5"), "version '1.5' of the dump is not 2.x"),
    "version 3": (_with(version="3.0"), "not 2.x"),
    "entries": (_with(entries={}), "Expected `array`"),
    "entry": (_with(entries=[7]), "entry 0: Expected `object`"),
    "sequence": (_with_entry(collective_seq_id="7"), "entry 0: Expected `int`"),
    "negative": (_with_entry(collective_seq_id=-7), "entry 0: Expected `int` >= 0"),
    "time": (_with_entry(time_created_ns=(1 << 63) - 1), "entry 0: Expected `int` <="),
    "state": (_with_entry(state="running"), "entry 0: Invalid enum value 'running'"),
    "group": (_with_entry(process_group=["0"]), "entry 0: Expected `array` of length 2"),
    "name": (_with_entry(profiling_name="x" * 1_000), "entry 0: Expected `str` of length <= 512"),
    "sizes": (_with_entry(input_sizes=7), "no lists"),
    "size": (_with_entry(input_sizes=[7]), "no list"),
    "number": (_with_entry(input_sizes=[[True]]), "no number"),
    "dimensions": (_with_entry(input_sizes=[[1] * 65]), "65 dimensions"),
    "ranks": (_with(pg_config={"0": {"ranks": "[__import__('os')]"}}), "ranks of a group"),
    "other rank": (_with(pg_config={"0": {"ranks": "[4, 5]"}}), "rank 3, which is not in its"),
    "config": (_with(pg_config={"0": 7}), "group '0': Expected `object`"),
    "status": (_with(pg_status={"0": {"last_enqueued_collective": "x"}}), "Expected `int`"),
    "shared": (
        pickle.dumps(dump([entry(1, sizes=[_MANY] * 2_000)] * 2_000)), "larger than any job needs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_dumps_get_one_line(tmp_path, name):
    data, why = _HOSTILE[name]
    write_dumps(tmp_path, {rank: dump(_complete(2)) for rank in range(3)})
    (tmp_path / "nccl_trace_rank_3").write_bytes(data)
    records = _records(tmp_path)
    (note,) = records.notes
    assert note.startswith("nccl_trace_rank_3: not used: ")
    assert why in note
    assert len(note.splitlines()) == 1
    assert len(note) < 300
    assert (records.files, records.missing, records.groups[0].unrecorded) == (3, [], [3])


def test_a_dump_that_would_run_a_program_does_not(tmp_path):
    mark = tmp_path / "executed"
    dumps = tmp_path / "dumps"
    write_dumps(dumps, {0: dump(_complete(2))})
    (dumps / "nccl_trace_rank_1").write_bytes(pickle.dumps({"entries": _Runs(mark)}))
    (note,) = _records(dumps).notes
    assert "not plain data" in note
    assert not mark.exists()


def test_a_folder_without_a_dump(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        _records(tmp_path / "none")
    with pytest.raises(UsageError, match="no file is in"):
        _records(tmp_path)
    (tmp_path / "train.log").write_text("x\n")
    with pytest.raises(UnreadableInput, match=r"no file in .* is a dump.*does not end with a rank"):
        _records(tmp_path)


def test_groups_without_ranks_are_not_judged(tmp_path):
    dumps = _hang()
    for value in dumps.values():
        value["pg_config"] = {}
    records = _records(write_dumps(tmp_path, dumps))
    assert (records.missing, len(records.groups)) == ([], 1)
    assert any("not judged" in note for note in records.notes)


def test_json_without_a_collective(tmp_path):
    (tmp_path / "comm_lib_trace_rank_0.json").write_bytes(as_json(dump([])))
    assert json.loads((tmp_path / "comm_lib_trace_rank_0.json").read_bytes()).get("entries") is None
    records = _records(tmp_path)
    assert (records.files, records.collectives, records.missing) == (1, 0, [])
