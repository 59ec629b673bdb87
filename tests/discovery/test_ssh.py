"""Hosts and ports of SSH servers."""

from __future__ import annotations

import asyncio
from itertools import zip_longest

import pytest
from sshd import LocalSshd

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.ssh import (
    Client,
    NotReached,
    _expanded,
    _refusal,
    host_and_port,
    reason_of,
    require_asyncssh,
)

# Hosts and ports of SSH servers.


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
def test_hosts_and_ports(place, host, port):
    assert host_and_port(place) == (host, port)


@pytest.mark.parametrize("port", ["0", "65536", "99999", "9" * 5000])
def test_ports_that_do_not_exist(port):
    with pytest.raises(ValueError, match=r"the port \d{1,9} is not 1 to 65535"):
        host_and_port(f"leaf1:{port}")


# Commands over SSH, with a real sshd.


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
    server.add("tokens", "id", "UserKnownHostsFile %d/.ssh/known_%%_%n_%p_%r")
    server.add("unknown-token", "id", "UserKnownHostsFile %d/%C")
    server.add("nobody", "id", "UserKnownHostsFile ~no-such-user/known_hosts")
    (server.home / ".ssh" / f"known_%_tokens_{server.port}_root").write_text(
        server.known_hosts.read_text()
    )
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
            async with Client().connected(host) as connection:
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
    assert found[0][0].problem == "not finished within 1 s"
    assert bytes(found[1][1]) == b"there\n"


def test_jump_hosts_of_ssh_config(ask):
    assert bytes(ask("jumping", "x")[0][1]) == b"jumped\n"


@pytest.mark.parametrize("host", ["unchecked", "stranger"])
def test_no_setting_turns_the_host_key_check_off(host, ask):
    with pytest.raises(NotReached, match="the host key is not in known_hosts, or differs"):
        ask(host, "id")


def test_tokens_of_ssh_config_in_the_file_of_known_hosts(ask):
    assert bytes(ask("tokens", "x")[0][1]).startswith(b"uid=0")
    with pytest.raises(NotReached, match="%C is not known here"):
        ask("unknown-token", "x")
    assert _expanded("~/%h%%d", {"h": "leaf1", "%": "%"}) == "~/leaf1%d"


def test_any_mistake_in_ssh_config_is_a_reason(ask):
    with pytest.raises(NotReached, match="RuntimeError: Could not determine home directory"):
        ask("nobody", "x")
    assert reason_of(KeyError("kex")) == "KeyError: 'kex'"


def test_how_commands_end_without_success():
    ends = [_refusal(status, b"") for status in (None, -15, 3)]
    assert ends == ["no exit status", "ended by a signal", "exit status 3"]


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


def test_many_hosts_behind_a_jump_host_log_in_there_once(root, need_tool, tmp_path, monkeypatch):
    """Of two logins at once the jump host refuses one."""
    need_tool("sshd")
    for name in ("jump", "fabric"):
        (tmp_path / name).mkdir()
    jump, fabric = LocalSshd(tmp_path / "jump", startups="2"), LocalSshd(tmp_path / "fabric")
    jump.add("gateway", "false", options="restrict,port-forwarding")
    names = [f"leaf{i}" for i in range(12)]
    for name in names:
        fabric.add(name, f"echo {name}", "ProxyJump gateway")
    with fabric.config.open("a") as config, fabric.known_hosts.open("a") as known:
        config.write(jump.config.read_text())
        known.write(jump.known_hosts.read_text())
    monkeypatch.setenv("HOME", str(fabric.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    async def run():
        client = Client()

        async def one(name):
            output = bytearray()
            async with client.connected(name) as connection:
                await connection.ask("x", output.extend)
            return output.decode().strip()

        try:
            return await asyncio.gather(*map(one, names))
        finally:
            client.close()

    with jump, fabric:
        assert asyncio.run(run()) == names


def test_a_jump_host_that_leads_to_itself(ask):
    with pytest.raises(NotReached, match="the jump host circle leads to itself"):
        ask("circle", "id")


def test_without_asyncssh_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "asyncssh", None)
    with pytest.raises(
        UsageError, match="SSH needs asyncssh, which is not installed: .*install asyncssh"
    ):
        require_asyncssh()
