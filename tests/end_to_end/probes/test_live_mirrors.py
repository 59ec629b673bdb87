"""Mirrored packets that arrive on a real link are decoded as those of a file are."""

from __future__ import annotations

import encapsulations as enc
import pytest
from network import Watched, roce

from rocescope.probes.live import LiveOptions, LiveSource

from ...commands.test_analyze_live import Analyzing

MIRRORED = {
    "field": lambda f: enc.WRAPPERS["field"](f),
    "erspan2": lambda f: enc.ethernet(0x0800, enc.ipv4(47, enc.erspan2(f, 9))),
    "ip_in_ip": lambda f: enc.WRAPPERS["ip_in_ip"](f),
}


def test_sessions_are_taps_beside_the_interface(network):
    net = network()
    source = LiveSource([net.interface("right")], LiveOptions(ring_bytes=1 << 20, hook="xdp"))
    sent = []
    for psn in range(60):
        wrap = list(MIRRORED.values())[psn % 3]
        sent.append(wrap(roce(psn, payload_bytes=300)))
    with Watched(source) as seen:
        net.send([*sent, roce(60)])
    assert seen.column("psn") == list(range(61))
    names = [tap.name for tap in source.registry.taps.items]
    assert names[1:] == ["erspan 12 ingress from 2001:db8::1", "erspan 9 from 192.0.2.1"]
    inner = len(roce(1, payload_bytes=300))
    assert set(seen.column("wire_bytes", 1)) == {inner + 4}  # with the tag inside
    assert set(seen.column("wire_bytes", 2)) == {inner}
    assert set(seen.column("vlan", 1)) == {100}
    assert seen.column("psn", 0) == [*range(2, 60, 3), 60]
    source.state_losses()
    assert [tap.dropped for tap in source.registry.taps.items] == [0, None, None]
    assert source.decoder.counters.frames() == source.loss().exported == 61


@pytest.mark.thorough
def test_the_result_of_a_live_analysis_tells_the_mirrors(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "right", "--format", "json", "--hook", "xdp")
    net.send([MIRRORED["erspan2"](roce(psn)) for psn in range(30)])
    live.wait_for('"packets":30')
    assert live.end() == 0
    found = live.lines()[-1]
    assert found["captures"][0]["encapsulations"] == {"ERSPAN II": 30}
    (flow,) = found["flows"]
    assert flow["taps"] == {"erspan 9 from 192.0.2.1": 30}
    assert flow["missing_packets"] == 0
