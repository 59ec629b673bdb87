"""Files in folders that others may have filled: regular ones, whole, never more than a limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import UsageError

MAX_BYTES = 256 << 20
_PART_BYTES = 1 << 20
_T = TypeVar("_T")


def in_binary(size_bytes: int) -> str:
    """A limit in words, such as `256 MiB`."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.10g} {unit}"
    return f"{size_bytes} bytes"


def check_size(path: Path, most_bytes: int) -> None:
    """UsageError for a file of more than `most_bytes`; none without the file."""
    if path.is_file() and path.stat().st_size > most_bytes:
        raise UsageError(f"{path}: larger than {in_binary(most_bytes)}")


def read_saved(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """The content of a file. UsageError names one that cannot be read, also a pipe or device, which
    may have no end, and a file of more than `most_bytes`."""
    try:
        return _content(path, most_bytes)
    except OSError as error:
        raise _unreadable(path, error) from None


def decoded(path: Path, kind: type[_T], what: str, empty: bytes | None = None) -> _T | None:
    """The JSON in a file; None without the file. UsageError as `read_saved`, and for other content
    than `what`. empty: stands for the content of an empty file; None: it is as none."""
    try:
        data = _content(path, MAX_BYTES) or empty
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not {what}: {error}") from None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}")


def _content(path: Path, most_bytes: int) -> bytes:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        parts, left = [], most_bytes + 1 if status.st_size <= most_bytes else 0
        # In parts: one read of the limit would take as much memory, whatever the size of the file.
        while part := file.read(min(left, _PART_BYTES)):
            parts.append(part)
            left -= len(part)
    data = b"".join(parts)
    if len(data) > most_bytes or status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {in_binary(most_bytes)}", str(path))
    return data
