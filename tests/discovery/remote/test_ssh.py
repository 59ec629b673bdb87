"""Commands over SSH, with a real sshd."""

from __future__ import annotations

import asyncio
from itertools import zip_longest

import pytest
from sshd import LocalSshd

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.remote.ssh import (
    NotReached,
    _host_and_port,
    connected,
    require_asyncssh,
)


@pytest.fixture(scope="module")
def sshd(root, need_tool, tmp_path_factory):
    need_tool("sshd")
    require_asyncssh()
    server = LocalSshd(tmp_path_factory.mktemp("sshd"))
    server.add("shell", 'sh -c "$SSH_ORIGINAL_COMMAND"', options="restrict,port-forwarding")
    server.add("endless", "cat /dev/zero")
    server.add("hanging", "sleep 1000")
    server.add("jumping", "echo jumped", "ProxyJump shell")
    server.add("circle", "id", "ProxyJump circle")
    server.add("unchecked", "id", "UserKnownHostsFile none", "StrictHostKeyChecking no")
    server.add("stranger", "id", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no")
    server.add("closed", "id")
    server.config.write_text(
        server.config.read_text() + "Host gone\n  HostName 127.0.0.1\n  Port 1\n"
    )
    with server:
        yield server


@pytest.fixture
def ask(sshd, monkeypatch):
    """`ask(host, command)`: the answer and the output; seconds: limits of the first commands."""
    monkeypatch.setenv("HOME", str(sshd.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def ask(host, *commands, seconds=(), **limits):
        async def run():
            async with connected(host) as connection:
                outputs = [bytearray() for _ in commands]
                limited = [{"seconds": one} for one in seconds]
                asked = [
                    connection.ask(command, output.extend, **limits, **own)
                    for command, output, own in zip_longest(
                        commands, outputs, limited, fillvalue={}
                    )
                ]
                return list(zip(await asyncio.gather(*asked), outputs, strict=True))

        return asyncio.run(run())

    return ask


def test_output_status_and_time(ask):
    ((answer, output),) = ask("shell", "echo one; echo two")
    assert (answer.status, answer.problem, bytes(output)) == (0, "", b"one\ntwo\n")
    assert answer.output_bytes == 8
    assert answer.began_ns < answer.ended_ns


def test_a_refusal_is_its_status_and_the_last_line_of_the_errors(ask):
    ((answer, output),) = ask("shell", "echo half; echo first >&2; echo why >&2; exit 3")
    assert (answer.status, answer.problem) == (3, "exit status 3: why")
    assert bytes(output) == b"half\n"


def test_standard_input_is_sent_and_ends(ask):
    ((answer, output),) = ask("shell", "tr a-z A-Z", stdin=b"abc" * 100_000)
    assert (answer.problem, bytes(output)) == ("", b"ABC" * 100_000)


def test_no_terminal(ask):
    ((_, output),) = ask("shell", "tty || true")
    assert bytes(output) == b"not a tty\n"


def test_forty_commands_on_one_connection(ask):
    """More than sshd's MaxSessions of 10 allows at once."""
    found = ask("shell", *(f"echo {i}" for i in range(40)))
    assert [bytes(output) for _, output in found] == [b"%d\n" % i for i in range(40)]


def test_endless_output_is_cut(ask):
    ((answer, output),) = ask("endless", "x", most_bytes=3 << 20)
    assert (answer.status, answer.problem) == (None, "more than 3 MiB of output")
    assert len(output) <= 3 << 20


def test_endless_errors_are_cut(ask):
    ((answer, _),) = ask("shell", "cat /dev/zero >&2")
    assert answer.problem == "more than 1 MiB of error messages"


def test_a_command_that_hangs_keeps_no_other_away(ask):
    found = ask("shell", "sleep 1000", "echo there", seconds=[1])
    assert found[0][0].problem == "no end within 1 s"
    assert bytes(found[1][1]) == b"there\n"


def test_jump_hosts_of_ssh_config(ask):
    assert bytes(ask("jumping", "x")[0][1]) == b"jumped\n"


@pytest.mark.parametrize("host", ["unchecked", "stranger"])
def test_no_setting_turns_the_host_key_check_off(host, ask):
    with pytest.raises(NotReached, match="the host key is not in known_hosts, or differs"):
        ask(host, "id")


def test_a_changed_host_key_is_refused(ask, sshd):
    kept = sshd.known_hosts.read_text()
    other = (sshd.home / ".ssh" / "shell.pub").read_text()
    try:
        sshd.known_hosts.write_text(f"{kept.split()[0]} {other}")
        with pytest.raises(NotReached, match="the host key is not in known_hosts, or differs"):
            ask("shell", "id")
    finally:
        sshd.known_hosts.write_text(kept)


def test_a_key_that_is_not_known_there(ask, sshd):
    file = sshd.folder / "authorized_root"
    kept = file.read_text()
    try:
        file.write_text("\n".join(kept.splitlines()[:1]) + "\n")
        with pytest.raises(NotReached, match="no key was accepted"):
            ask("closed", "id")
    finally:
        file.write_text(kept)


def test_nothing_listens(ask):
    with pytest.raises(NotReached, match="connect"):
        ask("gone", "id")


def test_a_jump_host_that_leads_to_itself(ask):
    with pytest.raises(NotReached, match="the jump host circle leads to itself"):
        ask("circle", "id")


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("leaf1", "leaf1", None),
        ("leaf1:2222", "leaf1", 2222),
        ("[fd00::1]:2222", "fd00::1", 2222),
        ("fd00::1", "fd00::1", None),
        ("[fd00::1]", "fd00::1", None),
    ],
)
def test_hosts_and_ports_of_jump_hosts(place, host, port):
    assert _host_and_port(place) == (host, port)


def test_without_asyncssh_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "asyncssh", None)
    with pytest.raises(UsageError, match=r"pip install 'rocescope\[ssh\]'"):
        require_asyncssh()
