"""Configuration of a user who can only read, for systems without a shell: the gate of these.

Commands are constants (`Question.command`) without characters that mean more in a pattern than
themselves, but for `|` and `.`, which are escaped.
"""

from __future__ import annotations

import re


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
