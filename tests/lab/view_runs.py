"""Runs scored in all views: `python -m tests.lab.view_runs`, or `make views`.

Simulated runs of every kind in turn; `--real N` adds runs of real Linux routers (root). Prints a
table of views and verdicts, then every wrong and silent view with the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocescope.cli import run as run_command

from . import drawn
from .verdicts import VERDICTS, Judgement, judge, table
from .views import VIEWS, View, devices, read_frames, views_of

REAL_KINDS = (
    "clean", "gray-loss", "blackhole", "slow-link", "ce-marks", "rehash", "link-down", "incast",
    "outage", "clean-spraying", "host-loss", "selective-loss", "deep-queue", "clean-ipv6",
)  # fmt: skip
"""Kinds of the lab whose faults the views are judged by: losses, queues, marks, moves."""
DETAILED = ("wrong", "silent", "error")


def judge_view(
    view: View, truth: dict[str, Any], ports: dict[str, tuple[str, str]], folder: Path
) -> Judgement:
    """The verdict of `rocescope analyze` on a view, whose files are written to the folder."""
    result = folder / "result.json"
    words = ["analyze", *view.write(folder), *truth["options"], "--format", "json"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = run_command([*words, "--progress", "none", "--output", str(result)])
    if code:
        return Judgement(view.name, "error", [said.getvalue().strip()])
    findings = json.loads(result.read_text())["diagnosis"]["findings"]
    return judge(view, truth, findings, ports)


def judge_run(
    folder: Path, truth: dict[str, Any], wanted: list[str] | None = None
) -> Iterator[Judgement]:
    """The verdicts of the views of a run."""
    frames = read_frames(folder)
    ports = devices(frames)
    for view in views_of(frames, folder.name, wanted):
        with tempfile.TemporaryDirectory() as temporary:
            yield judge_view(view, truth, ports, Path(temporary))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.view_runs", description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0, help="number of the first run")
    parser.add_argument("count", type=int, nargs="?", default=30, help="number of simulated runs")
    parser.add_argument("--kind", help="only this kind instead of all in turn")
    parser.add_argument("--views", help=f"only these: {','.join(VIEWS)}; or NAME:all")
    parser.add_argument("--real", type=int, default=0, help="number of runs of the lab")
    parser.add_argument("--keep", type=Path, help="keep captures and truth.json in this folder")
    parser.add_argument("--only-score", type=Path, help="score the runs of a folder, make none")
    options = parser.parse_args()
    wanted = options.views.split(",") if options.views else None
    judgements: list[tuple[str, Judgement]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for folder in _folders(options, options.keep or Path(temporary)):
            truth = json.loads((folder / "truth.json").read_text())
            found = list(judge_run(folder, truth, wanted))
            judgements += [(folder.name, judgement) for judgement in found]
            print(run_line(folder.name, found), flush=True)
    print()
    print(table(judgement for _, judgement in judgements))
    print()
    for name, judgement in judgements:
        if judgement.verdict in DETAILED:
            number, _, kind = name.partition("-")
            again = f"python -m tests.lab.view_runs {int(number)} 1 --kind {kind}"
            print(f"{judgement.verdict} {name} {judgement.view}: {again} --views {judgement.view}")
            for reason in judgement.reasons:
                print(f"   {reason}")


def _folders(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    if options.only_score:
        yield from sorted(path.parent for path in options.only_score.glob("*/truth.json"))
        return
    for number in range(options.first, options.first + options.count):
        kind = options.kind
        if kind is None or kind in drawn.KINDS:
            yield drawn.draw_run(number, kind, folder)
    for number in range(options.first, options.first + options.real):
        from .__main__ import draw_and_run

        kind = random.Random(number).choice(REAL_KINDS)
        yield draw_and_run(number, kind, folder)


def run_line(name: str, judgements: list[Judgement]) -> str:
    counts = Counter(judgement.verdict for judgement in judgements)
    return f"{name:26}" + "  ".join(f"{each} {counts[each]}" for each in VERDICTS if counts[each])


if __name__ == "__main__":
    main()
