"""Files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..analyzer.errors import RocescopeError
from ..probes.replacement import Replacement

if TYPE_CHECKING:
    from ..probes.file_maker import FileMaker, MadeReplacement

_MAKERS: list[FileMaker] = []
"""Processes that make the files in their folders; this process may not."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name only when all data is on disk.

    A device or pipe is written directly. RocescopeError when it cannot be written.
    """
    try:
        if path.is_dir():
            raise RocescopeError(f"cannot write {path}: it is a folder, give a file name")
        maker = next((maker for maker in _MAKERS if maker.covers(path)), None)
        if maker is not None:
            with _kept(maker.replacement(path)) as file:
                yield file
        elif path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
        else:
            path = target(path)
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            with _kept(Replacement(path.name, folder)) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, PermissionError) and _MAKERS:
            reason += f"; root's rights are kept only to write in {_MAKERS[0].folder}"
        if isinstance(error, FileExistsError) and _MAKERS:
            reason += "; root's rights are kept only to make new files: choose another name"
        raise RocescopeError(f"cannot write {path}: {reason}") from None


@contextmanager
def made_by(maker: FileMaker | None) -> Iterator[None]:
    """Within it, `whole_file` leaves the files in the folder of this maker to it."""
    makers = [maker] if maker is not None else []
    _MAKERS.extend(makers)
    try:
        yield
    finally:
        for known in makers:
            _MAKERS.remove(known)


@contextmanager
def _kept(new: Replacement | MadeReplacement) -> Iterator[BinaryIO]:
    try:
        with os.fdopen(new.descriptor, "wb", closefd=False) as file:
            yield file
        new.keep()
    finally:
        new.close()


def target(path: Path) -> Path:
    """The file behind a link, which keeps pointing to it.

    The kernel follows the link. In a folder like /tmp links of others are refused, as most kernels
    do (fs.protected_symlinks).
    """
    if not path.is_symlink():
        return path
    link, folder = path.lstat(), path.parent.stat()
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and link.st_uid not in (os.geteuid(), folder.st_uid):
        raise PermissionError(errno.EACCES, "a link of another user in a world-writable folder")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    finally:
        os.close(handle)
