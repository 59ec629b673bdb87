"""The gate, behind a real sshd."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from sshd import READER, LocalSshd

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.gate import gate_script


@pytest.fixture(scope="module")
def server(root, need_tool, tmp_path_factory):
    need_tool("sshd")
    folder = tmp_path_factory.mktemp("gate")
    server = LocalSshd(folder)
    gate = folder / "gate"
    gate.write_text(gate_script(DIALECTS["linux"], READER))
    gate.chmod(0o755)
    server.add("device", "/run/lab/gate")
    shutil.copy(folder / "authorized_root", folder / f"authorized_{READER}")
    with server:
        yield server


def ask(server, command):
    return subprocess.run(
        ["ssh", "-F", server.config, "-o", f"UserKnownHostsFile={server.known_hosts}",
         "-o", "BatchMode=yes", "-l", READER, "device", *([command] if command else [])],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(server.home)},
    )  # fmt: skip


def test_the_commands_pass(server, need_tool):
    need_tool("ip")
    done = ask(server, "ip -j route")
    assert (done.returncode, done.stdout[:1], done.stderr) == (0, "[", "")
    assert "net.ipv4.ip_forward" in ask(server, "/sbin/sysctl -a").stdout


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        "ip -j route; id",
        "ip -j route show",
        "ip -j route\nid",
        " ip -j route",
        "ip  -j route",
        "$(id)",
        "`id`",
        "*",
        "ip*",
        "[a-z]*",
        "id",
        "",
        "/usr/sbin/lldpctl -f json0 & id",
    ],
)
def test_nothing_else_passes(command, server):
    done = ask(server, command)
    assert (done.returncode, done.stdout) == (126, "")
    assert "refused: not a command of rocescope discover" in done.stderr


@pytest.mark.parametrize("name", [n for n, d in DIALECTS.items() if d.role is None])
def test_the_script_holds_every_command(name):
    text = gate_script(DIALECTS[name], "reader")
    for question in DIALECTS[name].questions_for("host"):
        if question.root:
            assert "exec sudo -n /" in text
    checked = subprocess.run(["sh", "-n"], input=text, text=True, check=False, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    "user",
    [
        "",
        "reader\nroot",
        "reader\n",
        "ALL",
        "%wheel",
        "#0",
        "a b",
        "a,root",
        "a;id",
        "-a",
        "a" * 33,
    ],
)
def test_a_name_that_means_more_is_refused(user):
    with pytest.raises(UsageError, match="is not a user name"):
        gate_script(DIALECTS["linux"], user)


def test_sudoers_lines_have_full_paths_and_the_exact_arguments():
    lines = [li for li in gate_script(DIALECTS["frr"], "reader").splitlines() if "NOPASSWD" in li]
    assert lines == [
        "#   reader ALL=(root) NOPASSWD: /usr/sbin/lldpctl -f json0",
        "#   reader ALL=(root) NOPASSWD: /usr/bin/vtysh -c show ip route json",
    ]
