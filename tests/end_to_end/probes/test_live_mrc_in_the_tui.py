"""MRC in SRv6 over a real veth pair: the screens show live what they show of a capture."""

from __future__ import annotations

import asyncio
import json
import struct

import pytest
from tui_driver import press, text_of, until_shown

from rocescope.commands.generate import generate_mrc
from rocescope.probes.live import LiveOptions
from rocescope.tui.app import RocescopeApp
from rocescope.tui.host import FocusReady
from rocescope.tui.session.live import open_live
from rocescope.tui.session.snapshot import FlowKey


def frames_of(path):
    content, at, found = path.read_bytes(), 24, []
    while at < len(content):
        (captured,) = struct.unpack_from("<I", content, at + 8)
        found.append(content[at + 16 : at + 16 + captured])
        at += 16 + captured
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("mirror", [None, "erspan2:session=7"])
def test_mrc_looks_live_as_it_does_in_a_capture(mirror, network, tmp_path):
    path, told = tmp_path / "mrc.pcap", tmp_path / "mrc.json"
    generate_mrc(
        output=path,
        truth=told,
        mtu=1024,
        message_size="128KiB",
        trim=0.01,
        snaplen=0,
        mirror=mirror,
    )
    truth, frames = json.loads(told.read_text()), frames_of(path)

    def came(shown):
        whole = shown.mrc is not None and shown.source.packets == len(frames)
        return whole and int(shown.mrc.resends.sum()) > 0

    async def run():
        net = network()
        session = open_live([net.interface("right")], LiveOptions())
        app = RocescopeApp(session)
        async with app.run_test(size=(160, 30)) as pilot:
            while app.view.snapshot.source.dropped is None:
                await pilot.pause(0.05)
            for begin in range(0, len(frames), 200):
                net.send(frames[begin : begin + 200])
                await pilot.pause(0.01)
            await until_shown(pilot, lambda: came(app.view.snapshot))
            session.halt()  # everything is looked at again then
            snapshot = session.snapshot()
            app.snapshots.show(snapshot, FocusReady(session, None, None))
            await pilot.pause()
            shown = {}
            for key in ("2", "4", "6"):
                await press(app, pilot, key)
                shown[key] = text_of(app)
        return snapshot, shown

    snapshot, shown = asyncio.run(run())
    assert snapshot.source.dropped == 0 and snapshot.source.packets == len(frames)
    mrc, planes = snapshot.mrc, snapshot.paths["plane"]
    for flow in truth["flows"]:
        f = snapshot.find(FlowKey(flow["src"], flow["dst"], flow["dest_qp"]))
        assert int(mrc.values[f]) == len(flow["values"])
        assert int(mrc.resends[f]) == flow["retransmissions"]
        assert int(mrc.nacks[f]) == sum(flow["nacks"].values())
        assert planes.packets[planes.of(f)].tolist() == list(flow["plane_packets"].values())
    assert "EVs" in shown["2"][4] and "PLANES" in shown["2"][4]
    assert any("planes ▲ in use: 0100" in line for line in shown["4"])
    assert any("NACKs TRIMMED" in line for line in shown["6"])
