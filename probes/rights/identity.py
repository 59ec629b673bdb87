"""The user that a running capture becomes."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

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
