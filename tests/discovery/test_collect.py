"""Commands of a trace over SSH, with a real sshd."""

from __future__ import annotations

import signal

import pytest
from answers import recorded
from sshd import LocalSshd, inventory

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Namespaces, Request
from rocescope.discovery.collect import OverSsh, collect, parse_devices
from rocescope.discovery.dialects.linux import LINUX
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.folder import NO_ANSWER, read_folder
from rocescope.discovery.inventory import Target, read_inventory
from rocescope.discovery.results import read_asked
from rocescope.discovery.ssh import require_asyncssh

# Commands of a trace over SSH, with a real sshd.


@pytest.fixture
def run(root, need_tool, tmp_path, monkeypatch):
    need_tool("sshd")
    require_asyncssh()
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = LocalSshd(folder)
    for name in ("leaf1", "leaf2"):
        server.add(name, 'sh -c "$SSH_ORIGINAL_COMMAND"')
    with server.config.open("a") as config:
        config.write("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    monkeypatch.setenv("HOME", str(server.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with server:
        made = OverSsh(
            [
                *(Target(name, "switch", LINUX, name) for name in ("leaf1", "leaf2", "gone")),
                Target("odd", "switch", LINUX, "127.0.0.1:99999"),
            ]
        )
        yield made
        made.close()


def test_devices_at_once_over_connections_that_stay_open(run):
    asked = [
        Request("leaf1", "tr a-z A-Z", b"one"),
        Request("leaf2", "echo half; echo -e 'why\\033[31m' >&2; exit 1"),
        Request("gone", "id"),
        Request("odd", "id"),
        Request("leaf9", "id"),
    ]
    good, partial, gone, odd, unknown = run(asked)
    assert good == (b"ONE", "")
    assert partial.output == b"half\n"
    assert partial.problem.startswith("exit status 1: ")
    assert "\x1b" not in partial.problem
    assert "connect" in gone.problem
    assert odd.problem == "the port 99999 is not 1 to 65535"
    assert unknown == (b"", "not in the inventory")
    # The client's port is the same: no second connection.
    ports = [run([Request("leaf1", "echo $SSH_CONNECTION")])[0].output for _ in range(2)]
    assert ports[0] == ports[1]
    assert len(ports[0].split()) == 4


def test_a_command_that_does_not_end_is_listened_to_until_it_ends(run):
    """The device is asked meanwhile; afterwards a new connection is made."""
    heard = []

    def port():
        return run([Request("leaf1", "echo $SSH_CONNECTION")])[0].output.split()[1]

    before = port()
    command = "echo one; sleep 0.5; echo two; echo why >&2; exit 3"
    assert run.listen("leaf1", command, lambda: heard.append(port)) == "exit status 3: why"
    assert len(heard) == 3  # its start, and twice that it printed
    assert port() != before
    assert "connect" in run.listen("gone", command, heard.clear)
    assert len(heard) == 3
    assert run.listen("leaf9", command, heard.clear) == "not in the inventory"


# `--devices`.


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


# Answers of many devices, asked at once.

SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")
HOSTS = ("h1", "h2", "h3", "h4")


@pytest.fixture
def devices(root, need_tool, tmp_path, monkeypatch):
    """sshd with the recorded devices, and the inventory of them."""
    need_tool("sshd")
    folder = recorded(tmp_path) / "healthy"
    with LocalSshd(tmp_path) as server:
        for name in SWITCHES:
            server.add_recorded(name, folder, DIALECTS["frr"])
        for name in HOSTS:
            server.add_recorded(name, folder, DIALECTS["linux"])
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server, folder


def collected(tmp_path, switches=SWITCHES, hosts=HOSTS, progress=None):
    file = inventory(tmp_path / "inventory.yaml", dict.fromkeys(switches, "frr"), hosts)
    collect(read_inventory(file, DIALECTS), tmp_path / "raw", progress)
    return tmp_path / "raw"


def test_the_answers_are_those_of_the_devices(devices, tmp_path):
    _, folder = devices
    done = []
    raw = collected(tmp_path, progress=lambda number, name: done.append((number, name)))
    for file in folder.iterdir():
        assert (raw / file.name).read_bytes() == file.read_bytes()
    assert [number for number, _ in done] == list(range(1, 9))
    assert {name for _, name in done} == {*SWITCHES, *HOSTS}
    asked = read_asked(raw)
    assert asked["leaf1"].problem_of("route.json") == ""
    assert asked["leaf1"].problem_of("bucket.json").startswith("exit status 1: cat: ")
    answers, unreadable = read_folder(raw)
    assert (len(answers), unreadable) == (8, [])


def test_a_device_that_does_not_answer_is_named_and_the_others_are_asked(devices, tmp_path):
    server, _ = devices
    with server.config.open("a") as config:
        config.write("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    raw = collected(tmp_path, (*SWITCHES, "gone"))
    answers, (unreadable,) = read_folder(raw)
    assert len(answers) == 8
    assert (unreadable.name, unreadable.kind) == ("gone", NO_ANSWER)


def test_a_device_that_cannot_be_asked_at_all_is_named_and_the_others_are_asked(devices, tmp_path):
    """A setting of ssh_config that leads to an unusual error, and a folder in place of a file."""
    server, _ = devices
    server.add("odd", "id", "UserKnownHostsFile ~no-such-user/known_hosts")
    (tmp_path / "raw" / "leaf2.route.json").mkdir(parents=True)
    raw = collected(tmp_path, (*SWITCHES, "odd"))
    answers, unreadable = read_folder(raw)
    assert len(answers) == 7
    reasons = {one.name: one.reason for one in unreadable}
    assert reasons["odd"].startswith("RuntimeError: Could not determine home directory")
    assert reasons["leaf2"] == "is a directory"


def test_earlier_answers_are_replaced(devices, tmp_path):
    """Also those of a dialect, or of a kind of device, that it no longer has."""
    raw = tmp_path / "raw"
    raw.mkdir()
    names = ["leaf1.bucket.json", "leaf1.route.json.failed", "leaf1.qp.json", "h1.frr-route.json"]
    for name in names:
        (raw / name).write_text("[{}]")
    collected(tmp_path)
    assert not [name for name in names if (raw / name).exists()]


def test_an_interrupted_collection_says_so(devices, tmp_path):
    """No device passes for one that was asked, whether it was or not."""

    def interrupt(done, name):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path, progress=interrupt)
    asked = read_asked(tmp_path / "raw")
    assert set(asked) == {*SWITCHES, *HOSTS}
    assert {one.problem for one in asked.values()} == {
        "not asked to the end: the collection was interrupted"
    }


def test_an_answer_that_is_not_complete_is_kept_beside(devices, tmp_path):
    server, folder = devices
    script = server.folder / "half"
    script.write_text(f"#!/bin/sh\nhead -c 99 {folder}/spine2.route.json; exit 9\n")
    script.chmod(0o755)
    server.add("spine3", str(script))
    raw = collected(tmp_path, (*SWITCHES, "spine3"))
    assert (raw / "spine3.route.json.failed").stat().st_size == 99
    assert not (raw / "spine3.route.json").exists()
    answers, (unreadable,) = read_folder(raw)
    assert len(answers) == 8
    assert (unreadable.name, unreadable.reason) == ("spine3", "`ip -j route`: exit status 9")
