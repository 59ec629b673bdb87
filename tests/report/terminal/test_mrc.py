"""The report's section on MRC, of generated captures whose truth is known."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.commands.generate import generate_mrc
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report


def section(path: Path, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    Report(analyze([str(path)], AnalyzeOptions()), page_on(stream)).print()
    text = stream.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    return text.partition("\nMRC\n")[2].partition("\nCONGESTION")[0]


@pytest.mark.thorough
def test_planes_and_feedback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pcap"
    generate_mrc(output=path, messages=20, trim=0.002, ce=0.01, always_skip=2, fail_plane=2)
    text = section(path, monkeypatch)
    words = " ".join(text.split())
    assert "2 MRC flows" in words
    assert "NACK TRIMMED" in words
    assert "4 ALWAYS_SKIP" in words
    assert "4 planes (by segment:1, inferred, see --plane-by) differ" in words
    assert "flow label in the high half, UDP source port in the low half" in words
    assert "port 2 declared unreachable for 210 us" in words
    assert "fcbb:bb00:0200" in text
    wide = section(path, monkeypatch, 140)
    assert "depth p99" in wide


def test_what_is_not_known_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pcap"
    generate_mrc(output=path, messages=1, no_srv6=True, tap="receiver")
    words = " ".join(section(path, monkeypatch).split())
    assert "Planes are not known: neither SRv6 segments nor several taps" in words
    assert "0 of 512 packets are retransmissions" in words


def test_no_section_without_mrc(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert section(data / "c10_rping_ipv4.atB.pcap", monkeypatch) == ""
