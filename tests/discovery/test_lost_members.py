"""Equal-cost members that switches have lost."""

from __future__ import annotations

import json

from answers import recorded

from rocescope.discovery.folder import read_folder
from rocescope.discovery.lost_members import lost_members
from rocescope.replay.fabrics.devices.assemble import assemble


def lost(folder):
    answers, _ = read_folder(folder)
    devices = [one.device for one in answers]
    return lost_members(assemble("lab", devices, 10**10, 500, "tables", strict=True), answers)


def test_frr_after_a_flap(tmp_path):
    notes = lost(recorded(tmp_path) / "flapped")
    assert [(note.device, note.text.partition(",")[0]) for note in notes] == [
        ("leaf1", "swp3 to spine2 swp1 has a link and its LLDP peer"),
        ("spine2", "swp1 to leaf1 swp3 has a link and its LLDP peer"),
    ]
    assert "2 of 2 equal-cost groups" in notes[0].text
    assert notes[0].text.endswith("to h3, h4; FRR calls it installed in 4 routes")


def test_none_on_a_clean_fabric(tmp_path):
    assert not lost(recorded(tmp_path) / "healthy")


def test_a_link_that_is_down_is_not_lost_silently(tmp_path):
    folder = recorded(tmp_path) / "flapped"
    file = folder / "leaf1.addr.json"
    ports = json.loads(file.read_text())
    (swp3,) = [port for port in ports if port.get("ifname") == "swp3"]
    swp3["flags"].remove("LOWER_UP")
    file.write_text(json.dumps(ports))
    assert not lost(folder)


def test_one_route_of_several(tmp_path):
    """leaf2 lost swp1 towards h1 only."""
    folder = recorded(tmp_path) / "healthy"
    file = folder / "leaf2.route.json"
    routes = json.loads(file.read_text())
    (route,) = [r for r in routes if r["dst"] == "10.1.1.0/24"]
    del route["nhid"]
    route["nexthops"] = [hop for hop in route["nexthops"] if hop["dev"] != "swp1"]
    file.write_text(json.dumps(routes))
    (note,) = lost(folder)
    assert (note.device, note.text.split()[0]) == ("leaf2", "swp1")
    assert "but 1 of 2 equal-cost groups over shortest paths leave it out: to h1" in note.text
    assert note.text.endswith("FRR calls it installed in 1 routes")
