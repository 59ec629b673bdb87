"""`--devices`."""

from __future__ import annotations

import pytest
from sshd import inventory

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking.namespaces import Namespaces
from rocescope.discovery.remote.devices import parse_devices
from rocescope.discovery.remote.running import OverSsh


def test_namespaces():
    run = parse_devices("netns:lab-")
    assert isinstance(run, Namespaces)
    assert run.command("leaf1", "ip -j link")[:4] == ["ip", "netns", "exec", "lab-leaf1"]


def test_an_inventory(tmp_path):
    run = parse_devices(str(inventory(tmp_path / "fabric.yaml", {"leaf1": "linux"})))
    assert isinstance(run, OverSsh)
    run.close()


@pytest.mark.parametrize("text", ["", "netns", "netns:-n", "netns:a b", "netns:../x", "leaf1"])
def test_mistakes(text):
    with pytest.raises(UsageError, match="--devices"):
        parse_devices(text)
