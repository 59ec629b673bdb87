"""Lumina's mirrors, as the switch sends them and as its dumper writes them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from factories import START_NS, Frame, write_pcap

from rocescope.analyzer.decode.mirrors.restore import MirrorOptions
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis

from ..test_decoder import frame as roce

RAW_PORT = 9741


def mirrored(number: int, time_ns: int, psn: int, event: int = 0, raw: bool = False) -> bytes:
    """One mirrored packet: number and time in the addresses, the event in the TTL."""
    data = bytearray(roce(psn, sport=0xC123))
    data[:12] = time_ns.to_bytes(6, "big") + number.to_bytes(6, "big")
    data[22] = event
    data[15] = 2  # ECT(0)
    if raw:
        struct.pack_into(">HHHH", data, 34, number * 7 & 0xFFFF, RAW_PORT, len(data) - 34, 0xC123)
    elif event == 2:
        data[15] = 3
    return bytes(data)


def lumina(tmp_path: Path, *files: list[bytes]) -> Analysis:
    paths = []
    for n, frames in enumerate(files):
        records = [Frame(START_NS + i, data) for i, data in enumerate(frames)]
        paths.append(str(write_pcap(tmp_path / f"dumper{n}.pcap", records)))
    options = AnalyzeOptions(udp_ports=(4791, RAW_PORT), mirror=MirrorOptions(format="lumina"))
    return analyze(paths, options)


@pytest.mark.parametrize("raw", [True, False])
def test_fields_are_restored(tmp_path: Path, raw: bool) -> None:
    events = [0, 1, 0, 2, 3, 0]
    frames = [mirrored(5 + i, 10**9 + 80 * i, i, e, raw) for i, e in enumerate(events)]
    found = lumina(tmp_path, frames)
    (flow,) = found.flows
    assert flow.packets == 6 and flow.ecn_marked_packets == 1
    assert [path.path for path in flow.paths] == ["49443"]  # 0xC123
    assert (flow.first_time_ns, flow.last_time_ns) == (10**9, 10**9 + 400)
    checks = found.mirror_checks
    assert checks.injected == {"drop": 1, "ecn_mark": 1, "bit_error": 1}
    assert (checks.packets, checks.lost_packets, checks.gaps) == (6, 0, 0)
    assert (checks.out_of_order_packets, checks.times_backwards) == (0, 0)
    assert found.warnings == []


def test_gaps_in_the_numbers_are_told_first(tmp_path: Path) -> None:
    numbers = [1, 2, 5, 6, 9, 8, 10]
    times = [100, 200, 300, 249, 400, 500, 600]
    frames = [mirrored(n, t, i) for i, (n, t) in enumerate(zip(numbers, times, strict=True))]
    found = lumina(tmp_path, frames)
    checks = found.mirror_checks
    assert (checks.lost_packets, checks.gaps) == (3, 3)
    assert (checks.out_of_order_packets, checks.times_backwards) == (1, 1)
    # By number the times are 100, 200, 300, 249, 500, 400, 600, all of one sender.
    assert checks.direction_times_backwards == 2
    assert found.warnings[0].startswith("the mirror lost 3 of 10 packets")


def test_numbers_wrap_to_one(tmp_path: Path) -> None:
    numbers = [0x7FFFFFFE, 0x7FFFFFFF, 1, 2, 4]
    found = lumina(tmp_path, [mirrored(n, 100 * i, i) for i, n in enumerate(numbers)])
    assert (found.mirror_checks.lost_packets, found.mirror_checks.gaps) == (1, 1)


def test_two_dumpers_share_the_numbers(tmp_path: Path) -> None:
    frames = [mirrored(1 + i, 10**6 + 100 * i, i) for i in range(40)]
    found = lumina(tmp_path, frames[::2], frames[1::2])
    assert found.mirror_checks.lost_packets == 0
    assert found.flows[0].packets == 40 and found.flows[0].reordered_packets == 0
    less = lumina(tmp_path, frames[::2], frames[1:20:2] + frames[25::2])
    assert less.mirror_checks.lost_packets == 2


def test_a_capture_of_something_else_is_found_out(tmp_path: Path) -> None:
    found = lumina(tmp_path, [mirrored(1 + i, 100 * i, i, 64) for i in range(5)])
    assert "is this a Lumina mirror?" in " ".join(found.warnings)
