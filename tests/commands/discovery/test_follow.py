"""`rocescope trace --follow` as people call it: real routers, Ctrl-C, JSON lines."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading

import pytest
from answers import recorded, traffic_of, truth
from router_namespaces import frames, ip, mac
from traced_lab import lab

from rocescope import cli
from rocescope.commands.discovery.follow import follow
from rocescope.commands.options.output import Output
from rocescope.discovery.asking.commands import Said
from rocescope.discovery.dialects.linux import LINUX
from rocescope.replay.fabrics.devices.assemble import assemble
from rocescope.replay.fabrics.files.convert import yaml_bytes
from rocescope.replay.fabrics.files.linux_tables import read_devices

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(scope="module")
def case(need_tool, tmp_path_factory):
    need_tool("ip")
    folder = tmp_path_factory.mktemp("follow")
    with lab() as routers:
        (folder / "fabric.yaml").write_bytes(yaml_bytes(routers.fabric(folder / "answers")))
        with (folder / "flows.pcap").open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for number, frame in enumerate(frames(routers.flows(64, 4), mac(1, 1, 1))):
                file.write(struct.pack("<IIII", 1, number, len(frame), len(frame)) + frame)
        yield routers, folder


def arguments(case, *more):
    routers, folder = case
    return [
        "trace", str(folder / "flows.pcap"), "--fabric", str(folder / "fabric.yaml"),
        "--devices", f"netns:{routers.prefix}", "--follow", *more,
    ]  # fmt: skip


@pytest.mark.thorough
def test_events_as_json_lines_until_ctrl_c(case):
    routers, _ = case
    process = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *arguments(case, "--format", "json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    with process:
        began = json.loads(process.stdout.readline())
        assert (began["kind"], began["flows"], began["complete_flows"]) == ("began", 64, 64)
        ip(["link set down1-1 down"], routers.name("spine1"))
        changed = [json.loads(process.stdout.readline())]
        while not changed[-1]["moved_flows"]:  # the other router tells later
            changed.append(json.loads(process.stdout.readline()))
        assert {event["kind"] for event in changed} == {"changed"}
        assert {name for event in changed for name in event["devices"]} <= {"leaf1", "spine1"}
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert (process.wait(), process.stderr.read()) == (0, b"")
    assert rest[-1]["kind"] == "ended"
    assert rest[-1]["moved_flows"] == sum(
        event["moved_flows"] for event in [*changed, *rest] if event["kind"] == "changed"
    )
    ip(["link set down1-1 up"], routers.name("spine1"))


@pytest.mark.thorough
def test_a_summary_after_the_duration(case, capfd):
    assert cli.run(arguments(case, "--duration", "1500ms")) == 0
    out, err = capfd.readouterr()
    assert "following 64 flows over 4 switches" in out
    assert "FOLLOWED" in out
    assert "0 changes in" in out
    assert err == ""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--ask", "all"], "--follow cannot be combined"),
        (["--advise"], "--follow cannot be combined"),
        (["--format", "csv"], "--follow writes table or json"),
        (["--duration", "no"], "--duration"),
    ],
)
def test_mistakes(case, capfd, more, told):
    assert cli.run(arguments(case, *more)) == 2
    assert told in capfd.readouterr().err


def test_options_that_need_others(case, capfd):
    words = arguments(case)
    words.remove("--follow")
    assert cli.run([*words, "--duration", "1s"]) == 2
    assert "--duration needs --live or --follow" in capfd.readouterr().err
    at = words.index("--devices")
    assert cli.run([*words[:at], "--follow"]) == 2
    assert "--follow needs --devices" in capfd.readouterr().err


class Recorded:
    """A line to recorded answers, of which one becomes hostile when the switch speaks."""

    def __init__(self, folder):
        self.folder = folder
        self.stopped, self.read = threading.Event(), threading.Event()

    def __call__(self, requests):
        said = []
        for one in requests:
            question = next(q for q in LINUX.questions if q.command == one.command)
            file = self.folder / f"{one.device}.{question.suffix}"
            there = file.exists()
            said.append(Said(file.read_bytes() if there else b"", "" if there else "none"))
        self.read.set()
        return said

    def listen(self, device, command, heard):
        heard()
        if device == "leaf1":
            self.read.wait()
            file = self.folder / "leaf1.route.json"
            routes = json.loads(file.read_bytes())
            odd = {"gateway": "9.9.9.9", "dev": "swp9\x9b\u202e"}
            changed = [
                {"dst": one["dst"], **odd} if one["dst"] == "10.2.3.0/24" else one for one in routes
            ]
            assert changed != routes
            file.write_text(json.dumps(changed))
            heard()
        self.stopped.wait()
        return "ended"

    def close(self):
        self.stopped.set()


def test_what_a_switch_writes_is_printable_and_names_no_temporary_folder(tmp_path, capfd):
    folder = recorded(tmp_path) / "healthy"
    made = assemble("lab", read_devices(folder), 10**10, 500, "tables", strict=False).fabric
    traffic = traffic_of(made, truth(folder.parent, "healthy"))
    line = Recorded(folder)
    try:
        assert follow(line, {}, made, traffic, 6.0, 5, Output("json")) == 0
    finally:
        line.close()
    out, _ = capfd.readouterr()
    events = [json.loads(text) for text in out.splitlines()]
    (remark,) = {r for event in events for r in event["remarks"] if "9.9.9.9" in r}
    assert "on swp9" in remark
    assert "leaf1.route.json: [" in remark
    assert "/" not in remark.partition("leaf1.route.json")[0].replace("10.2.3.0/24", "")
    assert "\x9b" not in out
    assert "\u202e" not in out
