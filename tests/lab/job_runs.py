"""Training jobs scored: `python -m tests.lab.job_runs SEED COUNT`, or `--only-score FOLDER`.

Prints a line per run, the table of checks (`job_score`) beside what is asked, and every problem
with the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocescope.cli import run as run_command

from .job_score import Json, Score, score, table


def captures_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if ".pcap" in path.name)


def analysed(captures: list[Path]) -> tuple[Json, float]:
    """(result of `rocescope analyze`, its seconds). AssertionError with its words if it fails."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "result.json"
        said = io.StringIO()
        words = ["analyze", *map(str, captures), "--format", "json", "--output", str(output)]
        began = time.process_time()
        with contextlib.redirect_stderr(said):
            code = run_command([*words, "--progress", "none"])
        seconds = time.process_time() - began
        assert code == 0, said.getvalue()
        return json.loads(output.read_text()), seconds


def score_run(folder: Path) -> Score:
    """The score of the analysis of a run: a folder with captures and truth.json."""
    truth = json.loads((folder / "truth.json").read_text())
    result, seconds = analysed(captures_of(folder))
    return score(folder.name, truth, result, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.job_runs", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=1, help="number of the first run")
    parser.add_argument("count", type=int, nargs="?", default=0, help="number of drawn runs")
    parser.add_argument("--keep", type=Path, help="keep captures and truth.json in this folder")
    parser.add_argument("--only-score", type=Path, help="score the runs of a folder, make none")
    options = parser.parse_args()
    scores: list[Score] = []
    with tempfile.TemporaryDirectory() as temporary:
        for folder in _folders(options, options.keep or Path(temporary)):
            scores.append(score_run(folder))
            print(scores[-1].line(), flush=True)
    print()
    print(table(scores))
    for made in scores:
        for name, check in made.checks.items():
            for problem in check.problems:
                print(f"{name} {made.run}: {problem}")


def _folders(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    if options.only_score:
        yield from sorted(path.parent for path in options.only_score.glob("*/truth.json"))


if __name__ == "__main__":
    main()
