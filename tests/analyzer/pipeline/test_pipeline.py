"""The pipeline as any source of packets drives it."""

from __future__ import annotations

import socket
import struct

import msgspec
import pytest
from captures import data
from examples import thorough

from rocescope.analyzer.pipeline.captures import analyze, open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.owners import merge_owners
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.analyzer.results.flow import Owner

# The pipeline as any source of packets drives it.

OPTIONS = AnalyzeOptions()


class Fed(Pipeline):
    """A source with nothing of its own to tell but the summaries of the files it was fed from."""

    captures: list = []
    owners: dict = {}

    def summarize_captures(self, complete):
        return self.captures

    def find_host_owners(self):
        return self.owners


@pytest.fixture
def fed():
    """A pipeline that got the packets of c10 by hand, and the analysis of the file."""
    path = str(data("c10"))
    with open_captures([path], OPTIONS) as files:
        pipeline = Fed(OPTIONS, files.registry, many_taps=False)
        pipeline.measuring.tracker.see_taps(1)
        for table, messages in files._tables():
            pipeline.measuring.date_taps(files.registry.taps)
            pipeline.take(pipeline.filter_packets(table), messages)
    analysis = analyze([path], OPTIONS)
    pipeline.captures = analysis.captures
    return pipeline, analysis


def test_whoever_feeds_the_packets_the_conclusions_are_the_same(fed):
    pipeline, analysis = fed
    assert pipeline.packets == analysis.captures[0].roce_packets
    assert msgspec.json.encode(pipeline.conclude(complete=True)) == msgspec.json.encode(analysis)


def test_a_glance_shows_single_flows_and_changes_nothing(fed):
    pipeline, analysis = fed
    paired = next(flow for flow in analysis.flows if flow.connection is not None)
    flow = pipeline.glance().flow(paired.id)
    assert (flow.src, flow.packets) == (paired.src, paired.packets)
    assert flow.connection is None
    assert msgspec.json.encode(pipeline.conclude(complete=True)) == msgspec.json.encode(analysis)


def test_owners_of_the_source_reach_the_flows(fed):
    pipeline, _ = fed
    owner = Owner(4711, "python", 3, "destination")
    pipeline.owners = {0: owner}
    assert pipeline.find_owners() == {0: owner}
    assert pipeline.conclude(complete=True).flows[0].owner == owner


def test_a_limit_and_an_interruption_are_warned_of(fed):
    pipeline, _ = fed
    assert pipeline.conclude(complete=False).warnings[0].startswith("interrupted")
    pipeline.ended_by = "too much"
    assert pipeline.conclude(complete=False).warnings[0] == "ended early: too much"


# Owners named in the comments of a pcapng, written here byte by byte.

FLOWS = (
    ("10.0.0.1", "10.0.0.2", 0x51),
    ("10.0.0.2", "10.0.0.1", 0x21),
    ("10.0.0.9", "10.0.0.1", 0x21),
)
LINE = "owner: QP 0x000021{} (mlx5_0) to QP 0x000051 at 10.0.0.2: pid 12 python 3, rank 5"
FIRST = LINE.format(" at 10.0.0.1")
NO_ADDRESS = LINE.format("")
ONE_OF_TWO = LINE.format(" at fd00::1 or 10.0.0.1").replace(" at 10.0.0.2", "")
OTHER_PROCESS = "owner: QP 0x000021 to QP 0x000051 at 10.0.0.2: pid 13 python"


def block(kind, body):
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def head(*comments):
    options = b"".join(
        struct.pack("<HH", 1, len(text)) + text.encode() + bytes(-len(text) % 4)
        for text in comments
    )
    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options + bytes(4))
    return section + block(1, struct.pack("<HHI", 1, 0, 0))


def packets(psns):
    made = b""
    for psn in psns:
        for src, dst, qp in FLOWS:
            bth = struct.pack(">BBHII", 4, 0, 0xFFFF, qp, psn) + bytes(68)
            udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), psn, 0, 64, 17, 0)
            ip += socket.inet_aton(src) + socket.inet_aton(dst) + udp
            frame = bytes(12) + b"\x08\0" + ip
            sizes = struct.pack("<IIIII", 0, 0, 1000 * psn, len(frame), len(frame))
            made += block(6, sizes + frame + bytes(-len(frame) % 4))
    return made


