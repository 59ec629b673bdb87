"""Captures of a few kB that once took minutes or gigabytes: a report in bounded memory.

`tests/data/hostile/make.py` makes them and says what each is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from examples import first

MEGABYTES = 400
"""Largest memory of a run; the kinds took 854 MB to more than 9 GB."""
# ru_maxrss would begin with the memory of the test process, which it is forked from.
ANALYZED = """
import pathlib, re, sys
from rocescope import cli
code = cli.run(["analyze", "--progress", "none", "--format", "json", sys.argv[1]])
status = pathlib.Path("/proc/self/status").read_text()
peak = int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1]) // 1024
print(f"peak {peak} MB", file=sys.stderr)
sys.exit(code)
"""
READ_IN_PART = "could not be read completely; the report covers the rest"
CAPTURES = {
    "bomb.pcap": (4, None, READ_IN_PART),
    "many_taps.pcapng": (0, 800, None),
    "most_interfaces.pcapng": (0, 300, None),
    "names.pcapng": (0, 60, None),
    "owner_comments.pcapng": (0, 20, None),
    "ranks.pcapng": (0, 20, None),
    "set_back.pcap": (0, 100, None),
    "wild_time.pcapng": (0, 60, None),
    "zeros.pcap": (4, 1, READ_IN_PART),
}
"""Exit code, RoCE packets (None: a part of them) and the message of each."""


def test_each_capture_has_its_outcome(data: Path) -> None:
    found = {path.name.removesuffix(".zst") for path in (data / "hostile").glob("*.zst")}
    assert found == CAPTURES.keys()


@pytest.mark.parametrize("name", first(4, CAPTURES))
def test_it_ends_with_what_was_read(data: Path, name: str) -> None:
    code, packets, message = CAPTURES[name]
    path = data / "hostile" / f"{name}.zst"
    assert path.stat().st_size < 20_000
    done = subprocess.run(
        [sys.executable, "-c", ANALYZED, str(path)], capture_output=True, text=True, check=False
    )
    *lines, peak = done.stderr.splitlines()
    lines = [line for line in lines if "compiling kernels" not in line]
    assert done.returncode == code, done.stderr
    assert lines == ([] if message is None else [f"rocescope: {name}.zst {message}"])
    assert int(peak.split()[1]) < MEGABYTES
    (capture,) = json.loads(done.stdout)["captures"]
    assert capture["roce_packets"] == packets or (packets is None and capture["roce_packets"] > 0)
