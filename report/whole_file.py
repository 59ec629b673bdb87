"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..analyzer.errors import RocescopeError


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name only when all data is on disk.

    It is written under a temporary name in the same folder, so the rename is
    atomic; a device or pipe is written directly. RocescopeError when it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            if path.is_dir():
                raise RocescopeError(f"cannot write {path}: it is a folder, give a file name")
            with path.open("wb") as device:
                yield device
            return
        with _replacing(path) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RocescopeError(f"cannot write {path}: {reason}") from None


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    import tempfile  # loads slowly, and every command imports this module

    path = _target(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _mode(path))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _target(path: Path) -> Path:
    """The file behind a link, which keeps pointing to it.

    The kernel follows the link, which it refuses for links of others in /tmp.
    """
    if not path.is_symlink():
        return path
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    finally:
        os.close(handle)


def _mode(path: Path) -> int:
    """The permissions of the file to replace, or those of a new file."""
    with suppress(OSError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
