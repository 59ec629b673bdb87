"""`capture --annotate`: comments as tshark reads them; without them nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from captures import data
from job_logs import nccl
from lua_tshark import tshark
from network import bth, ethernet, ipv4, roce_frames, udp

from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.commands.live.annotating import annotate

from .test_capture import Capturing, read


def verdicts(path: Path) -> Counter[str]:
    words = ["-Y", "rocescope", "-T", "fields", "-e", "rocescope.verdict"]
    return Counter(tshark("-r", str(path), *words))


def total(path: Path, name: str) -> int:
    flows = analyze([str(path)], AnalyzeOptions()).flows
    return sum(getattr(flow, name) or 0 for flow in flows)


@pytest.mark.thorough
def test_the_file_has_the_verdicts_of_its_analysis(network, tmp_path, need_tool):
    """Reordered packets of Soft-RoCE, replayed over the interface; the capture gives up root."""
    need_tool("tshark")
    net, path = network(), tmp_path / "out.pcapng"
    raw = tmp_path / "raw.pcapng"  # the capture keeps this name when the other one is taken
    path.touch()
    os.link(path, raw)
    sent = read([data("i03_write_reorder5_AtoB.atB")])[0][:4000]
    capture = Capturing(net, "left", "-w", str(path), "--annotate")
    net.send(sent)
    assert capture.end() == 0, capture.said
    assert not os.path.samefile(path, raw)
    assert read([path])[0] == read([raw])[0]
    found = verdicts(path)
    assert found["reordered"] == total(raw, "reordered_packets") > 50
    assert found["retransmitted"] == total(raw, "retransmitted_packets") > 50
    assert f"{found.total():,} of {len(read([raw])[0]):,} frames have a comment" in capture.said
    assert not verdicts(raw)
    assert sorted(tmp_path.iterdir()) == [path, raw]


@pytest.mark.thorough
def test_a_link_stays_and_what_was_captured_on_another_port_is_judged(network, tmp_path, need_tool):
    need_tool("tshark")
    net, link = network(), tmp_path / "link.pcapng"
    link.symlink_to("file.pcapng")
    capture = Capturing(
        net, "left", "-w", str(link), "--annotate", "--udp-port", "4800", "--filter", "psn < 5"
    )
    for psn in (0, 1, 4, 2, 3, 5):
        net.send([ethernet(ipv4(udp(bth(psn) + bytes(68), dport=4800)))])
    assert capture.end(signal.SIGTERM) == 0, capture.said
    assert os.readlink(link) == "file.pcapng"
    assert verdicts(link) == {"ahead": 1, "reordered": 2}


@pytest.mark.thorough
def test_a_full_disk_leaves_the_capture_as_it_is(network, tmp_path):
    net, disk = network(), tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        path = disk / "out.pcapng"
        capture = Capturing(net, "left", "-w", str(path), "--annotate", "--count", "300")
        sent = roce_frames(300)
        net.send(sent)
        assert capture.wait() == 1
        assert f"{path} has all packets, but no comments" in capture.said
        assert capture.said.endswith(f"cannot write {path}: no space left on device\n")
        assert read([path])[0] == [frame[:96] for frame in sent]
        assert list(disk.iterdir()) == [path]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.thorough
def test_no_packet_is_no_error(network, tmp_path):
    path = tmp_path / "out.pcapng"
    capture = Capturing(network(), "left", "-w", str(path), "--annotate")
    assert capture.end() == 0
    assert read([path])[0] == [] and "comments" not in capture.said


@pytest.fixture
def captured(tmp_path):
    """A pcapng of a host."""
    path = tmp_path / "out.pcapng"
    packed = data("h01_rxe_at_the_host")
    path.write_bytes(subprocess.run(["gzip", "-dc", packed], capture_output=True).stdout)
    return path


def test_an_interrupt_before_the_file_takes_its_name_leaves_the_capture(
    captured, monkeypatch, capsys
):
    before, frames = captured.read_bytes(), len(read([captured])[0])

    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        annotate(captured, frames, (4791,), quiet=True)
    assert captured.read_bytes() == before and os.listdir(captured.parent) == [captured.name]
    assert capsys.readouterr().err == (
        f"rocescope: {captured} has all packets, but no comments: `export --pcapng` writes them\n"
    )


def test_a_file_that_others_have_changed_is_not_replaced(captured, capsys):
    before, frames = captured.read_bytes(), len(read([captured])[0])
    with pytest.raises(RocescopeError, match=f"{frames + 1} were captured"):
        annotate(captured, frames + 1, (4791,), quiet=True)
    assert captured.read_bytes() == before
    annotate(captured, frames, (4791,), quiet=True)
    assert captured.read_bytes() != before and len(read([captured])[0]) == frames


def test_comments_name_the_ranks_of_logs(captured, tmp_path, need_tool):
    """The queue pairs of the capture that a log names, whichever they are."""
    need_tool("tshark")
    flow = analyze([str(captured)], AnalyzeOptions()).flows[0]
    log = tmp_path / "job.log"
    log.write_text("".join(f"{line}\n" for line in nccl("b", 2, 3, 11, flow.dst, [flow.dest_qp])))
    annotate(captured, len(read([captured])[0]), (4791,), True, (str(log),))
    words = ["-T", "fields", "-Y", "rocescope.dst_rank == 3", "-e", "rocescope.src_rank"]
    assert set(tshark("-r", str(captured), *words)) - {""} == {"11"}
