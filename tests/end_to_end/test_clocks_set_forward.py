"""The clock of one of twelve taps is set forward in the middle of its capture: it is the only
finding beside the true ones.

The truth is that of `test_taps_left_out`. The times of the runs are stretched, so that packets do
not wait for their other sightings until the captures end.
"""

from __future__ import annotations

import lzma
import struct

import pytest
from captures import DATA
from examples import first

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

SECOND = 10**9
TRUE = {"r03_link_down_reroute": ("link-down", 71), "r09_packet_spray_h1": ("rate-limit", 609)}
TAPS = ["H1-leaf1", "leaf1-spine1", "H3-leaf2", "leaf2-spine3", "H2-leaf1", "leaf1-spine4"]
STRETCHED = 8


def moved(capture, change):
    """The bytes of a pcap with nanoseconds and other times: `change` of (record, records, ns)."""
    at, records = 24, []
    while at < len(capture):
        records.append(at)
        at += 16 + struct.unpack_from("<I", capture, at + 8)[0]
    begin = struct.unpack_from("<I", capture, 24)[0] // 100 * 100 * SECOND  # one for all taps
    result = bytearray(capture)
    for number, at in enumerate(records):
        seconds, rest = struct.unpack_from("<II", capture, at)
        since = seconds * SECOND + rest - begin
        time = begin + change(number, len(records), since)
        struct.pack_into("<II", result, at, *divmod(time, SECOND))
    return bytes(result)


@pytest.fixture(scope="module", params=TRUE)
def stretched(request, tmp_path_factory):
    """(run, folder of its captures)."""
    folder = tmp_path_factory.mktemp(request.param)
    for path in sorted((DATA / "whole_leafspine" / request.param).glob("*.pcap.xz")):
        capture = lzma.decompress(path.read_bytes())
        assert struct.unpack_from("<I", capture)[0] == 0xA1B23C4D
        slow = moved(capture, lambda number, of, since: since * STRETCHED)
        (folder / path.stem).write_bytes(slow)
    return request.param, folder


def found_in(folder, tmp_path, tap=None, change=None):
    """The findings, notes left out."""
    paths = sorted(folder.glob("*.pcap"))
    assert len(paths) == 12
    if tap is not None:
        (tmp_path / f"{tap}.pcap").write_bytes(moved((folder / f"{tap}.pcap").read_bytes(), change))
        paths = [p if p.stem != tap else tmp_path / p.name for p in paths]
    diagnosis = analyze([str(p) for p in paths], AnalyzeOptions()).diagnosis
    return [f for f in diagnosis.findings if f.severity != "note"]


@pytest.mark.thorough
def test_no_clock_is_set(stretched, tmp_path):
    run, folder = stretched
    assert [(f.kind, f.packets) for f in found_in(folder, tmp_path)] == [TRUE[run]]


@pytest.mark.thorough
@pytest.mark.parametrize("tap", first(4, TAPS))
@pytest.mark.parametrize("seconds", first(1, [5, 0.5, 60, 3600]))
def test_a_clock_that_is_set_forward_is_found_beside_the_loss(stretched, tmp_path, tap, seconds):
    run, folder = stretched
    ns = round(seconds * SECOND)
    found = found_in(
        folder, tmp_path, tap, lambda number, of, since: since + (ns if 2 * number > of else 0)
    )
    clocks = [f for f in found if f.kind == "clock"]
    assert [f.place.capture.split(".")[0].split("/")[-1] for f in clocks] == [tap]
    assert "is set forward 1 time by" in clocks[0].sentence
    assert [(f.kind, f.packets) for f in found if f.kind != "clock"] == [TRUE[run]]
