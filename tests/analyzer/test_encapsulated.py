"""Real captures inside every mirror and tunnel give the flows and figures of the plain ones."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import msgspec
import pytest

from rocescope.analyzer.analyze import AnalyzeOptions, analyze
from rocescope.analyzer.results import Analysis, Flow

from ..encapsulations import (
    WRAPPERS,
    counter_sample,
    erspan2,
    erspan3,
    ethernet,
    expanded_sample,
    flow_sample,
    ipv4,
    raw_header,
    sflow,
    udp,
)
from ..factories import Frame, write_pcap

DATA = Path(__file__).parents[1] / "data"
TUNNELS = ("ip_in_ip", "mpls", "gre_ip", "mpls_pseudowire", "mpls_ethernet", "mpls_in_ip")
"""These belong to the frame on the wire: only here it grows."""


def frames_of(name: str, limit: int = 1 << 30) -> list[Frame]:
    (path,) = (p for p in DATA.glob(f"{name}*") if ".json" not in p.name)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    at, frames = 24, []
    while at < len(data) and len(frames) < limit:
        seconds, fraction, held, wire = struct.unpack_from("<IIII", data, at)
        frames.append(Frame(seconds * 10**9 + fraction, data[at + 16 : at + 16 + held], wire))
        at += 16 + held
    return frames


def analysed(tmp_path: Path, frames: list[Frame], **options: object) -> Analysis:
    path = write_pcap(tmp_path / "mirror.pcap", frames)
    return analyze([str(path)], AnalyzeOptions(**options))  # type: ignore[arg-type]


def figures(flow: Flow, sizes: bool = True) -> dict[str, object]:
    """Everything about a flow but where it was seen."""
    values = msgspec.to_builtins(flow)
    for name in ("taps", "spraying", *(() if sizes else ("wire_bytes", "paths", "activity_bytes"))):
        del values[name]
    if not sizes:
        del values["recovery"]["rewound_bytes"]
    return values


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Frame], list[Flow]]:
    frames = frames_of("i03_write_reorder5")[:1500]
    return frames, analysed(tmp_path_factory.mktemp("plain"), frames).flows


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_same_flows_and_figures(
    name: str, plain: tuple[list[Frame], list[Flow]], tmp_path: Path
) -> None:
    frames, flows = plain
    wrap = WRAPPERS[name]
    around = len(wrap(frames[0].data)) - len(frames[0].data)
    wrapped = [Frame(f.time_ns, wrap(f.data), f.wire_bytes + around) for f in frames]
    found = analysed(tmp_path, wrapped)
    sizes = name not in (*TUNNELS, "field", "ipv6_ethernet")
    assert [figures(f, sizes) for f in found.flows] == [figures(f, sizes) for f in flows]
    assert any(f.reordered_packets for f in found.flows)
    assert found.captures[0].frames == len(frames)
    assert not found.captures[0].undecodable_frames
    assert set(found.captures[0].encapsulations.values()) == {len(frames)}
