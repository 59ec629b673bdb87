"""Commands of a trace over SSH, with a real sshd."""

from __future__ import annotations

import pytest
from sshd import LocalSshd

from rocescope.discovery.asking.commands import Request
from rocescope.discovery.dialects.linux import LINUX
from rocescope.discovery.remote.inventory import Target
from rocescope.discovery.remote.running import OverSsh
from rocescope.discovery.remote.ssh import require_asyncssh


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
