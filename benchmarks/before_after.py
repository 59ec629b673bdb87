"""Plain RoCEv2 decoded and analysed by this checkout and by another one, in turn in one process.

    git worktree add /tmp/before COMMIT
    python benchmarks/before_after.py /tmp/before [PACKETS]

Prints CPU seconds of both and their ratio: of the smallest, and the median of pairs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time

import encapsulated

ROUNDS = 21


def decode(package: str) -> Callable[[str], float]:
    """CPU seconds of decoding alone, by the package of that name."""
    modules = ("capture.source", "decode.decoder", "wire.registry")
    source, decoder, registry = (import_module(f"{package}.analyzer.{m}") for m in modules)

    def run(path: str) -> float:
        known, spent = registry.Registry(), 0.0
        with source.open_capture(path, known.taps, batch_frames=1 << 16) as capture:
            decode = decoder.Decoder(known).decode
            for batch in capture.batches():
                began = process_time()
                decode(batch)
                spent += process_time() - began
        return spent

    return run


def analyze(package: str) -> Callable[[str], float]:
    """CPU seconds of the whole analysis."""
    api = import_module(f"{package}.api")

    def run(path: str) -> float:
        began = process_time()
        api.analyze([path])
        return process_time() - began

    return run


def main(other: str, packets: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rocescope_before").symlink_to(Path(other).resolve())
        sys.path.insert(0, folder)
        path = str(Path(folder) / "plain")
        encapsulated.write(Path(path), packets, bytes)
        for name, make in (("decode", decode), ("analyze", analyze)):
            runs = [make("rocescope_before"), make("rocescope")]
            for run in runs:
                run(path)  # compiles, or loads what is compiled
            pairs = []
            for i in range(ROUNDS):
                spent = {j: runs[j](path) for j in ((0, 1), (1, 0))[i % 2]}
                pairs.append((spent[0], spent[1]))
            before, after = (min(column) for column in zip(*pairs, strict=True))
            of_pairs = median(b / a for a, b in pairs)
            print(
                f"{name:8} before {before:.4f} s, after {after:.4f} s:"
                f" {after / before:.2f} x, median of pairs {of_pairs:.2f} x"
            )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500_000)
