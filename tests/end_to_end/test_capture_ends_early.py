"""One of two captures ends before the other: nothing after its end is a fault."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from rocescope import analyze

RUN = "i01_write_loss0.5_AtoB"
LOST = 180
"""Packets that netem dropped between the taps, see the facts beside the captures."""


def cut(source: Path, into: Path, share: float) -> Path:
    """The first frames of a capture."""
    data = gzip.decompress(source.read_bytes())
    at, starts = 24, []
    while at < len(data):
        starts.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    into.write_bytes(data[: starts[int(share * len(starts))]])
    return into


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("early", [0, 1])
def test_losses_are_those_before_the_end(
    data: Path, tmp_path: Path, early: int, share: float
) -> None:
    files = [data / f"{RUN}.at{side}.pcap.gz" for side in "AB"]
    files[early] = cut(files[early], tmp_path / f"early-{'AB'[early]}.pcap", share)
    found = analyze(files).record
    between = [hop.lost_packets for hop in found.hops]
    assert max(between) <= LOST and sum(between) == max(between) > 0
    assert {one.kind for one in found.diagnosis.findings} == {"loss"}
    assert sum(one.packets for one in found.diagnosis.findings) <= LOST
    assert any("when the captures ended" in limit for limit in found.diagnosis.limits)
