"""Users and capabilities of every thread of a process, as the kernel lists them."""

from pathlib import Path
from typing import NamedTuple

NUMBERS = {"CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2, "CAP_NET_ADMIN": 12}
NUMBERS |= {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}


class ThreadStatus(NamedTuple):
    name: str
    users: set[int]
    """Real, effective, saved and file system user."""
    groups: set[int]
    """The same of groups, and supplementary groups."""
    kept: set[str]
    """Capabilities in any of its sets; a number for an unexpected one."""
    no_new_privileges: bool


def status_of_threads(pid: int) -> list[ThreadStatus]:
    return [_status(path.read_text()) for path in Path(f"/proc/{pid}/task").glob("*/status")]


def _status(text: str) -> ThreadStatus:
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    mask = 0
    for kind in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
        mask |= int(lines[kind], 16)
    names = {number: name for name, number in NUMBERS.items()}
    return ThreadStatus(
        lines["Name"],
        {int(number) for number in lines["Uid"].split()},
        {int(number) for number in (lines["Gid"] + " " + lines["Groups"]).split()},
        {names.get(bit, str(bit)) for bit in range(64) if mask >> bit & 1},
        lines["NoNewPrivs"] == "1",
    )


def children_of(pid: int, word: str = "") -> list[int]:
    """Processes that a process has started and whose command line has `word`."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for path in found for child in path.read_text().split()]
    return [pid for pid in children if word in Path(f"/proc/{pid}/cmdline").read_text()]
