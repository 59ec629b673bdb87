"""A gate for SSH: a key of rocescope runs its read-only commands and nothing else.

sshd starts the gate in place of any command (`command=` in authorized_keys) and gives it what
was asked for in SSH_ORIGINAL_COMMAND. The gate compares the whole text with its list: nothing of
it is given to a shell.
"""

from __future__ import annotations

import re
import shlex

from ..analyzer.errors import UsageError
from .dialects.dialect import Dialect, Question
from .following.follow import LISTENS, MONITOR

_PATHS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"
_HOME = {"vtysh": "/usr/bin/vtysh"}
"""Where programs that need root are; sudoers lines have full paths."""
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""Names that useradd makes: in sudoers, ALL, %group, #uid and lists mean other users."""


def gate_script(dialect: Dialect, user: str) -> str:
    """A shell script for `command=`, with its installation and the sudoers lines as comments; for
    a system without a shell the configuration of a role.

    UsageError for a user whose name could be more than a name in a comment or a sudoers line.
    """
    if not _USER.fullmatch(user):
        raise UsageError(f"{user!r} is not a user name: lower-case letters, digits, - and _")
    questions = dialect.questions_for("host")
    if dialect.role is not None:
        return dialect.role(tuple(q.command for q in questions), user)
    rooted = [q for q in questions if q.root]
    lines = [
        "#!/bin/sh",
        f"# Commands of rocescope discover for the dialect {dialect.name}; all others are refused.",
        f"# Install it as /usr/local/bin/rocescope-gate (root, mode 755), make a user {user},",
        "# and write in its authorized_keys, in one line before the key:",
        '#   restrict,command="/usr/local/bin/rocescope-gate" ssh-ed25519 ...',
    ]
    if rooted:
        lines.append("# These lines are for /etc/sudoers.d/rocescope (check: visudo -cf FILE):")
        lines += [f"#   {user} ALL=(root) NOPASSWD: {_sudoers(q)}" for q in rooted]
    lines += [f"PATH={_PATHS}", "export PATH", 'case "$SSH_ORIGINAL_COMMAND" in']
    for question in questions:
        exact = shlex.join(["sudo", "-n"] * question.root + _words(question))
        lines.append(f"{shlex.quote(question.command)}) exec {exact} ;;")
    if dialect.name in LISTENS:
        lines.append(f"{shlex.quote(MONITOR)}) exec {MONITOR} ;;")
    lines += [
        "*) echo 'refused: not a command of rocescope discover' >&2; exit 126 ;;",
        "esac",
    ]
    return "\n".join(lines) + "\n"


def _words(question: Question) -> list[str]:
    program, *words = shlex.split(question.command)
    return [_HOME.get(program, program), *words]


def _sudoers(question: Question) -> str:
    """The command as sudo compares it: words joined by blanks, special characters escaped."""
    text = " ".join(_words(question))
    return "".join(f"\\{c}" if c in ",:=\\" else c for c in text)
