"""Generated captures inside mirrors: what tshark and the analyzer find in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cli import run
from rocescope.replay.generate.craft import outer_headers

MIRRORS = {
    "gre:session=9": "gre key 9 from 192.0.2.1",
    "erspan1": "erspan from 192.0.2.1",
    "erspan2:session=7,src=10.9.0.1": "erspan 7 from 10.9.0.1",
    "erspan3:session=7,src=fd00::1,dst=fd00::2,vlan=100": "erspan 7 ingress from fd00::1",
    "vxlan:session=70": "vxlan 70 from 192.0.2.1",
    "geneve:session=5,src=fd00::1,dst=fd00::2": "geneve 5 from fd00::1",
}
TRAFFIC = ["generate", "permutation", "--hosts", "4", "--messages", "2", "--message-size", "64KiB"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "plain.pcap"
    assert run([*TRAFFIC, "-o", str(path)]) == 0
    return path


def fields(tshark: str, path: Path) -> list[list[str]]:
    """What tshark says of every frame's innermost headers and outer lengths."""
    wanted = ("infiniband.bth.destqp", "infiniband.bth.psn", "ip.checksum.status", "_ws.malformed")
    options = ["-o", "ip.check_checksum:TRUE"]
    for name in wanted:
        options += ["-e", name]
    command = [tshark, "-r", str(path), "-T", "json", *options]
    done = subprocess.run(command, capture_output=True, check=True)
    return [
        [packet["_source"]["layers"].get(name, []) for name in wanted]
        for packet in json.loads(done.stdout)
    ]


@pytest.fixture(scope="module")
def fields_of_plain(plain: Path, need_tool: Callable[[str], str]) -> list[list[str]]:
    return fields(need_tool("tshark"), plain)


@pytest.mark.thorough
@pytest.mark.parametrize("mirror", MIRRORS)
def test_frames_are_those_of_the_plain_capture(
    mirror: str,
    plain: Path,
    fields_of_plain: list[list[str]],
    tmp_path: Path,
    need_tool: Callable[[str], str],
) -> None:
    path = tmp_path / "mirrored.pcap"
    assert run([*TRAFFIC, "--mirror", mirror, "-o", str(path)]) == 0

    expected, found = fields_of_plain, fields(need_tool("tshark"), path)
    assert [frame[:2] for frame in found] == [frame[:2] for frame in expected]
    for *_, checksums, malformed in found:
        assert set(checksums) == {"1"} and not malformed  # 1: good, outside and inside

    with_mirror = analyze([str(path)], AnalyzeOptions())
    without = analyze([str(plain)], AnalyzeOptions())
    assert [(f.src, f.dest_qp, f.packets, f.wire_bytes) for f in with_mirror.flows] == [
        (f.src, f.dest_qp, f.packets, f.wire_bytes) for f in without.flows
    ]
    names = [tap.name for capture in with_mirror.captures for tap in capture.taps]
    assert names == ["mirrored.pcap", MIRRORS[mirror]]


def test_sequence_and_time_of_a_mirror(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    path = tmp_path / "mirrored.pcap"
    assert run([*TRAFFIC, "--mirror", "erspan3", "-o", str(path)]) == 0
    command = [need_tool("tshark"), "-r", str(path), "-T", "fields"]
    for name in ("gre.sequence_number", "erspan.timestamp", "frame.time_epoch"):
        command += ["-e", name]
    rows = [line.split("\t") for line in subprocess.check_output(command, text=True).splitlines()]
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    for _, stamp, epoch in rows:
        seconds, rest = epoch.split(".")
        units = (int(seconds) * 10**9 + int(rest.ljust(9, "0"))) // 100
        assert int(stamp) == units % (1 << 32)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pppoe", "there is no 'pppoe'"),
        ("erspan2:session=1024", "session '1024'"),
        ("erspan1:session=1", "no session"),
        ("vxlan:vni=1", "no option 'vni'"),
        ("gre:src=10.0.0.1,dst=fd00::1", "both"),
        ("gre:src=nowhere", "nowhere"),
        ("gre:vlan=4095", "vlan '4095'"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        outer_headers(text)
