"""Run mutants through everything, in one process: `python -m tests.fuzz.run FIRST COUNT [FILE]`.

With ROCESCOPE_BOUNDSCHECK=1 the kernels are compiled with bounds checks, so that an index outside
an array is an IndexError. Prints the counts of the outcomes as one JSON object; an error names the
number of its mutant, which makes the mutant again. With FILE the kernels read guarded memory
(`guarded.py`), and the number of the present mutant is always in this file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import struct
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from factories import Frame, pcap_bytes

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.decode.mirrors import MirrorOptions, Mirrors
from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.measures.series import Totals
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.wire.registry import Endpoints, Registry, SegmentLists
from rocescope.kernels.kernel import BOUNDS_CHECK
from rocescope.report.files import encode

from .guarded import frames_alone, guard_captures, guarded_columns
from .mutate import mutant
from .seeds import seeds

WINDOW_NS = 100_000_000
MOST_WINDOWS = 1000
"""A damaged time stamp makes as many; the million of the command line is for `whole_engine`."""
MOST_PAGES, MOST_PAGES_OF_WHOLE_ENGINE = 50_000, 500_000
"""Most fresh memory pages of 4 KiB for a mutant, which has at most a few hundred frames.

Most mutants need below 1,000; a kernel that is compiled on the way needs some 10,000, the million
windows of the whole engine 75,000.
"""
HANG_SECONDS = 300
"""A mutant that runs for so long never ends."""
_MIRRORS = (
    *[MirrorOptions()] * 5,
    MirrorOptions(clock="hardware"),
    MirrorOptions(format="lumina"),
)
_RESULTS_EVERY, _WHOLE_ENGINE_EVERY = 4, 50
"""Every mutant goes through reader, decoder, tracker and measures; results take as long again."""
_MOMENTS = ("first", "last", "retired", "returned", "cause", "down", "up")
_MAY_BE_NEGATIVE = ("density", *(f"{moment}_time_ns" for moment in _MOMENTS))
_NEGATIVE = re.compile(rb"[:,[]-")


def run(path: str, number: int, guard: bool = False) -> str:
    """Reads a file and measures it; what it held. AssertionError when a count does not add up.

    guard: kernels read guarded memory: the frames one by one, or the columns of the tables.
    """
    registry = Registry(Endpoints(4))
    taps = registry.taps
    batch_frames = {0: 1, 1: 5, 2: 5}.get(number % 16, 1 << 10)
    with open_capture(path, taps, batch_frames=batch_frames) as capture:
        mirrors = Mirrors(_MIRRORS[number % len(_MIRRORS)], taps)
        decoder = Decoder(registry, check_icrc=number % 2 == 0, mirrors=mirrors)
        measuring = Measuring(WINDOW_NS, many_taps=capture.format == "pcapng")
        measuring.totals = Totals(WINDOW_NS, MOST_WINDOWS)

        def tables():
            for frames in capture.batches():
                if len(frames):
                    ends = frames.offset + frames.captured
                    assert int(frames.offset.min()) >= 0 and int(ends.max()) <= len(frames.data)
                if guard and number % 2:
                    yield from map(decoder.decode, frames_alone(frames))
                else:
                    table = decoder.decode(frames)
                    yield guarded_columns(table) if guard else table

        rows = wire = payload = again = 0
        damage = False
        try:
            for table in merge_tables([mirrors.ordered(tables())]):
                cm = decoder.take_cm_messages()
                measuring.update(table, cm)
                rows += len(table)
                if mirrors.lumina is not None:  # packets that continued are there twice
                    again += int(np.count_nonzero(table.tap == mirrors.lumina.behind))
                wire += int(table.wire_bytes.sum())
                payload += int(table.payload_bytes.sum())
        except UnreadableInput:
            damage = True
        assert decoder.counters.roce_packets() == rows - again
        assert decoder.counters.frames() == capture.frames
        if number % _RESULTS_EVERY == 0:
            if number % 5 == 0:  # results whose segment lists nobody knows
                registry = replace(registry, segments=SegmentLists())
            summary = Summary(measuring, registry, "entropy")
            check(capture.frames, decoder, measuring, summary, taps, rows, wire, payload)
        damage = damage or bool(capture.damaged_places)
    return "damaged" if damage else "RoCE" if rows else "no RoCE"


def check(frames, decoder, measuring, summary, taps, rows, wire, payload):
    """Nothing is lost on the way from frames to results, and no count is negative."""
    counters = decoder.counters
    found = frames + counters.inner_frames() - counters.carriers()
    assert found == sum(n for _, n in counters.contents())
    flows = summary.flows()
    summary.events(100)
    summary.segment_lists()
    if summary.mrc is not None:
        summary.mrc.whole(outer_labels=False)
    if rows % 4 == 0:
        summary.imbalance()
    assert sum(f.packets + f.tap_copies for f in flows) == rows
    windows = measuring.totals.series([tap.name for tap in taps.items])
    assert sum(windows.packets) == sum(f.packets for f in flows)
    total = sum(windows.wire_bytes)
    assert sum(f.wire_bytes for f in flows) == total <= wire
    assert sum(f.payload_bytes for f in flows) == sum(windows.payload_bytes) <= payload
    if not any(f.tap_copies for f in flows):
        assert total == wire
    for flow in flows:
        assert sum(flow.opcodes.values()) == flow.packets
        if flow.packets:
            assert sum(path.packets for path in flow.paths) == flow.packets
            assert sum(path.wire_bytes for path in flow.paths) == flow.wire_bytes
            assert sum(flow.activity_bytes) == flow.wire_bytes
    tracker = measuring.tracker
    streams = tracker.state.streams[: 2 * len(tracker)]
    for name in ("missing", "missing_evicted", "missing_evicted_acked", "arrivals", "late_depth"):
        assert not len(streams) or int(streams[name].min()) >= 0, name
    if _NEGATIVE.search(msgspec.json.encode(flows)):
        assert_no_negative_count(msgspec.to_builtins(flows))


def assert_no_negative_count(value, name=""):
    """Times may lie before the epoch, everything else counts or measures something."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _MAY_BE_NEGATIVE:
                assert_no_negative_count(item, key)
    elif isinstance(value, list):
        for item in value:
            assert_no_negative_count(item, name)
    elif isinstance(value, int | float):
        assert value >= 0, name


