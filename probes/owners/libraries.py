"""Copies of libibverbs: on this host, and in the containers of running processes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_NAME = "libibverbs.so.1"
_FOLDERS = (
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/local/lib",
)
_MAPPED = re.compile(r"^\S+ r\S+ \S+ \S+ \d+ +(/\S*/libibverbs\.so\.1\S*)$", re.MULTILINE)

_MOST_MAPS_CHARACTERS = 4 << 20
"""A process has at most 65,530 mappings (vm.max_map_count), of some 100 characters."""
_MOST_COPIES = 4
"""Copies of one process that are looked at: a process uses one."""


def installed_libraries() -> list[str]:
    """Copies of libibverbs in the standard folders of this host, each once."""
    return _each_once(os.path.join(folder, _NAME) for folder in _FOLDERS)


def mapped_libraries(proc: str = "/proc") -> list[str]:
    """Copies of libibverbs that running processes use, by paths that this process can open.

    Containers have their own files: their paths go through `/proc/PID/root`.
    """
    return _each_once(_mapped_paths(proc))


def all_libraries(proc: str = "/proc") -> list[str]:
    """Installed copies and those in use, each file once."""
    return _each_once((*installed_libraries(), *mapped_libraries(proc)))


def file_key(path: str) -> tuple[int, int] | None:
    """The identity of a file: (device, inode); None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _mapped_paths(proc: str) -> Iterator[str]:
    for process in Path(proc).iterdir():
        if not process.name.isdigit():
            continue
        try:
            with open(process / "maps", encoding="utf-8", errors="replace") as maps:
                paths = set(_MAPPED.findall(maps.read(_MOST_MAPS_CHARACTERS)))
        except OSError:
            continue  # it ended, or belongs to another user
        for path in sorted(paths)[:_MOST_COPIES]:
            yield f"{process}/root{path}"


def _each_once(paths: Iterable[str]) -> list[str]:
    found: dict[tuple[int, int], str] = {}
    for path in paths:
        key = file_key(path)
        if key is not None:
            found.setdefault(key, os.path.realpath(path) if "/root/" not in path else path)
    return list(found.values())
