"""GOAL schedules, the text input of LogGOPSim.

    num_ranks 2
    rank 0 {
      l1: calc 100 cpu 0
      l2: send 8b to 1 tag 5
      l2 requires l1
    }
    rank 1 { ... l3: recv 8b from 0 tag 5 ... }

Source: Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language", ICPP 2009; Hoefler,
Schneider, Lumsdaine, "LogGOPSim", HPDC 2010, and the schedules published with it. `calc` counts
nanoseconds. `requires`: after the end of the other task; `irequires`: after its start. `nic` and
the sizes of receives are ignored.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..graph import Graph
from ..tasks import Tasks

MOST_RANKS = 1 << 16
MOST_LINE = 1 << 12
_TASK = re.compile(
    r"(?:(\w+)\s*:\s*)?(?:(send)\s+(\d+)b\s+to\s+(\d+)|(recv)\s+(\d+)b\s+from\s+(\d+)|(calc)\s+(\d+))"
    r"((?:\s+(?:tag|cpu|nic)\s+\d+)*)",
    re.ASCII,
)
_REQUIRES = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)", re.ASCII)
_RANK = re.compile(r"rank\s+(\d+)\s*\{", re.ASCII)
_NUM_RANKS = re.compile(r"num_ranks\s+(\d+)", re.ASCII)
_NS_PS = 1000


def read_goal(path: Path) -> Graph:
    """The graph of a schedule. UsageError names the file and the line."""
    tasks: Tasks | None = None
    known: dict[str, int] = {}
    starts: list[tuple[int, int, int, str]] = []
    after: dict[int, list[int]] = {}
    rank, seen = -1, set[int]()
    with path.open(encoding="utf-8", errors="replace") as file:
        number = 0
        while text := file.readline(MOST_LINE):
            number += 1
            if len(text) == MOST_LINE and text[-1] != "\n":
                raise Tasks(path.name, 0).fail(
                    f"line {number} is longer than {MOST_LINE - 1:,} characters"
                )
            line = re.sub(r"/\*.*?\*/", " ", text).partition("//")[0].strip()
            where = f"line {number}"
            if not line:
                continue
            if tasks is None:
                found = _NUM_RANKS.fullmatch(line)
                if (
                    found is None
                    or not 0 < len(found[1]) < 9
                    or not 2 <= int(found[1]) <= MOST_RANKS
                ):
                    raise Tasks(path.name, 0).fail(
                        f"{where}: a schedule begins with num_ranks 2 to {MOST_RANKS:,}"
                    )
                tasks = Tasks(path.name, int(found[1]))
                continue
            if rank < 0:
                found = _RANK.fullmatch(line)
                if found is None or len(found[1]) > 8 or int(found[1]) >= tasks.ranks:
                    raise tasks.fail(f"{where}: expected rank 0 to {tasks.ranks - 1} and a brace")
                rank, known = int(found[1]), {}
                if rank in seen:
                    raise tasks.fail(f"{where}: rank {rank} is given twice")
                seen.add(rank)
                continue
            if line == "}":
                rank = -1
                continue
            wait = _REQUIRES.fullmatch(line)
            if wait is not None:
                for label in (wait[1], wait[3]):
                    if label not in known:
                        raise tasks.fail(
                            f"{where}: rank {rank} has no task {label} above this line"
                        )
                one, other = known[wait[1]], known[wait[3]]
                if wait[2] == "irequires":
                    starts.append((rank, one, other, where))
                else:
                    tasks.wait(one, other)
                    after.setdefault(one, []).append(other)
                continue
            found = _TASK.fullmatch(line)
            if found is None:
                raise tasks.fail(f"{where}: not a task of a schedule")
            label = found[1] or f"#{number}"
            if label in known:
                raise tasks.fail(f"{where}: rank {rank} has two tasks {label}")
            known[label] = _task(tasks, rank, found, f"{where} ({label})")
    if tasks is None:
        raise Tasks(path.name, 0).fail("a schedule begins with num_ranks")
    if rank >= 0:
        raise tasks.fail(f"rank {rank} has no closing brace")
    # What begins with a task waits for a computation of no time that precedes the task.
    begins: dict[int, int] = {}
    for of, _, other, name in starts:
        if other not in begins:
            begin = begins[other] = tasks.compute(of, 0, name)
            tasks.wait(other, begin)
            for before in after.get(other, []):
                tasks.wait(begin, before)
    for _, one, other, _ in starts:
        tasks.wait(begins.get(one, one), begins[other])
    return tasks.graph()


def _task(tasks: Tasks, rank: int, found: re.Match[str], name: str) -> int:
    values = re.findall(r"(tag|cpu|nic)\s+(\d+)", found[10])
    numbers = [found[3], found[4], found[6], found[7], found[9], *(text for _, text in values)]
    if any(text is not None and len(text) > 18 for text in numbers):
        raise tasks.fail(f"{name}: a number is too large")
    told = {key: int(text) for key, text in values}
    tag = told.get("tag", 0)
    if found[2]:
        return tasks.send(rank, int(found[4]), int(found[3]), name, tag)
    if found[5]:
        return tasks.receive(rank, int(found[7]), tag, name)
    return tasks.compute(rank, int(found[9]) * _NS_PS, name, told.get("cpu", 0))
