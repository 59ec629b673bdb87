"""Collecting the answers of 24 switches over SSH from a real sshd on loopback (needs root).

Every switch is a key with a forced command that prints recorded answers of FRR. Printed are the
seconds of every run, the CPU time of this process, and the number of commands.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from answers import recorded
from sshd import LocalSshd, inventory

from rocescope.discovery.collect import collect
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.inventory import read_inventory
from rocescope.discovery.results import read_asked

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))


SWITCHES, RUNS = 24, 3
RECORDED = ("leaf1", "leaf2", "spine1", "spine2")


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        answers = recorded(folder) / "healthy"
        server = LocalSshd(folder)
        names = [f"switch{i}" for i in range(SWITCHES)]
        for i, switch in enumerate(names):
            as_name = RECORDED[i % len(RECORDED)]
            server.add_recorded(switch, answers, DIALECTS["frr"], as_name)
        os.environ["HOME"] = str(server.home)
        file = inventory(folder / "inventory.yaml", dict.fromkeys(names, "frr"))
        with server:
            for _ in range(RUNS):
                began, cpu = time.perf_counter(), time.process_time()
                collect(read_inventory(file, DIALECTS), folder / "raw")
                took, used = time.perf_counter() - began, time.process_time() - cpu
                asked = read_asked(folder / "raw").values()
                commands = sum(len(one.answers) for one in asked)
                silent = sum(bool(one.problem) for one in asked)
                print(
                    f"{SWITCHES} switches, {commands} commands: {took:.2f} s, "
                    f"{used:.2f} s of CPU in this process, {silent} without an answer"
                )


if __name__ == "__main__":
    main()
