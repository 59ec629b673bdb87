"""What the tests of screens share."""

from __future__ import annotations

import pytest

_DISSECTION = [
    ("INFINIBAND", 0, 42, 54),
    ("Opcode: Reliable Connection (RC) - RDMA WRITE Middle (7)", 1, 42, 43),
    ("Destination Queue Pair: 0x00002d", 1, 47, 50),
]


@pytest.fixture
def the_same_everywhere(monkeypatch):
    """Neither tshark's version nor this machine's tools and speed may show."""
    from rocescope.tui.screens import doctor, packets, replay
    from rocescope.tui.session.dissect import Line

    monkeypatch.setattr(packets, "dissect", lambda *_: [Line(*line) for line in _DISSECTION])
    monkeypatch.setattr(replay, "monotonic", lambda: 0.0)
    monkeypatch.setattr(doctor, "tool_findings", lambda _live: [])
