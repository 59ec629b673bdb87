"""A process that makes files for one that has given up the right to make them.

It keeps root's rights to write and nothing else; its program is `file_maker_process.py`. It makes
files in one folder, with names of one pattern, both fixed when it starts, and passes their
descriptors over a socket (SCM_RIGHTS, unix(7)).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from ..analyzer.errors import RocescopeError
from . import file_maker_process
from .file_maker_process import Use
from .rights import becomes, can_write

_ENDS_WITHIN_S = 5.0


class FileMaker:
    """The asking side; a context manager. Any thread may use it.

    names: a regular expression for the names of its files, in full. Every method raises OSError
    with the errno of the other process, and RocescopeError if that has ended.
    RocescopeError if the folder cannot be opened.
    """

    def __init__(self, folder: Path, names: str, use: Use) -> None:
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Its own session protects it from Ctrl-C and the end of the terminal.
            self._process = subprocess.Popen(
                [sys.executable, "-m", file_maker_process.__name__]
                + [json.dumps([str(self.folder), names, use])],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
        try:
            self._answer()
        except OSError as error:
            self.close()
            reason = (error.strerror or "").lower()
            raise RocescopeError(f"cannot write to {folder}: {reason}") from None

    def create(self, path: Path) -> int:
        """The descriptor of a new file; FileExistsError if the name is taken."""
        return self._ask("create", path.name)[1]

    def remove(self, path: Path) -> None:
        """Remove a file that was created here."""
        self._ask("remove", path.name)

    def replacement(self, path: Path) -> MadeReplacement:
        """A file that takes its name when it is complete; a device or pipe as it is.

        With `Use.NEW`, FileExistsError if the name is that of a file that was not made here.
        """
        number, descriptor = self._ask("begin", path.name)
        return MadeReplacement(self, number, descriptor)

    def finish(self, number: int, keep: bool) -> None:
        """End a replacement."""
        self._ask("keep" if keep else "drop", number)

    def covers(self, path: Path) -> bool:
        """Whether a path lies in its folder."""
        return path.parent.resolve() == self.folder

    def _ask(self, what: str, about: str | int) -> tuple[int, int]:
        with self._lock:
            with suppress(BrokenPipeError):  # its end is noticed when receiving
                self._channel.send(json.dumps([what, about]).encode())
            return self._answer()

    def _answer(self) -> tuple[int, int]:
        """A number and a descriptor, each if there is one."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._channel, 256, 1)
        except ConnectionResetError:
            message, descriptors = b"", []
        if not message:
            raise RocescopeError("the process that makes files has ended")
        error, number = json.loads(message)
        if error:
            raise OSError(error, os.strerror(error))
        return number, descriptors[0] if descriptors else -1

    def close(self) -> None:
        """End the other process, and remove files that are not complete."""
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_WITHIN_S)

    def __enter__(self) -> FileMaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MadeReplacement:
    """Like `Replacement`, with the right of the other process."""

    def __init__(self, maker: FileMaker, number: int, descriptor: int) -> None:
        self.descriptor = descriptor
        self._maker, self._number, self._kept = maker, number, False

    def keep(self) -> None:
        """Write everything to the disk and take the name, in place of an older file."""
        self._maker.finish(self._number, True)
        self._kept = True

    def close(self) -> None:
        """Close the file, and remove it if it was not kept."""
        os.close(self.descriptor)
        if not self._kept:
            with suppress(OSError, RocescopeError):
                self._maker.finish(self._number, False)


def maker_for(folder: Path, names: str, use: Use) -> FileMaker | None:
    """A maker of files for a process that is about to give up its privileges, if it needs one.

    Call it before other threads start. RocescopeError if the folder cannot be opened.
    """
    identity = becomes()
    if identity is None or can_write(identity, folder):
        return None
    return FileMaker(folder, names, use)
