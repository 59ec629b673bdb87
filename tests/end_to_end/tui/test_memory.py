"""A session takes memory for its flows, not for the time it lasts."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import pytest
from generate import write

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.measures.series import LateActivity
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.analyzer.wire.registry import Registry
from rocescope.tui.session.history import History
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import SourceState

BUDGET = 1 << 20
ROWS = 2_000
CONNECTIONS = 50


def batches(path, registry):
    """Packets as probes would give them: a few at a time."""
    with open_capture(str(path), registry.taps) as capture:
        decoder = Decoder(registry)
        for frames in capture.batches():
            table = decoder.decode(frames)
            for begin in range(0, len(table), ROWS):
                yield table.slice(begin, min(begin + ROWS, len(table)))


@pytest.mark.thorough
def test_a_longer_session_takes_no_more_memory(tmp_path):
    path = tmp_path / "long.pcap"
    with path.open("wb") as file:
        write(file, 200_000, CONNECTIONS)
    registry = Registry()
    pipeline = Pipeline(AnalyzeOptions(window_ns=10_000_000), registry, many_taps=True)
    measuring = pipeline.measuring
    measuring.late = LateActivity()
    session = Session(lambda keep: None, "eth0", "live")
    session.history = History(BUDGET)
    session._feed = SimpleNamespace(
        pipeline=pipeline, owners={}, state=lambda: SourceState("eth0", "live")
    )
    taken = []
    tracemalloc.start()
    try:
        for number, table in enumerate(batches(path, registry)):
            table.time_ns[:] += number * 2_000_000_000  # as if each came seconds later
            measuring.update(table)
            session.snapshot()
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(measuring.tracker) == 2 * CONNECTIONS and len(taken) >= 100
    assert session.history.nbytes <= BUDGET
    early, late = max(taken[35:45]), max(taken[-10:])
    assert late < 1.05 * early + BUDGET // 4, (early, late)
