"""Commands in network namespaces."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading

import pytest
from waiting import until

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
    assert said.problem == "not finished within 0.1 s"


@pytest.mark.parametrize("moment", ["before", "while it begins"])
def test_no_command_listens_after_close(prefix, monkeypatch, moment):
    run, reasons = Namespaces(prefix), []
    begun, begin = [], subprocess.Popen

    def started(*args, **more):
        closing = threading.Thread(target=run.close)
        begun.append(begin(*args, **more))
        closing.start()
        closing.join(0.2)
        return begun[0]

    if moment == "before":
        run.close()
    else:
        monkeypatch.setattr(subprocess, "Popen", started)
    thread = threading.Thread(
        target=lambda: reasons.append(run.listen("leaf1", "ip monitor link", lambda: None)),
        daemon=True,
    )
    thread.start()
    try:
        until(lambda: reasons)
        assert reasons[0].startswith("closed" if moment == "before" else "exit status -9")
    finally:
        for process in [*begun, *run._listening]:
            process.kill()


def test_a_command_that_does_not_end_is_listened_to(root, need_tool):
    need_tool("ip")
    name = f"rsfollow{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        run, heard = Namespaces("rsfollow"), []
        thread = threading.Thread(
            target=lambda: heard.append(
                run.listen(str(os.getpid()), "ip monitor link", lambda: heard.append("heard"))
            )
        )
        thread.start()
        until(lambda: heard)
        states = itertools.cycle(("up", "down"))

        def told():  # `ip monitor` does not tell when it listens
            command = ["ip", "-n", name, "link", "set", "lo", next(states)]
            subprocess.run(command, check=True)
            return len(heard) > 1

        until(told)
        run.close()
        thread.join()
        assert heard[-1].startswith("exit status -9")
        assert set(heard[:-1]) == {"heard"}
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
