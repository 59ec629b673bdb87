"""Values in files of the cache: written atomically, checked when they are read."""

from __future__ import annotations

import contextlib
import marshal
import os
import zlib
from typing import Any

from .cache import create_own, read_own

_CHECKSUM_BYTES = 4


def store(value: Any, path: str) -> None:
    """Write a value of Python's own types; its folder must exist. Failures are ignored."""
    data = marshal.dumps(value)
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        with open(temporary, "wb", opener=create_own) as file:
            file.write(zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data)
        os.replace(temporary, path)


def stored(path: str) -> Any:
    """The value in a file; None when it is missing or damaged, or others can write to it."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        content = read_own(path)
        data = content[_CHECKSUM_BYTES:]
        if zlib.crc32(data) == int.from_bytes(content[:_CHECKSUM_BYTES], "little"):
            return marshal.loads(data)
    return None
