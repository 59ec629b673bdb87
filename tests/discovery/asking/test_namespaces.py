"""Commands in network namespaces."""

from __future__ import annotations

import os
import subprocess

import pytest

from rocescope.discovery.asking import namespaces
from rocescope.discovery.asking.commands import Request
from rocescope.discovery.asking.namespaces import Namespaces

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture
def prefix(need_tool):
    need_tool("ip")
    name = f"rsask{os.getpid()}"
    subprocess.run(["ip", "netns", "add", f"{name}leaf1"], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", f"{name}leaf1"], check=True)


def test_output_failures_and_missing_namespaces(prefix):
    asked = b"link show lo\nlink show nothing\n"
    good, partial, missing = Namespaces(prefix)(
        [
            Request("leaf1", "ip -j -s link"),
            Request("leaf1", "ip -j -force -batch -", asked),
            Request("leaf2", "ip -j link"),
        ]
    )
    assert b'"ifname":"lo"' in good.output
    assert not good.problem
    assert b'"ifname":"lo"' in partial.output
    assert partial.problem == "exit status 1: Command failed -:2"
    assert not missing.output
    assert "Cannot open network namespace" in missing.problem


def test_a_command_without_end(prefix, monkeypatch):
    monkeypatch.setattr(namespaces, "SECONDS", 0.1)
    (said,) = Namespaces(prefix)([Request("leaf1", "ip monitor")])
    assert said.problem == "no end within 0.1 s"
