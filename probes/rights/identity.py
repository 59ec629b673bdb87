"""The user that a running capture becomes, and that programs run as which read its packets."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_OVERFLOW = 65_534
"""The user and group nobody, where the system does not name them: overflowuid, proc(5)."""


class Identity(NamedTuple):
    """User and group numbers."""

    uid: int
    gid: int


def unprivileged(environment: Mapping[str, str] = os.environ) -> Identity:
    """The user that has run sudo, else nobody."""
    with suppress(KeyError, ValueError):
        user = Identity(int(environment["SUDO_UID"]), int(environment["SUDO_GID"]))
        if user.uid > 0 and user.gid > 0:
            return user
    with suppress(KeyError):
        entry = pwd.getpwnam("nobody")
        return Identity(entry.pw_uid, entry.pw_gid)
    return Identity(_OVERFLOW, _OVERFLOW)


def program_settings() -> dict[str, Any]:
    """Arguments of `subprocess` for a program that parses packets: root never runs it itself.

    A home of another user is no home for it: tshark 4.0 crashes where it may not look into it.
    """
    settings: dict[str, Any] = {}
    user = os.geteuid()
    if user == 0:
        user, group = unprivileged()
        settings = {"user": user, "group": group, "extra_groups": []}
    environment = dict(os.environ)
    try:
        foreign = os.stat(environment.get("HOME", "/")).st_uid != user
    except OSError:
        foreign = True
    if foreign:
        environment.pop("XDG_CONFIG_HOME", None)
        environment["HOME"] = "/"
        with suppress(KeyError):
            environment["HOME"] = pwd.getpwuid(user).pw_dir
    return settings | {"env": environment}


def can_write(identity: Identity, folder: Path) -> bool:
    """Whether this user may create and replace files in a folder. For root, without other threads.

    In a sticky folder of another user, such as /tmp, files of root could not be replaced.
    """
    with suppress(OSError):
        status = os.stat(folder)
        if status.st_mode & stat.S_ISVTX and status.st_uid != identity.uid:
            return False
    with _acting_as(identity):
        return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


@contextmanager
def _acting_as(identity: Identity) -> Iterator[None]:
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(identity.gid)
    os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
