"""Several taps together against the sum of each tap alone: the price of following every packet.

`python benchmarks/taps.py CAPTURE...` takes the captures of one run, one file per tap; without
captures the twelve of a bundled leaf-spine run, unpacked. Processor time, the median of rounds that
alternate.
"""

from __future__ import annotations

import lzma
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions

ROUNDS = 7
LIMIT = 2.0
"""The taps together cost at most this times their sum."""
BUNDLED = Path(__file__).resolve().parent.parent / "tests/data/whole_leafspine/r09_packet_spray_h1"


def seconds(paths: Sequence[str]) -> float:
    """Processor time of reading and concluding."""
    begun = time.process_time()
    with open_captures(paths, AnalyzeOptions(), None) as run:
        run.conclude(run.read())
    return time.process_time() - begun


def main(paths: Sequence[str]) -> int:
    """Compare the captures, or the bundled ones."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(paths or unpacked(Path(folder)))


def unpacked(folder: Path) -> list[str]:
    """The bundled captures, unpacked in a folder."""
    for path in BUNDLED.glob("*.pcap.xz"):
        (folder / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
    return sorted(str(path) for path in folder.iterdir())


def compare(paths: Sequence[str]) -> int:
    """Print the ratio; 1 when it is above the limit."""
    ratios = []
    for attempt in range(ROUNDS + 1):
        together, alone = seconds(paths), sum(seconds([path]) for path in paths)
        if attempt:  # the first round compiles and fills caches
            ratios.append(together / alone)
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"{len(paths)} taps together: {ratio:.2f} times the sum of each alone ({spread})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
