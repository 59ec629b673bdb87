"""The dissection of single frames against pyshark's reading of the same."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import dpkt
import pytest
from factories import Frame, pcap_bytes

from rocescope.tui.session.dissect import dissect

ETHERNET = 1
TIME_NS = 1_700_000_000_000_000_000


def by_pyshark(path: Path) -> list[tuple[str, int, int]]:
    """(text, first byte, end) of every visible field of the only frame, sorted."""
    pyshark = pytest.importorskip("pyshark", reason="pyshark does not run on Python 3.14")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    capture = pyshark.FileCapture(str(path), eventloop=loop, keep_packets=True)
    try:
        found = []
        for layer in capture[0].layers:
            for container in layer._all_fields.values():
                for field in container.fields:
                    if field.name and not field.hide:
                        text = field.showname or f"{field.name}: {field.show}"
                        begin = int(field.pos or 0)
                        found.append((text, begin, begin + int(field.size or 0)))
        return sorted(found)
    finally:
        capture.close()
        loop.run_until_complete(asyncio.sleep(0))
        del capture
        gc.collect()  # its transports need the loop to end
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 5])
def test_the_fields_are_those_of_pyshark(data, tmp_path, need_tool, number):
    need_tool("tshark")
    with (data / "c10_rping_ipv4.atB.pcap").open("rb") as file:
        _, frame = list(dpkt.pcap.Reader(file))[number]
    alone = tmp_path / "frame.pcap"
    alone.write_bytes(pcap_bytes([Frame(TIME_NS, frame)]))
    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    fields = sorted((line.text, line.begin, line.end) for line in lines if line.depth)
    assert fields == by_pyshark(alone)
    layers = [line for line in lines if not line.depth]
    assert layers[0].text.startswith("Ethernet II") and layers[0].begin == 0
    assert layers[-1].text.startswith("InfiniBand")


def test_a_failure_is_a_line(monkeypatch):
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: None)
    assert dissect(b"", 0, ETHERNET, 0)[0].text == "tshark is not installed"
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: "/bin/false")
    assert dissect(b"", 0, ETHERNET, 0)[0].text.startswith("tshark failed")
