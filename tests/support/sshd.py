"""A real sshd on loopback whose answers a script gives, and the ssh_config of its clients."""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from waiting import until

from rocescope.discovery.dialects.dialect import Dialect

_PORTS = itertools.count(2200)
"""Below those that the kernel gives to clients. A port that was free a moment ago may be taken."""
READER = "reader"
"""A user without any right."""
CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/key
AuthorizedKeysFile /run/lab/authorized_%u
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups {startups}
PidFile none
"""
"""`/run/lab` is the folder: folders of tests are closed to users without rights."""
_START = """\
set -e
mount -t tmpfs tmpfs /run
mkdir /run/sshd /run/lab
mount --bind {folder} /run/lab
for part in passwd shadow; do mount --bind {folder}/$part /etc/$part; done
exec /usr/sbin/sshd -D -e -f {folder}/sshd_config
"""


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def new_key(file: Path) -> str:
    """Make a key pair; the public key."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", str(file))
    kind, key, *_ = file.with_suffix(".pub").read_text().split()
    return f"{kind} {key}"


def write_users(folder: Path) -> None:
    """`passwd` and `shadow` of a device: root and a reader log in with keys.

    Both have a plain shell: bash reads the start-up file of root even for one command.
    """
    users = [li for li in Path("/etc/passwd").read_text().splitlines() if li[:5] != "root:"]
    users += [f"{user}:x:{uid}:{uid}::/:/bin/sh" for user, uid in (("root", 0), (READER, 7777))]
    (folder / "passwd").write_text("\n".join(users) + "\n")
    shadow = [li for li in Path("/etc/shadow").read_text().splitlines() if li[:5] != "root:"]
    shadow += [f"{user}:*:19000:0:99999:7:::" for user in ("root", READER)]
    (folder / "shadow").write_text("\n".join(shadow) + "\n")


class LocalSshd:
    """sshd on a loopback address of this process alone. Every device is a key of its own, to
    which a forced command belongs.

    `home` is the home of a client: its ssh_config has a host for every device.
    """

    def __init__(self, folder: Path, startups: str = "500") -> None:
        """startups: MaxStartups, the logins at once; all devices of a test log in here."""
        self.folder, self.home = folder, folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        pid = os.getpid()  # 22 bits at most (proc(5), pid_max)
        self.address = f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"
        self.port = next(_PORTS)
        host_key = new_key(folder / "key")
        self.known_hosts = self.home / ".ssh" / "known_hosts"
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {host_key}\n")
        self.config = self.home / ".ssh" / "config"
        self.config.touch()
        self._authorized = folder / "authorized_root"
        self._authorized.touch()
        write_users(folder)
        folder.chmod(0o755)
        text = CONFIG.format(address=self.address, port=self.port, folder=folder, startups=startups)
        (folder / "sshd_config").write_text(text)

    def add(self, name: str, command: str, *more: str, options: str = "restrict") -> None:
        """A device that runs one command whatever it is asked; `more`: lines of ssh_config."""
        key = self.home / ".ssh" / name
        public = new_key(key)
        quoted = command.replace("\\", "\\\\").replace('"', '\\"')
        with self._authorized.open("a") as file:
            file.write(f'{options},command="{quoted}" {public}\n')
        lines = [
            f"Host {name}", f"HostName {self.address}", f"Port {self.port}", "User root",
            f"IdentityFile {key}", "IdentitiesOnly yes", *more,
        ]  # fmt: skip
        with self.config.open("a") as file:
            file.write("\n  ".join(lines) + "\n")

    def add_recorded(self, name: str, answers: Path, dialect: Dialect, as_name: str = "") -> None:
        """A device that answers with the files of a folder, and refuses other commands."""
        cases = [
            f"{shlex.quote(q.command)}) exec cat {answers}/{as_name or name}.{q.suffix} ;;"
            for q in dialect.questions_for("host")
        ]
        script = self.folder / f"answer-{name}"
        lines = ["#!/bin/sh", 'case "$SSH_ORIGINAL_COMMAND" in', *cases]
        lines += ["*) echo refused >&2; exit 126 ;;", "esac"]
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)
        self.add(name, str(script))

    def __enter__(self) -> Self:
        script = self.folder / "start"
        script.write_text(_START.format(folder=self.folder))
        self._log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", str(script)],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        until(self._listens)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # unshare ignores SIGTERM; what it started ends with it
        self._process.wait()
        self._log.close()

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        return socket.socket().connect_ex((self.address, self.port)) == 0


def inventory(file: Path, switches: Mapping[str, str], hosts: Iterable[str] = ()) -> Path:
    """An inventory of switches with their dialects, and of hosts."""
    lines = ["switches:", *(f"  {name}: {{dialect: {d}}}" for name, d in switches.items())]
    lines += ["hosts:", *(f"  {name}: {{}}" for name in hosts)]
    file.write_text("\n".join(lines) + "\n")
    return file
