"""Captures with comments, as tshark reads them: frames as they were, verdicts as analyzed."""

from __future__ import annotations

import io
import os
import re
import struct
from collections import Counter

import numpy as np
import pytest
from captures import data
from examples import examples
from factories import Frame, Pcapng, option, write_pcap, write_pcapng
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from job_logs import nccl
from lua_tshark import tshark
from tracked_batches import tracked

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.pipeline.captures import analyze, open_sources
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.batch import AHEAD, OVERTAKEN, REORDERED
from rocescope.analyzer.track.references import REFERENCE
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Taps
from rocescope.report.wireshark.export import export_pcapng
from rocescope.report.wireshark.reading import Known, LateOfGaps, slices

# Captures with comments, as tshark reads them: frames as they were, verdicts as analyzed.

SPRAYED = "leafspine/r09_packet_spray_h1"


def exported(tmp_path, paths, name="out.pcapng", **options):
    """The file, and the outcome of its export."""
    path = tmp_path / name
    with path.open("wb") as file:
        done = export_pcapng([str(p) for p in paths], AnalyzeOptions(**options), file)
    return path, done


def rows(path, display_filter, *fields):
    """Values of fields of the frames that pass a display filter."""
    words = ["-T", "fields", *[word for field in fields for word in ("-e", field)]]
    return [line.split("\t") for line in tshark("-r", str(path), "-Y", display_filter, *words)]


def frames_of(path):
    """(time in ns, bytes on the wire, captured bytes) of each frame."""
    found = []
    with open_capture(str(path), Taps()) as capture:
        for batch in capture.batches():
            for time, wire, at, size in zip(
                batch.time_ns.tolist(), batch.wire.tolist(), batch.offset.tolist(),
                batch.captured.tolist(), strict=True,
            ):  # fmt: skip
                found.append((time, wire, batch.data[at : at + size].tobytes()))
    return found


def analyzed(*paths):
    """The analysis of captures."""
    return analyze([str(path) for path in paths], AnalyzeOptions())


def total(analysis, name):
    return sum(getattr(flow, name) or 0 for flow in analysis.flows)


def test_verdicts_are_filters_of_tshark_and_count_as_analyzed(tmp_path, need_tool):
    need_tool("tshark")
    source = data("i03_write_reorder5_AtoB")
    path, done = exported(tmp_path, [source])
    assert frames_of(path) == frames_of(source)
    analysis = analyzed(source)
    names = "verdict", "late_by", "extent", "overtaken_by", "retransmission_of", "nak"
    found = rows(
        path, "rocescope", "frame.number", "infiniband.bth.psn",
        *[f"rocescope.{name}" for name in names],
    )  # fmt: skip
    psns = rows(path, "infiniband", "frame.number", "infiniband.bth.psn")
    psn_of = {int(number): psn for number, psn in psns}
    kinds = Counter(row[2] for row in found)
    assert kinds["reordered"] == total(analysis, "reordered_packets") == 982
    assert kinds["retransmitted"] == total(analysis, "retransmitted_packets")
    assert sum(1 for row in found if row[7]) == total(analysis, "naks")
    assert done.comments == len(found)
    for number, psn, kind, late_by, _extent, overtaken_by, resent, _nak in found:
        if resent:
            assert psn_of[int(resent)] == psn and int(resent) < int(number)
        if kind == "reordered":
            assert int(late_by) > 0 and int(psn_of[int(overtaken_by)]) > int(psn)
    late = [row for row in found if row[3] and int(row[3]) > 3]
    assert len(rows(path, "rocescope.late_by > 3", "frame.number")) == len(late) > 0


@pytest.mark.thorough
def test_losses_before_and_after_a_tap(tmp_path, need_tool):
    need_tool("tshark")
    sent, received = data("i01_write_loss0.5_AtoB.atA"), data("i01_write_loss0.5_AtoB.atB")
    alone, _ = exported(tmp_path, [received], "alone.pcapng")
    lost = rows(alone, "rocescope.lost_before", "rocescope.lost_before")
    analysis = analyzed(received)
    assert sum(int(n) for (n,) in lost) == total(analysis, "recovered_packets") == 125
    both, _ = exported(tmp_path, [sent, received], "both.pcapng")
    hop = analyzed(sent, received).hops[0]
    fields = "frame.interface_name", "rocescope.never_seen_at"
    after = rows(both, "rocescope.lost_after", *fields)
    assert after == [[sent.name, "atB"]] * hop.lost_packets
    copies = rows(both, "rocescope.hop == 2 && rocescope.hop_time < 1", fields[0])
    assert {name for (name,) in copies} == {sent.name, received.name} and len(copies) > 30_000


def test_captures_are_merged_by_time(tmp_path):
    files = sorted(data(SPRAYED).glob("*.pcap.gz"))
    path, done = exported(tmp_path, files)
    merged = frames_of(path)
    assert [frame[0] for frame in merged] == sorted(frame[0] for frame in merged)
    parts = [frame for file in files for frame in frames_of(file)]
    assert Counter(merged) == Counter(parts) and done.frames == len(parts)


