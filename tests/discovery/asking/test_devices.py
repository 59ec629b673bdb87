"""`--devices`."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking.devices import parse_devices
from rocescope.discovery.asking.namespaces import Namespaces


def test_namespaces():
    run = parse_devices("netns:lab-")
    assert isinstance(run, Namespaces)
    assert run.command("leaf1", "ip -j link")[:4] == ["ip", "netns", "exec", "lab-leaf1"]


@pytest.mark.parametrize("text", ["", "netns", "netns:-n", "netns:a b", "netns:../x", "leaf1"])
def test_mistakes(text):
    with pytest.raises(UsageError, match="--devices"):
        parse_devices(text)