def whole_engine(path: str) -> None:
    """As the command line runs it, with its threads, up to JSON that keeps to its schema."""
    result = encode(analyze([path], AnalyzeOptions(window_ns=1_000_000)), "json")
    msgspec.json.decode(result, type=Analysis)


def outcome(path: str, number: int, guard: bool = False) -> str:
    """What became of a mutant: only one kind of error may come out, and it is one line."""
    try:
        if number % _WHOLE_ENGINE_EVERY == 0:
            with suppress(UnreadableInput):
                whole_engine(path)
        return run(path, number, guard)
    except UnreadableInput as error:
        assert "\n" not in str(error)
        return "unreadable"


def pages() -> int:
    """Memory pages that this process has touched first so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main(first: int, count: int, present: str = "") -> None:
    guard = bool(present)
    if guard:
        guard_captures()
    place = os.open(present, os.O_WRONLY) if guard else -1
    data = Path(__file__).resolve().parent.parent / "data"
    start_with = seeds(data)
    met: Counter[str] = Counter()
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".pcap") as file:
        for seed in start_with:  # compiles what its packets need
            file.seek(0)
            file.truncate()
            file.write(pcap_bytes(Frame(r.time_ns, r.data, r.wire) for r in seed.records))
            file.flush()
            run(file.name, 0)
        for number in range(first, first + count):
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            file.seek(0)
            file.truncate()
            file.write(mutant(number, start_with))
            file.flush()
            if guard:
                os.pwrite(place, struct.pack("<q", number), 0)
            before = pages()
            try:
                met[outcome(file.name, number, guard)] += 1
            except BaseException as error:
                error.add_note(f"mutant {number}: make fuzz N=1 FROM={number}")
                raise
            fresh, whole = pages() - before, number % _WHOLE_ENGINE_EVERY == 0
            assert guard or fresh < (MOST_PAGES_OF_WHOLE_ENGINE if whole else MOST_PAGES), (
                number,
                fresh,
            )
    faulthandler.cancel_dump_traceback_later()
    json.dump({"bounds_checked": BOUNDS_CHECK, "met": met}, sys.stdout)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
