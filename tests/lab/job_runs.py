"""Training jobs scored: `python -m tests.lab.job_runs SEED COUNT`, or `--only-score FOLDER`.

Prints a line per run, the table of checks (`job_score`) beside what is asked, and every problem
with the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocescope.cli import run as run_command

from .job_score import Json, Score, score, table
from .job_views import VIEWS, views_of

KINDS = (
    "clean", "slow-gpu", "late-launch", "congested-link", "slow-nic", "hang-restart", "clean",
    "slow-gpu", "two-jobs", "loss", "hang", "short",
)  # fmt: skip
"""Kinds of runs, in turn."""
TRAINING = ("ddp", "fsdp", "moe", "pipeline")


def drawn(number: int, kind: str | None = None) -> tuple[str, list[str]]:
    """(name, words of `rocescope generate` but for the output) of a run."""
    chance = random.Random(number)
    kind = kind or KINDS[number % len(KINDS)]
    steps = chance.randint(8, 12)
    training = chance.choice(TRAINING)
    if kind == "short":
        steps = chance.randint(1, 3)
    job = _job(chance, training, steps)
    jobs, ranks = [_spec(job)], int(job["ranks"])
    hosts, faults = ranks, list[str]()
    first = chance.randint(3, steps - 4) if steps > 6 else 0
    rank = chance.randrange(ranks)
    until = chance.choice(["", f",until={first + chance.randint(2, 4)}"])
    if kind in ("two-jobs", "hang"):
        other = _job(chance, chance.choice(TRAINING[:3]), steps + 4) | {"ranks": job["ranks"]}
        other |= {"name": "b", "start": f"{chance.randint(1, 20)}ms"}
        if chance.random() < 0.6:
            other |= {"with": "a"}
        else:
            hosts *= 2
        jobs.append(_spec(other))
    if kind == "slow-gpu" or (kind == "two-jobs" and chance.random() < 0.7):
        factor = chance.uniform(1.2, 1.6)
        faults = [f"slow-gpu:rank={rank},from={first},factor={factor:.2f}{until}"]
    elif kind == "late-launch":
        delay = float(job["compute"].removesuffix("ms")) * chance.uniform(0.2, 0.5)
        faults = [f"late-launch:rank={rank},from={first},delay={delay:.1f}ms{until}"]
    elif kind == "congested-link":
        way = chance.choice(["leaf1>spine1", "spine1>leaf1", "leaf1>spine2", "spine2>leaf1"])
        faults = [f"congested-link:link={way},from={first},factor={chance.uniform(0.08, 0.3):.2f}"]
    elif kind == "slow-nic":
        faults = [f"slow-nic:rank={rank},from={first},factor={chance.uniform(0.2, 0.5):.2f}"]
    elif kind == "loss":
        way = chance.choice(["leaf1>spine1", "spine1>leaf1"])
        faults = [f"loss:link={way},from={first},chance={chance.uniform(0.5, 5):.1f}%"]
    elif kind in ("hang", "hang-restart"):
        kernel = chance.choice(["yes", "no"])
        restart = f",restart={chance.randint(150, 500)}ms" if kind == "hang-restart" else ""
        faults = [f"hang:rank={rank},from={first},kernel={kernel}{restart}"]
    per_leaf = -(-hosts // 2)
    rate = chance.choice([1, 2])
    fabric = f"leaf-spine:leaves=2,spines=2,hosts={per_leaf},rate=1G,uplink_rate={rate}G,delay=1us"
    taps = chance.choice(["leaf1", "leaf1", "uplinks", "hosts"])
    words = [*jobs, "--fabric", fabric, "--taps", taps, "--seed", str(number)]
    for fault in faults:
        words += ["--fault", fault]
    if chance.random() < 0.3:
        words += ["--ecn", "64KiB"]
    return f"{number:04}-{kind}-{training}", words


def _job(chance: random.Random, kind: str, steps: int) -> dict[str, str]:
    """The keys of a job."""
    job = {
        "kind": kind,
        "ranks": str(chance.choice([4, 4, 6, 8])),
        "steps": str(steps),
        "compute": f"{chance.randint(15, 40)}ms",
        "size": f"{chance.choice([256, 384, 512, 768])}KiB",
        "slice": f"{chance.choice([16, 32])}KiB",
        "channels": chance.choice(["1", "1", "2"]),
        "qps": chance.choice(["1", "1", "2", "4"]),
        "jitter": f"{chance.uniform(0.3, 1.5):.1f}%",
        "pauses": chance.choice(["0%", "0%", "0.5%"]),
        "launch": f"{chance.randint(15, 70)}%",
        "nccl": chance.choice(["2.26", "2.20"]),
        "place": chance.choice(["spread", "spread", "packed", "random"]),
    }
    if kind == "ddp":
        job |= {"buckets": str(chance.randint(1, 4))}
        job |= {"algorithm": chance.choice(["ring", "ring", "tree"])}
        job |= {"clip": chance.choice(["yes", "no"])}
    elif kind == "pipeline":
        job |= {"ranks": chance.choice(["4", "8"]), "stages": "4"}
        job |= {"micro-batches": str(chance.randint(4, 8)), "activation": "32KiB"}
    elif kind == "moe":
        job |= {"exchange": f"{chance.choice([64, 128, 256])}KiB", "chunk": "8KiB"}
        job |= {"skew": f"{chance.uniform(0, 0.6):.2f}"}
    return job


def _spec(job: dict[str, str]) -> str:
    return "job:" + ",".join(f"{key}={value}" for key, value in job.items())


def make(number: int, kind: str | None, folder: Path) -> Path:
    """A folder with the captures and the truth of run `number`."""
    name, words = drawn(number, kind)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = run_command(["generate", *words, "--output", str(folder / name)])
    assert code == 0, f"{shlex.join(words)}: {said.getvalue()}"
    return folder / name


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


def score_run(folder: Path, narrow: bool = False) -> Score:
    """The score of the analysis of a run: a folder with captures and truth.json. narrow: as for
    `score`."""
    truth = json.loads((folder / "truth.json").read_text())
    result, seconds = analysed(captures_of(folder))
    return score(folder.name, truth, result, seconds, narrow=narrow)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.job_runs", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=1, help="number of the first run")
    parser.add_argument("count", type=int, nargs="?", default=0, help="number of drawn runs")
    parser.add_argument("--kind", choices=sorted(set(KINDS)), help="only this kind of run")
    parser.add_argument("--only-make", action="store_true", help="score nothing")
    parser.add_argument("--keep", type=Path, help="keep captures and truth.json in this folder")
    parser.add_argument("--only-score", type=Path, help="score the runs of a folder, make none")
    parser.add_argument("--views", help=f"score these instead: {','.join(VIEWS)}, or all")
    options = parser.parse_args()
    views = [] if options.views is None else options.views.split(",")
    views = list(VIEWS) if views == ["all"] else views
    scores: list[Score] = []
    with tempfile.TemporaryDirectory() as temporary:
        for folder in _folders(options, options.keep or Path(temporary)):
            if options.only_make:
                print(folder, flush=True)
                continue
            for each in views_of(folder, Path(temporary), views) if views else [folder]:
                scores.append(score_run(each, bool(views)))
                print(scores[-1].line(), flush=True)
                if views:
                    shutil.rmtree(each)
    print()
    print(table(scores))
    for made in scores:
        for name, check in made.checks.items():
            for problem in check.problems:
                print(f"{name} {made.run}: {problem}")
    for made in scores:
        if any(check.problems for check in made.checks.values()):
            print(f"{made.run}: {again(made.run)}")


def again(run: str) -> str:
    """The command that repeats a drawn run."""
    number, _, rest = run.partition("-")
    if not number.isdecimal():
        return "python -m tests.lab.job_runs --only-score FOLDER"
    kind = next(kind for kind in sorted(KINDS, key=len, reverse=True) if rest.startswith(kind))
    view = f" --views {rest.partition(':')[2]}" if ":" in rest else ""
    return f"python -m tests.lab.job_runs {int(number)} 1 --kind {kind}{view}"


def _folders(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    if options.only_score:
        yield from sorted(path.parent for path in options.only_score.glob("*/truth.json"))
        return
    for number in range(options.seed, options.seed + options.count):
        yield make(number, options.kind, folder)


if __name__ == "__main__":
    main()
