"""Files in folders that others may have filled: regular ones, whole, never more than a limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 256 << 20


def read_saved(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """The content of a file. OSError also for a pipe or device, which may have no end, and for a
    file of more than `most_bytes`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = file.read(most_bytes + 1) if found.st_size <= most_bytes else b""
    if len(data) > most_bytes or found.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB", str(path))
    return data
