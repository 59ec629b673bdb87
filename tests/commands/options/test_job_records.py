"""`--flight-recorder` and `--nccl-inspector` on a capture of two jobs whose truth is known."""

from __future__ import annotations

import io
import json
import pickle

import pytest
from recorded_jobs import dump, entry, write_dumps

from rocescope.cli import run
from rocescope.report.terminal.jobs import remarks, troubles

_RUN = "h5_two_jobs_slow_host"
_CLOCK_NS = 2_000_000


def _captures(data):
    return [str(path) for path in sorted((data / "jobs" / _RUN).glob("*.zst"))]


def _job(data, name):
    truth = json.loads((data / "jobs" / _RUN / "truth.json").read_text())
    return next(each for each in truth["jobs"] if each["name"] == name)


_NAMES = {
    "all_gather": "nccl:_all_gather_base",
    "reduce_scatter": "nccl:_reduce_scatter_base",
    "all_reduce": "nccl:all_reduce",
}
_PER_STEP = 7
"""Four gathers, two scatters and the reduction that ends a step."""


def _dumps(folder, data, waits_for=None):
    """Job b as its ranks record it: at the end all but `waits_for` wait in one collective more."""
    calls = [
        entry(
            number,
            name=_NAMES[each["kind"]],
            sizes=((each["bytes"] // 4,),),
            created_ns=_CLOCK_NS + each["first_arrival_ns"],
        )
        for number, each in enumerate(_job(data, "b")["collectives"], 1)
    ]
    assert len(calls) == 10 * _PER_STEP
    if waits_for is None:
        return write_dumps(folder, {rank: dump(calls) for rank in range(4)})
    created = calls[-1]["time_created_ns"] + 1_000_000
    more = {"state": "scheduled", "created_ns": created, "retired": True}
    waiting = entry(
        len(calls) + 1, name="nccl:_all_gather_base", sizes=calls[0]["input_sizes"], **more
    )
    return write_dumps(folder, {r: dump([*calls, *[waiting] * (r != waits_for)]) for r in range(4)})


def test_collectives_belong_to_the_steps_of_their_job(data, tmp_path, capsys):
    words = ["analyze", *_captures(data), "--flight-recorder", str(_dumps(tmp_path, data))]
    assert run([*words, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (part,) = result["job_records"]["beside"]
    (job,) = [each for each in result["jobs"] if each["id"] == part["job"]]
    assert set(job["addresses"]) == {f"10.{1 + n % 2}.{n + 1}.11" for n in range(4)}
    truth = _job(data, "b")["steps"]
    assert len(part["steps"]) == len(job["iterations"]["steps"]) == len(truth) == 10
    for step, known in zip(part["steps"], truth, strict=True):
        ends_ns = job["iterations"]["steps"][step["step"]]["last_message_ns"]
        assert abs(ends_ns - known["last_message_ns"]) < 1_000_000
        last = _PER_STEP * (known["step"] + 1)
        assert (step["first_sequence"], step["last_sequence"]) == (last - _PER_STEP + 1, last)
    assert part["contradictions"] == []


def test_the_report_says_who_is_missing(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["analyze", *_captures(data), "--flight-recorder"]
    assert run([*words, str(_dumps(tmp_path, data, waits_for=2))]) == 0
    page = capsys.readouterr().out
    section = page.partition("RECORDED COLLECTIVES\n")[2].partition("\nSPRAYING")[0]
    text = " ".join(section.split())
    assert (
        "0 (default_pg): _all_gather_base 71: rank 2 did not call it, ranks 0, 1 and 3 wait in it"
    ) in text
    assert "0 (default_pg) PyTorch 4 4 283 1 to 71" in text
    assert "7 collectives per step of job" in text
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("option", ["--flight-recorder", "--nccl-inspector"])
def test_folders_without_records_are_one_line(data, tmp_path, capsys, option):
    words = ["analyze", *_captures(data), option]
    for folder, code, says in (
        (tmp_path / "none", 2, "is not a folder"),
        (tmp_path, 2, "no file is in"),
    ):
        assert run([*words, str(folder)]) == code
        said = capsys.readouterr()
        assert said.out == "" and says in said.err and said.err.count("\n") == 1
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": io.BytesIO()}, 4))
    assert run([*words, str(tmp_path)]) == 4
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert option in said.err and "no file in" in said.err


def test_interfaces_have_no_records(tmp_path, capsys):
    assert run(["analyze", "--live", "lo", "--flight-recorder", str(tmp_path)]) == 2
    assert "--flight-recorder cannot be combined with --live" in capsys.readouterr().err


def test_a_folder_of_results_has_no_records(tmp_path, capsys):
    (tmp_path / "summary.json").write_text("{}")
    assert run(["tui", str(tmp_path), "--nccl-inspector", str(tmp_path)]) == 2
    assert "--nccl-inspector needs captures" in capsys.readouterr().err


def test_only_certain_hangs_are_troubles(tmp_path):
    """Ranks that write their records on demand do so at slightly different times."""
    from rocescope.analyzer.jobs.beside import job_records
    from rocescope.analyzer.jobs.flight_recorder import read_flight_recorder
    from rocescope.analyzer.jobs.records import Recorded

    for retired in (False, True):
        calls = [entry(n) for n in range(1, 4)]
        waiting = entry(4, state="scheduled", retired=retired)
        by_rank = {rank: dump([*calls, *[waiting] * (rank != 1)]) for rank in range(3)}
        recorded = Recorded()
        folder = write_dumps(tmp_path / str(retired), by_rank)
        read_flight_recorder(folder, recorded)
        records = job_records(recorded, [])
        text = "0 (default_pg): all_reduce 4: rank 1 did not call it, ranks 0 and 2 wait in it"
        text += "; no record of rank 3"
        if retired:
            assert (troubles(records), remarks(records, [])) == ([text], [])
        else:
            doubt = f"{text}; no timeout is recorded: perhaps it was in flight"
            assert (troubles(records), remarks(records, [])) == ([], [doubt])
