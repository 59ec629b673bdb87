"""Run every reproduction; exit code 1 when a figure left its band: `make reproductions`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "permutation",
    "queue_growth",
    "paper_figures",
    "all_to_all",
    "reactive",
    "failures",
    "pfc",
    "dcqcn",
    "mrc",
    "mrc_roce",
    "large_fabric",
    "captured_run",
    "slow_spine",
    "incast",
    "static_routes",
    "aggregation",
)


def main() -> int:
    failed = []
    for name in SCRIPTS:
        print(f"\n=== {name}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py"))]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nevery figure is within its band")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