@pytest.mark.parametrize(
    ("comments", "owned"),
    [
        ((), ()),
        ((FIRST,), (0, 1)),
        ((NO_ADDRESS,), (0, 1)),
        ((ONE_OF_TWO,), (0, 1, 2)),
        ((FIRST, FIRST.replace("0x000021", "0x000077")), (0, 1)),
        ((NO_ADDRESS, OTHER_PROCESS), ()),
        (("owner: QP 0x000021: pid 12 python 3, rank 5",), ()),  # of which host?
        (("owner: somebody", "owner: QP 0x000021 at 10.0.0.1: pid x y", "to QP"), ()),
    ],
)
def test_flows_have_the_owners_of_the_comments(tmp_path, comments, owned):
    path = tmp_path / "x.pcapng"
    # What was learned later is in a later section.
    path.write_bytes(head() + packets(range(5)) + head(*comments) + packets(range(5, 9)))
    flows = {
        (f.src, f.dst, f.dest_qp): f.owner for f in analyze([str(path)], AnalyzeOptions()).flows
    }
    for number, key in enumerate(FLOWS):
        owner = flows[key]
        if number not in owned:
            assert owner is None
            continue
        assert (owner.pid, owner.command, owner.rank) == (12, "python 3", 5)
        assert owner.end == ("source", "destination", "destination")[number]


def many_flows(sources):
    frames = b""
    for source in range(sources):
        bth = struct.pack(">BBHII", 4, 0, 0xFFFF, 0x51, source) + bytes(68)
        udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
        frame = (
            bytes(12) + b"\x08\0" + ip + struct.pack(">II", 0x0A010000 + source, 0x0A000002) + udp
        )
        sizes = struct.pack("<IIIII", 0, 0, source, len(frame), len(frame))
        frames += block(6, sizes + frame + bytes(-len(frame) % 4))
    return frames


@pytest.mark.thorough
@pytest.mark.parametrize("comments", [2, *thorough([2200])])
def test_comments_that_all_name_the_same_flows_cost_little(tmp_path, comments):
    """Each flow has two owners at once, hence none; the work is bounded too."""
    path = tmp_path / "x.pcapng"
    lines = (f"owner: QP 0x000051 at 10.0.0.2: pid {pid} python" for pid in range(comments))
    path.write_bytes(head(*lines) + packets(range(1)) + many_flows(2500))
    result = analyze([str(path)], AnalyzeOptions())
    assert len(result.flows) == 2503
    assert all(flow.owner is None for flow in result.flows)


def test_long_comments_are_ignored(tmp_path):
    path = tmp_path / "x.pcapng"
    tail = " or 10.0.0.1" * 50
    path.write_bytes(head(FIRST.replace(" at 10.0.0.1", f" at 10.0.0.1{tail}")) + packets(range(2)))
    assert all(flow.owner is None for flow in analyze([str(path)], AnalyzeOptions()).flows)


@pytest.mark.parametrize(
    ("comments", "pairs"),
    [
        ((), []),
        ((FIRST,), [(0, 1)]),
        ((ONE_OF_TWO,), []),  # whose queue pair 0x51?
        ((FIRST, FIRST.replace("0x000021 at 10.0.0.1", "0x000021 at 10.0.0.9")), [(0, 1)]),
        ((FIRST, FIRST.replace("10.0.0.2", "10.0.0.9")), [(0, 1)]),
    ],
)
def test_comments_pair_connections_exactly(tmp_path, comments, pairs):
    """Requests alone, which nothing answers: the packets prove nothing."""
    path = tmp_path / "x.pcapng"
    path.write_bytes(head(*comments) + packets(range(9)))
    result = analyze([str(path)], AnalyzeOptions())
    assert [tuple(c.flows) for c in result.connections] == pairs
    assert all(c.evidence == ["host_probe"] for c in result.connections)


def test_the_host_knows_the_process_and_the_log_its_ranks():
    host = Owner(12, "python", None, "source")
    log = Owner(4711, None, 11, "source", "nodea", "mlx5_0", "0xabc", 3)
    both = Owner(12, "python", 11, "source", "nodea", "mlx5_0", "0xabc", 3)
    assert merge_owners({1: host, 2: host}, {2: log, 3: log}) == {1: host, 2: both, 3: log}
    other_end = Owner(13, "python", 5, "destination")
    assert merge_owners({1: other_end}, {1: log}) == {1: log}
    without = Owner(4711, None, None, "source", "nodea")
    assert merge_owners({1: other_end}, {1: without})[1].rank is None
