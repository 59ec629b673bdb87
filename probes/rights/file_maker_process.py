"""The process of a `FileMaker`: makes files in one folder, and passes their descriptors on.

The asking process reads packets, so its requests are not trusted: only names of the pattern, only
below the folder, no link is followed, and only files that were made here are removed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ..files.replacement import Replacement
from .dropping import WRITING, drop_privileges

_LARGEST_REQUEST = 1 << 15
_MOST_UNFINISHED = 64
_ENTERED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_WRITTEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY


def main() -> None:
    """Answer requests until the other end of standard input, a socket, is closed."""
    channel = socket.socket(fileno=0)
    folder, names = json.loads(sys.argv[1])
    drop_privileges(WRITING)
    with suppress(BrokenPipeError, ConnectionResetError):
        try:
            place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            channel.send(json.dumps([error.errno, 0]).encode())
            return
        channel.send(b"[0, 0]")
        Making(place, names).serve(channel)


class Making:
    """Files in a folder; `serve` answers requests."""

    def __init__(self, folder: int, names: str) -> None:
        self._folder = folder
        self._names = re.compile(names, re.DOTALL)
        self._created: set[str] = set()
        self._unfinished: dict[int, Replacement | None] = {}
        """By number; None for a device, which was only opened."""
        self._begun = 0

    def serve(self, channel: socket.socket) -> None:
        """Answer with [errno, number], and with a descriptor where a file was made."""
        answers: dict[str, Callable[[Any], tuple[int, int | None]]] = {
            "create": self._create,
            "remove": self._remove,
            "begin": self._begin,
            "keep": self._keep,
            "drop": self._drop,
        }
        while request := channel.recv(_LARGEST_REQUEST):
            try:
                what, about = json.loads(request)
                number, descriptor = answers[what](about)
            except OSError as error:
                channel.send(json.dumps([error.errno or errno.EIO, 0]).encode())
                continue
            except (ValueError, KeyError, TypeError):
                channel.send(json.dumps([errno.EINVAL, 0]).encode())
                continue
            message = json.dumps([0, number]).encode()
            socket.send_fds(channel, [message], [] if descriptor is None else [descriptor])
            if descriptor is not None and self._unfinished.get(number) is None:
                os.close(descriptor)  # no replacement holds it
        for file in self._unfinished.values():
            if file is not None:
                file.close()

    def _create(self, path: str) -> tuple[int, int | None]:
        with self._found(path) as (folder, name):
            flags = _WRITTEN | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
        self._created.add(path)
        return 0, descriptor

    def _remove(self, path: str) -> tuple[int, int | None]:
        if path not in self._created:
            raise PermissionError(errno.EPERM, "")
        with self._found(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        self._created.discard(path)
        return 0, None

    def _begin(self, path: str) -> tuple[int, int | None]:
        if len(self._unfinished) >= _MOST_UNFINISHED:
            raise OSError(errno.EMFILE, "")
        number = self._begun + 1
        with self._found(path) as (folder, name):
            if _is_device(name, folder):
                descriptor = os.open(name, _WRITTEN, dir_fd=folder)
                self._unfinished[number] = None
            else:
                file = self._unfinished[number] = Replacement(name, os.dup(folder))
                descriptor = file.descriptor
        self._begun = number
        return number, descriptor

    def _keep(self, number: int) -> tuple[int, int | None]:
        file = self._unfinished[number]
        if file is not None:
            file.keep()
        return self._drop(number)

    def _drop(self, number: int) -> tuple[int, int | None]:
        file = self._unfinished.pop(number)
        if file is not None:
            file.close()
        return number, None

    @contextmanager
    def _found(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder of a path, opened without following a link, and the name in it."""
        if not isinstance(path, str):
            raise TypeError
        *folders, name = path.split("/")
        if not self._names.fullmatch(path) or {"", ".", ".."} & {*folders, name}:
            raise PermissionError(errno.EPERM, "")
        with ExitStack() as stack:
            folder = self._folder
            for part in folders:
                folder = os.open(part, _ENTERED, dir_fd=folder)
                stack.callback(os.close, folder)
            yield folder, name


def _is_device(name: str, folder: int) -> bool:
    with suppress(FileNotFoundError):
        return not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


if __name__ == "__main__":
    main()