def test_captures_with_the_largest_time_are_merged(tmp_path):
    last = (1 << 63) - 1
    packet = frames_of(data("c13_rc_write_rdmacm_ipv4.atB"))[100][2]
    files = []
    for name, times in (("x", (5, last)), ("y", (last, last))):
        frames = [Frame(time, packet) for time in times]
        files.append(write_pcapng(tmp_path / f"{name}.pcapng", frames))
    path, done = exported(tmp_path, files)
    assert done.frames == 4 and [frame[0] for frame in frames_of(path)] == [5, last, last, last]


def with_a_gap():
    """Frames of one flow of a real capture; one is missing, one comes twice."""
    frames = frames_of(data("c13_rc_write_rdmacm_ipv4.atB"))[:400]
    return [Frame(time // 1000 * 1000, data) for time, _, data in frames[:100] + frames[101:]]


@pytest.mark.thorough
@pytest.mark.parametrize("order", "<>")
def test_a_pcapng_keeps_its_blocks_and_comments(tmp_path, need_tool, order):
    """Simple and custom blocks, secrets, options; exported again nothing is there twice."""
    frames = with_a_gap()
    file = Pcapng(order).section(comment="of the section").interface(name="eth7", resolution=6)
    file.block(0x0BAD, struct.pack(f"{order}I", 32473) + b"custom")
    for frame in frames:
        said = option(1, b"the user's", order) + option(2, struct.pack(f"{order}I", 1), order)
        head = 0, frame.time_ns // 1000 >> 32, frame.time_ns // 1000 & 0xFFFFFFFF
        sizes = len(frame.data), len(frame.data)
        body = struct.pack(f"{order}IIIII", *head, *sizes) + frame.data
        file.block(6, body + bytes(-len(frame.data) % 4) + said + option(0, b"", order))
    file.statistics(0, {5: 3})
    source = tmp_path / "in.pcapng"
    source.write_bytes(file.bytes())
    path, done = exported(tmp_path, [source])
    again, _ = exported(tmp_path, [path], "again.pcapng")
    assert done.comments > 0 and again.read_bytes() == path.read_bytes()
    need_tool("tshark")
    fields = "frame.number", "frame.time_epoch", "frame.interface_name", "frame.comment"
    before, after = (rows(p, "eth", *fields) for p in (source, path))
    ours = 0
    for old, new in zip(before, after, strict=True):
        assert new[:3] == old[:3] and new[3].startswith("the user's")
        ours += "[rocescope " in new[3]
    assert ours == done.comments
    assert b"custom" in path.read_bytes() and b"of the section" in path.read_bytes()


def test_simple_packet_blocks_stay_without_comments(tmp_path):
    frames = with_a_gap()
    file = Pcapng().section().interface()
    for frame in frames:
        file.simple(frame.data)
    source = tmp_path / "in.pcapng"
    source.write_bytes(file.bytes())
    path, done = exported(tmp_path, [source])
    assert path.read_bytes() == source.read_bytes()
    assert any("comments are not written" in line for line in done.warnings)


def test_options_of_merged_captures_stay(tmp_path, need_tool):
    frames = with_a_gap()
    half = len(frames) // 2
    sources = []
    for name, order, part in (("a", "<", frames[:half]), ("b", ">", frames[half:])):
        file = Pcapng(order).section().interface(name=name)
        for frame in part:
            file.enhanced(frame.time_ns, frame.data)
        sources.append(tmp_path / f"{name}.pcapng")
        sources[-1].write_bytes(file.bytes())
    path, _ = exported(tmp_path, sources)
    fields = "frame.interface_name", "frame.packet_flags_direction"
    need_tool("tshark")
    found = rows(path, "frame", *fields)
    assert found == [["a.pcapng:a", "0x00000001"]] * half + [["b.pcapng:b", "0x00000001"]] * (
        len(frames) - half
    )


def test_a_filter_leaves_out_other_frames(tmp_path):
    source = data("i03_write_reorder5_AtoB")
    path, done = exported(tmp_path, [source], filter="nak")
    assert done.frames == len(frames_of(path)) == 81
    twice, again = exported(tmp_path, [path], "again.pcapng", filter="nak")
    assert again.frames == 81 and frames_of(twice) == frames_of(path)


@pytest.mark.thorough
def test_ranks_of_logs(tmp_path, need_tool):
    source = data("c13_rc_write_rdmacm_ipv4.atB")
    flow = max(analyzed(source).flows, key=lambda flow: flow.packets)
    flows = analyzed(source).flows
    peer = next(f for f in flows if f.src == flow.dst and f.connection == flow.connection)
    log = tmp_path / "nccl.log"
    log.write_text("\n".join(nccl("h1", 4711, 3, 11, flow.src, [peer.dest_qp])) + "\n")
    path, _ = exported(tmp_path, [source], job_logs=(str(log),))
    need_tool("tshark")
    found = rows(path, "rocescope.rank == 3", "rocescope.src_rank", "rocescope.dst_rank")
    assert Counter(map(tuple, found))[("3", "11")] == flow.packets
    assert not rows(path, "rocescope.rank == 4", "frame.number")


@pytest.mark.thorough
def test_hostile_names_stay_one_line_of_text(tmp_path, need_tool):
    sent, received = data("i01_write_loss0.5_AtoB.atA"), data("i01_write_loss0.5_AtoB.atB")
    names = {str(sent): "a\x1b[31m] x=1", str(received): "b\n\u202e[rocescope lost_before=9]"}
    path, _ = exported(tmp_path, [sent, received], tap_names=names)
    need_tool("tshark")
    assert not rows(path, "rocescope.lost_before", "frame.number")
    comments = re.findall(rb"[^\0]*\[rocescope [^\]]*\]", path.read_bytes())
    assert comments
    for comment in comments[:2000]:
        assert b"\x1b" not in comment and b"\n" not in comment and b"\xe2\x80\xae" not in comment


def test_what_cannot_be_exported(tmp_path):
    for path, error in (("-", UsageError), (str(tmp_path), UsageError)):
        with pytest.raises(error, match="twice: give a file"):
            export_pcapng([path], AnalyzeOptions(), io.BytesIO())
    with pytest.raises(UnreadableInput, match="no such file"):
        export_pcapng([str(tmp_path / "none")], AnalyzeOptions(), io.BytesIO())
    empty = tmp_path / "empty.pcapng"
    empty.write_bytes(Pcapng().section().interface().bytes())
    with pytest.raises(UnreadableInput, match="no RoCE packet"):
        export_pcapng([str(empty)], AnalyzeOptions(), io.BytesIO())


def test_damage_is_kept_and_counted(tmp_path):
    file = Pcapng().section().interface()
    for frame in with_a_gap():
        file.enhanced(frame.time_ns, frame.data)
    source = tmp_path / "cut.pcapng"
    source.write_bytes(file.bytes()[:-30])
    path, done = exported(tmp_path, [source])
    assert done.damaged_places == 1 and np.any(["cut short" in line for line in done.warnings])
    assert path.read_bytes().endswith(source.read_bytes()[-40:])


def test_logs_that_cannot_be_read_twice_are_refused(tmp_path):
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    options = AnalyzeOptions(filter="rank == 1", job_logs=(str(fifo),))
    with pytest.raises(UsageError, match="--nccl-log: --pcapng reads .* twice: give a file"):
        export_pcapng([str(data("i03_write_reorder5_AtoB"))], options, io.BytesIO())


# Frames of several captures by time.

# Frames of several captures by time.


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=3))
def test_every_frame_once_in_order(tmp_path, captures):
    captures = [times for times in captures if times] or [[1]]
    paths = []
    for number, times in enumerate(captures):
        made = enumerate(times)
        frames = [Frame(10**18 + time * 1000, bytes([number, i]) * 30) for i, time in made]
        paths.append(str(write_pcap(tmp_path / f"{number}.pcap", frames)))
    merged = []
    with open_sources(paths, AnalyzeOptions(), Registry()) as sources:
        for part in slices(sources):
            found = [None] * part.length
            for one in part.parts:
                for frame, place in zip(one.rows.tolist(), one.place.tolist(), strict=True):
                    at = int(one.frames.offset[frame])
                    number, nth = one.frames.data[at : at + 2].tolist()
                    assert found[place] is None and number == one.source
                    found[place] = int(one.frames.time_ns[frame]) // 1000 - 10**15, number, nth
            merged += found
    every = [(t, n, i) for n, times in enumerate(captures) for i, t in enumerate(times)]
    assert merged == (sorted(every) if len(captures) > 1 else every)


