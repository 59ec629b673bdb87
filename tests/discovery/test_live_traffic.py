"""Flows of an interface, of real probes, mapped to the hosts of a fabric."""

from __future__ import annotations

import threading
import time

import pytest
from network import roce_frames
from waiting import until

from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.discovery.live_traffic import LiveTraffic
from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.traffic import observed

pytestmark = pytest.mark.usefixtures("root")
FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=10G")


@pytest.fixture
def live(network):
    net = network()
    with LiveSource([net.interface("right")], LiveOptions(ring_bytes=1 << 20)) as source:
        yield net, LiveTraffic(source, FABRIC, "order")


def run(live, told=None):
    """Its thread, and the errors in it."""
    errors = []

    def work():
        try:
            live.run(lambda: None, told)
        except RocescopeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def test_flows_are_told_when_they_appear(live, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.live_traffic.TELL_SECONDS", 0.0)
    net, flows = live
    told = []
    thread, errors = run(flows, told.append)
    for number, source in enumerate((b"\x0a\x00\x00\x07", b"\x0a\x00\x00\x08")):
        frames = [frame.replace(b"\x0a\x00\x00\x01", source) for frame in roce_frames(10)]
        net.send(frames)
        until(lambda n=number: len(told) > n)
        net.send(frames)
    flows.source.stop()
    thread.join()
    assert errors == []
    assert [len(traffic) for traffic in told] == [1, 2]
    assert told[1].keys.src[:1].tolist() == told[0].keys.src.tolist()
    assert flows.traffic().packets.tolist() == [20, 20]
    assert flows.traffic().warnings == ()


def test_nothing_is_an_error(live):
    _, flows = live
    thread, _ = run(flows)
    time.sleep(0.05)
    flows.source.stop()
    thread.join()
    with pytest.raises(UnreadableInput, match="no RoCE packet on .*right"):
        flows.traffic()


@pytest.mark.thorough
@pytest.mark.parametrize("following", [False, True])
def test_more_flows_than_fit(live, monkeypatch, following):
    """While following, those that are known stay."""
    monkeypatch.setattr(observed, "MOST_FLOWS", 1)
    net, flows = live
    told = []
    thread, errors = run(flows, told.append if following else None)
    net.send(roce_frames(1))
    until(lambda: len(flows._counting.counter.units))
    net.send([frame.replace(b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x07") for frame in roce_frames(1)])
    until(lambda: bool(flows._full or errors))
    flows.source.stop()
    thread.join()
    assert bool(errors) != following
    if following:
        assert "further flows are not followed: more than 1 flows" in flows._full
