"""Captures of a run of training jobs as people have them: cut, late, of one link, clocks apart.

A view is a folder with captures and a truth.json that says what the view can show: steps outside
its time are left out. Nothing here uses the product's readers.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

CLOCK_NS = 1_000_000
"""Between the clocks of taps."""


class Record(NamedTuple):
    """A frame of a capture."""

    time_ns: int
    wire: int
    data: bytes


def read(path: Path) -> list[Record]:
    """The frames of a little-endian pcap with nanoseconds."""
    content = path.read_bytes()
    assert content[:4] == struct.pack("<I", 0xA1B23C4D)
    records, at = [], 24
    while at < len(content):
        seconds, rest, kept, wire = struct.unpack_from("<IIII", content, at)
        at += 16 + kept
        records.append(Record(seconds * 10**9 + rest, wire, content[at - kept : at]))
    return records


def write(path: Path, records: list[Record]) -> None:
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
    for time_ns, wire, data in records:
        parts += [struct.pack("<IIII", *divmod(time_ns, 10**9), len(data), wire), data]
    path.write_bytes(b"".join(parts))


Captures = dict[str, list[Record]]


def _snapped(captures: Captures) -> Captures:
    return {
        name: [record._replace(data=record.data[:96]) for record in records]
        for name, records in captures.items()
    }


def _middle(captures: Captures) -> Captures:
    """From a quarter to three quarters of the time."""
    times = [record.time_ns for records in captures.values() for record in records]
    first, last = min(times), max(times)
    begin, end = first + (last - first) // 4, first + (last - first) * 3 // 4
    return {
        name: [record for record in records if begin <= record.time_ns <= end]
        for name, records in captures.items()
    }


def _one_link(captures: Captures) -> Captures:
    name = min(captures)
    return {name: captures[name]}


def _clocks(captures: Captures) -> Captures:
    """Every second tap is late."""
    return {
        name: [r._replace(time_ns=r.time_ns + i % 2 * CLOCK_NS) for r in captures[name]]
        for i, name in enumerate(sorted(captures))
    }


def _one_file(captures: Captures) -> Captures:
    every = [record for records in captures.values() for record in records]
    return {"mirror.pcap": sorted(every, key=lambda record: record.time_ns)}


def _every_third(captures: Captures) -> Captures:
    """Sampled: no iterations."""
    return {name: records[::3] for name, records in captures.items()}


VIEWS: dict[str, Callable[[Captures], Captures]] = {
    "snap96": _snapped,
    "middle": _middle,
    "one-link": _one_link,
    "clocks": _clocks,
    "one-file": _one_file,
    "sampled": _every_third,
}


def within(truth: Json, first_ns: int, last_ns: int) -> Json:
    """The truth of captures that begin and end at these times."""
    cut = copy.deepcopy(truth)
    for job in cut["jobs"]:
        for step in job["steps"]:
            begin, end = step["first_message_ns"], step["last_message_ns"]
            if begin is None or begin < first_ns or end > last_ns:
                step["complete"] = False
                step["last_message_ns"] = None
    return cut


def views_of(folder: Path, into: Path, names: list[str]) -> Iterator[Path]:
    """Folders with these views of a run."""
    captures = {path.name: read(path) for path in sorted(folder.glob("*.pcap"))}
    truth = json.loads((folder / "truth.json").read_text())
    for name in names:
        seen = {tap: records for tap, records in VIEWS[name](captures).items() if records}
        if not seen:
            continue
        made = into / f"{folder.name}:{name}"
        made.mkdir(parents=True)
        for tap, records in seen.items():
            write(made / tap, records)
        times = [record.time_ns for records in seen.values() for record in records]
        cut = within(truth, min(times) - CLOCK_NS, max(times))
        for job in cut["jobs"]:
            job["sampled"] = name == "sampled"
        (made / "truth.json").write_text(json.dumps(cut))
        yield made
