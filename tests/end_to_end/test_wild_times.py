"""Times at both ends of 64 bits, in any order: results without a numpy warning or error."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from factories import Pcapng

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.replay.generate.mrc import Format, Settings, Traffic

from ..fuzz.seeds import Record, seeds

EXTREMES = (0, 1, 2**31, 2**62, 2**63 - 2**32, 2**63 - 1)


def mrc() -> list[Record]:
    """MRC with losses, trims and a plane that fails: silences of entropy values end by time."""
    trouble = {"message_bytes": 24_576, "path_mtu": 1024, "evs": 8, "messages": 3, "ce": 0.1}
    traffic = Traffic(Settings(loss=0.05, trim=0.05, failed_plane=1, **trouble), Format(snap=0))
    return [Record(*captured) for captured in traffic.captured()][:400]


def wild(records: list[Record], rng: random.Random) -> bytes:
    """Several taps; some times, or all after one, are far from the others."""
    made = Pcapng().section()
    for offset in (None, -(2**32), 2**32 - 1):
        made.interface(offset_seconds=offset)
    shift, often = 0, rng.choice((0.01, 0.1, 0.5))
    for record in records:
        if rng.random() < often:
            shift = rng.choice(EXTREMES) - rng.choice((0, record.time_ns))
        time = (record.time_ns + shift) & (2**64 - 1) if rng.random() < 0.8 else record.time_ns
        made.enhanced(time, record.data, wire=record.wire, interface=rng.randrange(3))
    return made.bytes()


@pytest.mark.thorough
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", range(24))
def test_wild_times_leave_results_whole(tmp_path: Path, data: Path, number: int) -> None:
    rng, path = random.Random(number), tmp_path / "x.pcapng"
    if number % 2:
        records = mrc()
    else:
        records = [r for r in rng.choice(seeds(data)).records if r.link_type == 1]
    path.write_bytes(wild(records, rng))
    conformance = ConformanceOptions() if number % 3 == 0 else None
    with np.errstate(all="raise", under="ignore"), suppress(UnreadableInput):  # none of it RoCE
        result = analyze([str(path)], AnalyzeOptions(conformance=conformance))
        assert b"NaN" not in msgspec.json.encode(result)
