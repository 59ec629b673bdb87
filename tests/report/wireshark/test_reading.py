"""Frames of several captures by time."""

from __future__ import annotations

import numpy as np
from examples import examples
from factories import Frame, write_pcap
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tracked_batches import tracked

from rocescope.analyzer.pipeline.captures import open_sources
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.batch import AHEAD, OVERTAKEN, REORDERED
from rocescope.analyzer.track.references import REFERENCE
from rocescope.analyzer.wire.registry import Registry
from rocescope.report.wireshark.reading import Known, LateOfGaps, slices

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
