"""The dissection of single frames against what tshark prints, with and without pyshark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dpkt
import pytest
from factories import Frame, pcap_bytes

from rocescope.tui.session.dissect import dissect

ETHERNET = 1
TIME_NS = 1_700_000_000_000_000_000


def by_tshark(tool: str, path: Path) -> list[str]:
    """The lines of the only frame as tshark prints them, from its Ethernet layer on."""
    command = [tool, "-n", "-r", str(path), "-V"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in text[text.index("\nEthernet II") :].splitlines() if line]
    return [line[1:-1] if line.startswith("[") else line for line in lines]


@pytest.fixture(params=[0, 5])
def frame(request: pytest.FixtureRequest, data: Path) -> bytes:
    with (data / "c10_rping_ipv4.atB.pcap").open("rb") as file:
        _, found = list(dpkt.pcap.Reader(file))[request.param]
    return found


@pytest.mark.thorough
def test_the_lines_are_those_of_tshark(frame, tmp_path, need_tool):
    """In its order, which pyshark does not keep: eth.lg is in both addresses."""
    alone = tmp_path / "frame.pcap"
    alone.write_bytes(pcap_bytes([Frame(TIME_NS, frame)]))
    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    texts = iter([line.text for line in lines])
    for line in by_tshark(need_tool("tshark"), alone):
        if line != "Timestamps":  # a heading without a field
            assert line in texts, line  # passes the texts before it
    layers = [line for line in lines if not line.depth]
    assert layers[0].text.startswith("Ethernet II") and layers[0].begin == 0
    assert layers[-1].text.startswith("InfiniBand")


def test_without_pyshark_the_lines_are_the_same(frame, need_tool, monkeypatch):
    need_tool("tshark")
    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert sum(line.depth for line in lines) > 40
    monkeypatch.setitem(sys.modules, "pyshark.packet.layers.xml_layer", None)
    note, *others = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert note.text.startswith("fields read without pyshark (") and "pip install" in note.text
    assert others == lines


def test_fields_that_pyshark_does_not_know_are_shown(frame, need_tool, monkeypatch):
    """An attribute of a later tshark."""
    need_tool("tshark")
    run = subprocess.run

    def later(*words, **settings):
        done = run(*words, **settings)
        done.stdout = done.stdout.replace(b"<field ", b'<field later="1" ')
        return done

    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    monkeypatch.setattr(subprocess, "run", later)
    note, *others = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert "unexpected keyword argument 'later'" in note.text
    assert others == lines


def test_a_failure_is_a_line(monkeypatch):
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: None)
    assert dissect(b"", 0, ETHERNET, 0)[0].text == "tshark is not installed"
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: "/bin/false")
    assert dissect(b"", 0, ETHERNET, 0)[0].text.startswith("tshark failed")
