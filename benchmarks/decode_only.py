"""Frame and decode one capture in this process, on one core; print seconds and packets.

The kernels are compiled (or loaded from their cache) on WARM_UP first, untimed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter, process_time

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.wire.registry import Registry


def decode(path: Path) -> int:
    """Decode every frame of the capture; the number of RoCE packets."""
    registry = Registry()
    decoder = Decoder(registry)
    return sum(
        len(decoder.decode(frames)) for frames in open_capture(str(path), registry.taps).batches()
    )


def main() -> None:
    warm_up, path = map(Path, sys.argv[1:])
    decode(warm_up)
    wall, cpu = perf_counter(), process_time()
    packets = decode(path)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    json.dump({"packets": packets, "wall": wall, "cpu": cpu}, sys.stdout)


if __name__ == "__main__":
    main()
