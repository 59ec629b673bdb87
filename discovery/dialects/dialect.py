"""A dialect: its commands, the reader of their answers, and the role of a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import Device
from ..asking import Query
from ..port_counters import Bytes, Port

# Configuration of a user who can only read, for systems without a shell: the gate of these.
#
# Commands are constants (`Question.command`) without characters that mean more in a pattern than
# themselves, but for `|` and `.`, which are escaped.


def eos_role(commands: tuple[str, ...], user: str) -> str:
    """A role that permits the commands in EXEC mode and denies all others."""
    patterns = [re.sub(r"([|.])", r"\\\1", command) for command in commands]
    rules = [f"   {10 * i} permit mode exec command ^{p}$" for i, p in enumerate(patterns, 1)]
    lines = [
        "! EOS: a role with the commands of rocescope; not tested on a device.",
        f"! Give it to a user {user} who has an SSH key and no password.",
        f"role {user}",
        *rules,
        f"   {10 * len(commands) + 10} deny command .*",
        "!",
        "aaa authorization exec default local",
        "aaa authorization commands all default local",
    ]
    return "\n".join(lines) + "\n"


def nxos_role(commands: tuple[str, ...], user: str) -> str:
    """A role whose rules permit the commands; NX-OS denies what no rule permits."""
    rules = [
        f"  rule {i} permit command {command.partition(' |')[0]}"
        for i, command in enumerate(commands, 1)
    ]
    lines = [
        "! NX-OS: a role with the commands of rocescope; not tested on a device.",
        f"! Give it to a user {user} who has an SSH key and no password.",
        f"role name {user}",
        *rules,
    ]
    return "\n".join(lines) + "\n"


def junos_role(commands: tuple[str, ...], user: str) -> str:
    """A login class without permissions that permits the commands alone."""
    allowed = " ".join(f'"^{command.partition(" |")[0]}$"' for command in commands)
    lines = [
        "# Junos: a class with the commands of rocescope; not tested on a device.",
        f"# Give {user} an SSH key and no password.",
        f"set system login class {user} permissions []",
        f"set system login class {user} allow-commands-regexps [ {allowed} ]",
        f"set system login user {user} class {user}",
    ]
    return "\n".join(lines) + "\n"


def vrp_role(commands: tuple[str, ...], user: str) -> str:
    """A task group cannot name single commands: a user of the monitoring level, and the list."""
    lines = [
        "# VRP: its levels cannot permit single commands; not tested on a device.",
        f"# Level 1 (monitoring) permits {user} these and all other display commands of level 1:",
        *(f"#   {command}" for command in commands),
        "aaa",
        f" local-user {user} level 1",
        f" local-user {user} service-type ssh",
        f"ssh user {user} authentication-type ecc",
    ]
    return "\n".join(lines) + "\n"


class Question(NamedTuple):
    """One command; its answer of device leaf1 is in the file `leaf1.SUFFIX`."""

    suffix: str
    command: str
    why: str
    """What is not known without the answer."""
    root: bool = False
    """Whether it needs root, or a group with more rights than reading."""
    partial: bool = False
    """Whether output is of use although the command failed."""
    counts: bool = False
    """Whether it is asked for byte counters of ports alone: no fact of a fabric is missing without
    its answer."""
    instead_of: str = ""
    """Suffix of another answer: this question is asked only if that one has no complete answer."""


class Calculator(NamedTuple):
    """A command of a system that shows which port a flow takes."""

    template: str
    """The command, with fields of a `Query`: addresses, numbers and a checked name of a port."""
    port: Callable[[bytes], str | None]
    """The port of an answer; None: the answer names none, or is not as documented."""
    ipv6: bool = False
    """Whether its documentation shows it for IPv6."""

    def command(self, query: Query) -> str:
        """The command for one flow."""
        return self.template.format_map(query._asdict())


class Read(Protocol):
    """Reads the answers of a device."""

    def __call__(self, folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
        """The device; UsageError if none of its answers is readable. An answer of more than
        `most_bytes` is not read."""


class Dialect(NamedTuple):
    """The commands of one kind of device, and how its answers are read."""

    name: str
    questions: tuple[Question, ...]
    read: Read
    mark: str
    """Suffix of the file that shows the dialect in a folder that people made."""
    forwarding: tuple[str, ...]
    """Suffixes of the answers that tables and hash settings are read from."""
    needed: str = ""
    """Suffix of the answer without which nothing of a device is known; empty: there is none."""
    met: str = ""
    """The systems it was tested with; empty: it never met a device."""
    of_hosts: tuple[Question, ...] = ()
    """Further questions to hosts."""
    calculator: Calculator | None = None
    """For `trace --ask`; None: `ip route get`, or none at all if it never met a device."""
    counters: tuple[str, Callable[[Path, str, str], dict[Port, Bytes]]] | None = None
    """(suffix, reader of folder, device and suffix) of an answer with byte counters of ports."""
    role: Callable[[tuple[str, ...], str], str] | None = None
    """(commands, user) to the configuration of a user who can only read; None: a shell script."""

    def questions_for(self, kind: Literal["switch", "host"]) -> tuple[Question, ...]:
        """What is asked of a switch or a host."""
        return self.questions + (self.of_hosts if kind == "host" else ())
