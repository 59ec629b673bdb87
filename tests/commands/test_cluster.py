"""`rocescope cluster`: one task after the other."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from clusters import SPRAYED

from rocescope import cli

PATHS = SPRAYED[:2]


def run(*words: object) -> int:
    return cli.run(["cluster", *map(str, words)])


@pytest.mark.thorough
def test_plan_map_reduce_merge(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.run(["analyze", *PATHS, "-f", "json", "--filter", "psn > 5"]) == 0
    expected = capfdbinary.readouterr().out
    work = ["--work", tmp_path / "w"]
    assert run("plan", *PATHS, *work, "--partitions", 2, "--filter", "psn > 5") == 0
    assert run("merge", *work) == 2
    assert b"run map 0" in capfdbinary.readouterr().err
    for number in (1, 0):
        assert run("map", number, *work) == 0
    assert run("merge", *work) == 2
    assert b"run reduce 0" in capfdbinary.readouterr().err
    for number in (1, 0):
        assert run("reduce", number, *work) == 0
    assert run("merge", *work, "-f", "json") == 0
    assert capfdbinary.readouterr().out == expected
    assert run("merge", *work, "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / "summary.json").read_bytes() == expected
    assert run("merge", *work, "--top", 1) == 0
    assert b"FLOWS" in capfdbinary.readouterr().out.upper()


def test_numbers_and_folders_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("map", 0, "--work", tmp_path / "none") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run("plan", *PATHS, "--work", tmp_path / "w") == 0
    assert run("map", 2, "--work", tmp_path / "w") == 2
    assert "captures 0 to 1" in capsys.readouterr().err
    os.chmod(tmp_path / "w", 0o777)
    assert run("reduce", 0, "--work", tmp_path / "w") == 2
    assert "others can write to" in capsys.readouterr().err


FAKE_SBATCH = """\
#!/bin/sh
# Runs what it is given at once, each task of an array.
for word; do
  case $word in
    --array=*) last=${word#*-*-}; last=${word##*-} ;;
    --wrap=*) command=${word#--wrap=} ;;
    --output=*) echo "${word#--output=}" >> "$0.outputs" ;;
  esac
done
if [ -n "$last" ]; then
  for SLURM_ARRAY_TASK_ID in $(seq 0 "$last"); do
    export SLURM_ARRAY_TASK_ID
    sh -c "$command" >&2 || exit
  done
else
  sh -c "$command" >&2 || exit
fi
echo 7
"""


def test_the_script_for_slurm_runs_all_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an sbatch that runs tasks at once, in a folder whose name a shell would split, and in
    which SLURM would replace %j."""
    work = tmp_path / "job %j of 'mine'\ntouch harm #"
    assert run("plan", *PATHS, "--work", work, "--partitions", 2) == 0
    tool = tmp_path / "rocescope"
    tool.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/ran"\n')
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(FAKE_SBATCH)
    for file in (tool, sbatch):
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    capsys.readouterr()
    assert run("sbatch", "--work", work, "--command", str(tool)) == 0
    (tmp_path / "job.sh").write_text(capsys.readouterr().out)
    subprocess.run(
        ["sh", tmp_path / "job.sh"],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
    )
    assert not (tmp_path / "harm").exists()
    outputs = (tmp_path / "sbatch.outputs").read_text()
    assert outputs == f"{str(work).replace('%j', '%%j')}/slurm-%j.out\n" * 3
    ran = (tmp_path / "ran").read_text()
    assert ran == "".join(
        f"cluster {task}\n"
        for task in (
            f"map 0 --work {work}",
            f"map 1 --work {work}",
            f"reduce 0 --work {work}",
            f"reduce 1 --work {work}",
            f"merge --work {work} -o {work}/results",
        )
    )


def test_plan_has_no_option_that_tasks_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--help") == 0
    out = capsys.readouterr().out
    assert "--concat" in out and "--flow-label" in out
    refused = ("--follow", "--plane-by", "--trimmed-dscp", "--clock", "--mirror", "--drop-dup")
    assert not any(option in out for option in refused)


def test_a_suffix_that_is_no_format_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "-o results.d: .d is not the suffix of a format; a folder of results has a name without"
    assert cli.run(["analyze", PATHS[0], "--cluster", "local:1", "-o", "results.d"]) == 2
    assert said in capsys.readouterr().err
    assert run("merge", "--work", tmp_path, "-o", "results.d") == 2
    assert said in capsys.readouterr().err
