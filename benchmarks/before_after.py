"""`make bench`: rocescope today beside an older commit: processor time and peak memory of commands.

    python benchmarks/before_after.py [--rounds N] [--only WORD] [--check | --record]

`before.json` names the older commit; it is moved only on purpose. Its checkout and its environment
are in build/before. Both sides run every command in turn; the ratio is the median of the pairs,
with the smallest and the largest. What the older commit cannot do has no ratio.

`--check` needs no older commit: it ends with exit code 1 if a command takes 10 percent more memory
than `before.json` says, where `--record` writes it. Recorded is what a command takes on one core
above a Python that only imports numpy and msgspec: the memory of those differs between machines and
versions, and is measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measure import Cost, run, start_up
from two_cores import make_taps

CHECKOUT = Path(__file__).resolve().parent.parent
BEFORE = CHECKOUT / "benchmarks/before.json"
SMALL = CHECKOUT / "tests/data/i03_write_reorder5_AtoB.atB.pcap.gz"
IMPORTS = "-c", "import numpy, msgspec"
MESSAGES = 400
"""Of the twelve taps: 1.3 million packets."""
PERMUTATION = "--pattern permutation:message-size=2MB --fabric fat-tree:k=8,rate=800G -s ofan"
AGGREGATE = (
    "--jobs count=8,workers=8,model=comm,fragments=2000"
    " --fabric leaf-spine:leaves=1,spines=1,hosts=72,rate=100G"
)
MOST = 1.1
"""Peak memory over the recorded one."""


class Work(NamedTuple):
    """A command, and how it is measured."""

    name: str
    words: Callable[[Path], Sequence[str]]
    """Makes its captures in a folder."""
    measure: Callable[[list[str]], Cost] = run


def capture(folder: Path, packets: int) -> str:
    """A capture of so many packets of 96 bytes."""
    path = folder / f"{packets}.pcap"
    generator = [sys.executable, str(CHECKOUT / "benchmarks/generate.py"), "-o", str(path)]
    run([*generator, "--packets", str(packets)])
    return str(path)


def until_flows(command: Sequence[str]) -> Cost:
    return start_up(command)[1]


WORKS = (
    Work("analyze, small capture", lambda _: ["analyze", str(SMALL)]),
    Work("analyze, 2 M packets", lambda folder: ["analyze", capture(folder, 2_000_000)]),
    Work("analyze, 20 M packets", lambda folder: ["analyze", capture(folder, 20_000_000)]),
    Work("analyze, 12 taps", lambda folder: ["analyze", *make_taps(folder, MESSAGES)]),
    Work("replay, permutation", lambda _: ["replay", *PERMUTATION.split()]),
    Work("aggregate", lambda _: ["aggregate", *AGGREGATE.split()]),
    Work("tui until its flows", lambda folder: ["tui", capture(folder, 10_000)], until_flows),
)


def checkout_of(commit: str) -> Path:
    """The older commit with its own environment, made by its own Makefile."""
    folder = CHECKOUT / "build/before" / commit
    if not folder.exists():
        git = ["git", "-C", str(CHECKOUT), "worktree", "add", "--quiet", "--detach"]
        subprocess.run([*git, str(folder), commit], check=True)
    subprocess.run(["make", "-C", str(folder), ".venv/.installed"], check=True, stdout=sys.stderr)
    return folder


def command(checkout: Path, words: Sequence[str]) -> list[str] | None:
    """A command line of a checkout; None if it has no such command."""
    if not (checkout / "commands" / f"{words[0]}.py").exists():
        return None
    return [str(checkout / ".venv/bin/python"), "-m", "rocescope", *words]


def compare(before: Path, work: Work, rounds: int, folder: Path) -> str:
    """Run both sides in turn; a row of the table."""
    words = work.words(folder)
    sides = [command(checkout, words) for checkout in (before, CHECKOUT)]
    costs = [[work.measure(side) if side else None for side in sides] for _ in range(rounds + 1)]
    pairs = costs[1:]  # the first round compiles and fills caches
    columns = [f"{work.name:22}"]
    for unit, figure in (("s", lambda cost: cost.cpu), ("MB", Cost.megabytes)):
        figures = [[figure(cost) if cost else None for cost in pair] for pair in pairs]
        olds, news = zip(*figures, strict=True)
        ratios = [new / old if old and new else None for old, new in figures]
        columns += [spread(olds, unit), spread(news, unit), spread(ratios, "x")]
    return "  ".join(columns)


def spread(figures: Sequence[float | None], unit: str) -> str:
    """Median, smallest and largest."""
    given = [figure for figure in figures if figure is not None]
    if not given:
        return f"{'-':>20}"
    digits = 0 if unit == "MB" else 2
    middle, low, high = (f"{of(given):.{digits}f}" for of in (median, min, max))
    return f"{f'{middle} {unit} ({low}-{high})':>20}"


def peaks(works: Sequence[Work]) -> tuple[float, dict[str, float]]:
    """MB of the imports, and of each command, on one core; the smallest of three runs."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # threads change little then
    found = {}

    def smallest(measure: Callable[[list[str]], Cost], line: list[str]) -> float:
        return min(measure(line).megabytes() for _ in range(3))

    for work in works:
        with tempfile.TemporaryDirectory() as folder:
            line = [sys.executable, "-m", "rocescope", *work.words(Path(folder))]
            found[work.name] = smallest(work.measure, line)
    return smallest(run, [sys.executable, *IMPORTS]), found


def check(works: Sequence[Work], recorded: dict[str, float]) -> int:
    """Print every peak beside the recorded one; 1 if one is too large."""
    imports, found = peaks(works)
    large = 0
    for name, megabytes in found.items():
        expected = imports + recorded[name]
        large += megabytes > MOST * expected
        print(f"{name:22} {megabytes:6.1f} MB, {megabytes / expected:.2f} of the recorded")
    return int(large > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--record", action="store_true")
    options = parser.parse_args()
    known = json.loads(BEFORE.read_text())
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # an installation has bytecode
    works = [work for work in WORKS if options.only in work.name]
    if options.check:
        return check(works, known["megabytes_above_imports"])
    if options.record:
        imports, found = peaks(works)
        known["megabytes_above_imports"] |= {
            name: round(megabytes - imports, 1) for name, megabytes in found.items()
        }
        BEFORE.write_text(json.dumps(known, indent=2) + "\n")
        return 0
    before = checkout_of(known["commit"])
    heads = ["before", "after", "ratio"] * 2
    print("  ".join([f"{'':22}", *(f"{head:>20}" for head in heads)]))
    for work in works:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            print(compare(before, work, options.rounds, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
