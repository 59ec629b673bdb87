"""EOS switches behind a real sshd: refused commands, half answers, silent devices, odd ones."""

from __future__ import annotations

import json

import pytest
from eos_answers import eos_answers
from sshd import LocalSshd, inventory
from switch_lab import LAB, save

from rocescope.analyzer.errors import UsageError
from rocescope.commands.discover import discover
from rocescope.discovery.dialects.eos import EOS

NAMES = [switch.name for switch in LAB]


@pytest.fixture
def switches(root, need_tool, tmp_path, monkeypatch):
    """The folder whose answers sshd gives, and the inventory."""
    need_tool("sshd")
    folder = tmp_path / "answers"
    folder.mkdir()
    for switch in LAB:
        save(folder, switch.name, eos_answers(switch))
    (tmp_path / "sshd").mkdir()
    with LocalSshd(tmp_path / "sshd") as server:
        for name in NAMES:
            server.add_recorded(name, folder, EOS)
        with server.config.open("a") as config:
            config.write("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield folder, tmp_path


def asked(tmp_path, capsys, names=NAMES):
    file = inventory(tmp_path / "inventory.yaml", dict.fromkeys(names, "eos"), ())
    code = discover(file, raw=tmp_path / "raw", format="json", progress="none")
    return code, json.loads(capsys.readouterr().out)


def test_all_answers_as_documented(switches, capsys):
    _, tmp_path = switches
    code, report = asked(tmp_path, capsys)
    assert (code, report["remarks"]) == (0, [])
    assert (report["switches"], report["hosts"], len(report["links"])) == (4, 2, 6)


def test_each_fault_is_one_line_and_the_rest_is_reported(switches, capsys):
    folder, tmp_path = switches
    lldp = folder / "leaf1.eos-lldp.json"
    lldp.write_bytes(lldp.read_bytes()[:200])
    (folder / "spine1.eos-route.json").write_text("% Invalid input\n")
    (folder / "leaf2.eos-arp.json").unlink()
    code, report = asked(tmp_path, capsys, [*NAMES, "gone"])
    assert code == 1
    told = {(one["kind"], one["device"]): one["text"] for one in report["remarks"]}
    assert told["unexpected answer", "leaf1"].startswith(
        "`show lldp neighbors detail | json`: leaf1.eos-lldp.json: not JSON"
    )
    assert told["unexpected answer", "spine1"].startswith(
        "`show ip route vrf all | json`: spine1.eos-route.json: not JSON"
    )
    assert ("no answer", "gone") in told
    assert all(text.isprintable() for text in told.values())
    assert report["switches_without_tables"] == ["spine1"]
    assert (report["switches"], report["hosts"], len(report["links"])) == (4, 2, 6)
    (leaf2,) = [one for one in report["devices"] if one["name"] == "leaf2"]
    assert any("neighbour MAC addresses" in text for text in leaf2["not_read"])


def test_a_hostile_switch_harms_nothing(switches, capsys):
    folder, tmp_path = switches
    (folder / "leaf1.eos-route.json").write_text("[" * 200_000)
    (folder / "leaf1.eos-interfaces.json").write_text('{"interfaces": {"\\u001b[2Jx": {}}}')
    answer = eos_answers(LAB[1])
    answer["eos-hostname.json"]["hostname"] = "leaf1\x1b]0;x"
    save(folder, "leaf2", answer)
    code, report = asked(tmp_path, capsys)
    assert code == 1
    assert {(one["kind"], one["device"]) for one in report["remarks"]} >= {
        ("unexpected answer", "leaf1")
    }
    assert all(one["text"].isprintable() for one in report["remarks"])


def test_an_unknown_dialect_is_one_line(tmp_path):
    file = inventory(tmp_path / "inventory.yaml", {"leaf1": "ios"}, ())
    with pytest.raises(UsageError, match="unknown dialect 'ios'; choose linux, frr, sonic"):
        discover(file)
