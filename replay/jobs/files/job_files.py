"""The files of `--jobs`: each is read once, and all of a replay have a limit together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ....analyzer.errors import UsageError
from ..collectives import ALL_REDUCES
from ..graph import Graph
from .chakra import read_chakra, trace_files
from .goal import read_goal
from .json_file import read_json

MOST_BYTES = 1 << 28
"""Of all files together."""


class JobFile(NamedTuple):
    """What a file says of a job."""

    graph: Graph
    notes: tuple[str, ...] = ()
    """What the file leaves open."""
    priority: str = ""
    """Class of its data; empty: the file names none."""


class JobFiles:
    """Reads the files of the jobs of a replay, or of all cases of `--vary`."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left = self._most = most_bytes
        self._read: dict[tuple[str, str], JobFile] = {}

    def read(self, text: str, all_reduce: str) -> JobFile:
        """PATH.goal, PATH.json, or the prefix of Chakra traces, whose all-reduces are done by this
        algorithm. UsageError names the file."""
        key = text, all_reduce
        if key not in self._read:
            self._read[key] = self._from(Path(text), text, all_reduce)
        return self._read[key]

    def _from(self, path: Path, text: str, all_reduce: str) -> JobFile:
        alone = path.suffix in (".goal", ".json")
        if alone and not path.is_file():
            raise UsageError(f"--jobs: there is no file {path}")
        files = [path] if alone else trace_files(text)
        sizes = [file.stat().st_size for file in files]
        if 0 in sizes:
            raise UsageError(f"--jobs: {files[sizes.index(0)]} is empty")
        self._left -= sum(sizes)
        if self._left < 0:
            raise UsageError(
                f"--jobs: the files of jobs, up to {files[-1]}, are larger than {self._most:,} "
                "bytes together"
            )
        if path.suffix == ".goal":
            return JobFile(read_goal(path))
        if path.suffix == ".json":
            graph, priority = read_json(path)
            return JobFile(graph, priority=priority)
        return JobFile(*read_chakra(text, ALL_REDUCES[all_reduce]))
