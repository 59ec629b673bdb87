"""Values in files of the cache: written atomically, checked when they are read."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import sys
import zlib
from functools import cache
from typing import Any

from .cache import create_own, read_own

_CHECKSUM_BYTES = 4


def store(value: Any, path: str) -> None:
    """Write a value of Python's own types; its folder must exist. Failures change nothing."""
    data = marshal.dumps(value)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb", opener=create_own) as file:
            file.write(zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say_full(os.path.dirname(os.path.dirname(path)))


@cache
def _say_full(folder: str) -> None:
    """Once: later runs compile again, which takes minutes."""
    with contextlib.suppress(OSError, AttributeError):  # there may be no standard error
        print(
            f"rocescope: compiled kernels are not cached in {folder}: no space left",
            file=sys.stderr,
        )


def stored(path: str) -> Any:
    """The value in a file; None when it is missing or damaged, or others can write to it."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        content = read_own(path)
        data = content[_CHECKSUM_BYTES:]
        if zlib.crc32(data) == int.from_bytes(content[:_CHECKSUM_BYTES], "little"):
            return marshal.loads(data)
    return None
