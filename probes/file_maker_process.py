"""The process of a `FileMaker`: makes files in one folder, and passes their descriptors on.

The asking process reads packets, so its requests are not trusted: only what its `Use` needs, only
names of the pattern, only in the folder, no link is followed, and only files that were made here
are removed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

from .replacement import Replacement
from .rights import WRITING, drop_privileges

_LARGEST_REQUEST = 1 << 15
_MOST_UNFINISHED = 64
_WRITTEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY


class Use(StrEnum):
    """What files are made for."""

    SERIES = "series"
    """New files that are written at once, and removed later."""
    NAMED = "named"
    """Files that the user has named at the start: they take the place of older ones."""
    NEW = "new"
    """Files that are named later: only files that were made here are replaced."""


def main() -> None:
    """Answer requests until the other end of standard input, a socket, is closed."""
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # systemd sends it to all; the asking side ends us
    channel = socket.socket(fileno=0)
    folder, names, use = json.loads(sys.argv[1])
    drop_privileges(WRITING)
    with suppress(BrokenPipeError, ConnectionResetError):
        try:
            place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            channel.send(json.dumps([error.errno, 0]).encode())
            return
        channel.send(b"[0, 0]")
        Making(place, names, Use(use)).serve(channel)


class Making:
    """Files in a folder; `serve` answers requests."""

    def __init__(self, folder: int, names: str, use: Use) -> None:
        self._folder = folder
        self._names = re.compile(names, re.DOTALL)
        self._use = use
        self._created: set[str] = set()
        self._made: dict[str, tuple[int, ...]] = {}
        """Marks of complete files, see `_mark`."""
        self._unfinished: dict[int, tuple[str, Replacement | None]] = {}
        """By number; None for a device, which was only opened."""
        self._begun = 0

    def serve(self, channel: socket.socket) -> None:
        """Answer with [errno, number], and with a descriptor where a file was made."""
        try:
            self._serve(channel)
        finally:
            for _, file in self._unfinished.values():
                if file is not None:
                    file.close()

    def _serve(self, channel: socket.socket) -> None:
        answers: dict[str, Callable[[Any], tuple[int, int | None]]]
        if self._use is Use.SERIES:
            answers = {"create": self._create, "remove": self._remove}
        else:
            answers = {"begin": self._begin, "keep": self._keep, "drop": self._drop}
        while request := channel.recv(_LARGEST_REQUEST):
            try:
                what, about = json.loads(request)
                number, descriptor = answers[what](about)
            except OSError as error:
                channel.send(json.dumps([error.errno or errno.EIO, 0]).encode())
                continue
            except (ValueError, KeyError, TypeError, RecursionError):
                channel.send(json.dumps([errno.EINVAL, 0]).encode())
                continue
            message = json.dumps([0, number]).encode()
            socket.send_fds(channel, [message], [] if descriptor is None else [descriptor])
            if descriptor is not None and self._unfinished.get(number, ("", None))[1] is None:
                os.close(descriptor)  # no replacement holds it

    def _create(self, name: str) -> tuple[int, int | None]:
        self._check(name)
        descriptor = os.open(name, _WRITTEN | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=self._folder)
        self._created.add(name)
        return 0, descriptor

    def _remove(self, name: str) -> tuple[int, int | None]:
        if name not in self._created:
            raise PermissionError(errno.EPERM, "")
        os.unlink(name, dir_fd=self._folder)
        self._created.discard(name)
        return 0, None

    def _begin(self, name: str) -> tuple[int, int | None]:
        self._check(name)
        if len(self._unfinished) >= _MOST_UNFINISHED:
            raise OSError(errno.EMFILE, "")
        older = self._older(name)
        if older is not None and not self._may_replace(name):
            raise FileExistsError(errno.EEXIST, "")
        number = self._begun + 1
        if older is not None and not stat.S_ISREG(older.st_mode):
            descriptor = os.open(name, _WRITTEN, dir_fd=self._folder)
            self._unfinished[number] = name, None
        else:
            file = Replacement(name, os.dup(self._folder))
            self._unfinished[number] = name, file
            descriptor = file.descriptor
        self._begun = number
        return number, descriptor

    def _keep(self, number: int) -> tuple[int, int | None]:
        name, file = self._unfinished[number]
        if file is not None:
            file.keep(new=not self._may_replace(name))
            self._made[name] = _mark(os.fstat(file.descriptor))
        return self._drop(number)

    def _drop(self, number: int) -> tuple[int, int | None]:
        _, file = self._unfinished.pop(number)
        if file is not None:
            file.close()
        return number, None

    def _check(self, name: str) -> None:
        """Only names of the pattern, and without a folder."""
        if not isinstance(name, str):
            raise TypeError
        if not self._names.fullmatch(name) or "/" in name or name in ("", ".", ".."):
            raise PermissionError(errno.EPERM, "")

    def _older(self, name: str) -> os.stat_result | None:
        """The file that has this name now."""
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        return None

    def _may_replace(self, name: str) -> bool:
        """Whether an older file of this name may be replaced."""
        if self._use is Use.NAMED:
            return True
        older = self._older(name)
        return older is not None and _mark(older) == self._made.get(name)


def _mark(file: os.stat_result) -> tuple[int, ...]:
    """Tells a file that was made here and left alone from another one of its name; the inode alone
    does not, because file systems use it again."""
    return file.st_dev, file.st_ino, file.st_ctime_ns


if __name__ == "__main__":
    main()