def test_packets_stand_at_their_frames(tmp_path):
    from captures import data

    paths = sorted(str(p) for p in data("leafspine/r09_packet_spray_h1").glob("*.gz"))
    registry, packets = Registry(), 0
    with open_sources(paths, AnalyzeOptions(), registry) as sources:
        for part in slices(sources):
            assert (np.diff(part.place) >= 0).all()
            numbers = {}
            for one in part.parts:
                first = one.frames.first_frame_number
                for frame, place in zip(one.rows.tolist(), one.place.tolist(), strict=True):
                    numbers[place] = one.source, first + frame
            there = list(
                zip(part.table.tap.tolist(), part.table.frame_number.tolist(), strict=True)
            )
            assert [numbers[place] for place in part.place.tolist()] == there
            packets += len(part.table)
    assert packets > 19_000


# What a reading to the end tells.


def test_late_packets_are_counted_by_gap():
    late = LateOfGaps()
    batch = tracked([{"verdict": v} for v in (AHEAD, REORDERED, REORDERED, OVERTAKEN)])
    sights = np.full(4, -1, REFERENCE)
    sights["gap"] = 200_000, 200_000, 3, 200_000
    late.add(200_001, sights, batch)
    late.add(500_000, sights[:0], tracked([]))
    assert [late.get(gap) for gap in (0, 3, 200_000)] == [0, 1, 2]
    assert Known(late).late_of_gap(200_000) == 2
    assert Known(late).late_of_gap(10**9) is None and Known().late_of_gap(0) is None
