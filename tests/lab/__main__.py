"""The fault lab: real Linux routers with faults drawn at random, and a blind diagnosis.

Run n is the same scenario in every lab; times and random losses differ. Needs root, ip, tc and
tcpdump, and bcc for the faults inside routers.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from .faults import KINDS, Draw
from .run import Useless, run
from .score import Score, line, score, score_few, totals
from .topology import LINKS


def draw_and_run(number: int, kind: str | None, folder: Path) -> Path:
    """A folder with the captures and the truth of run `number`, of a random kind if None."""
    for attempt in range(10):
        draw = Draw(number + attempt * 1_000_000)
        chosen = kind or random.Random(number).choice(list(KINDS))
        where = folder / f"{number:04}-{chosen}"
        try:
            run(KINDS[chosen](draw), where)
        except Useless:
            continue
        return where
    raise AssertionError(f"run {number} ({chosen}): its fault hits nothing in ten attempts")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=1, help="number of the first run")
    parser.add_argument("count", type=int, nargs="?", default=30, help="number of runs")
    parser.add_argument("--keep", type=Path, help="keep captures and truth.json in this folder")
    parser.add_argument("--kind", choices=KINDS, help="only this kind instead of random kinds")
    parser.add_argument("--only-run", action="store_true", help="make the captures, score nothing")
    parser.add_argument("--only-score", type=Path, help="score the runs of a folder, make none")
    parser.add_argument("--drop-tap", action="store_true", help="leave out a random tap of each")
    parser.add_argument("--only-taps", type=int, help="so many taps alone, at random")
    options = parser.parse_args()
    scores: list[Score] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.only_score or options.keep or Path(temporary)
        if options.only_score:
            folders = sorted(path.parent for path in folder.glob("*/truth.json"))
        else:
            numbers = range(options.seed, options.seed + options.count)
            folders = (draw_and_run(number, options.kind, folder) for number in numbers)
        for each in folders:
            if options.only_run:
                print(each, flush=True)
            elif options.only_taps:
                taps = random.Random(each.name).sample(LINKS, options.only_taps)
                scores.append(score_few(each, taps))
                print(line(scores[-1]), flush=True)
            else:
                without = random.Random(each.name).choice(LINKS) if options.drop_tap else None
                scores.append(score(each, without))
                print(line(scores[-1]), flush=True)
    if scores:
        print(totals(scores))


if __name__ == "__main__":
    main()
