"""Privileges that are given up stay away, and a running capture continues without them."""

import json
import subprocess
import sys

import pytest
from jobs import FAKE

pytestmark = pytest.mark.usefixtures("root")

STATUS = """
import json, os, subprocess, sys
def capabilities(path="/proc/self/status"):
    lines = dict(line.split(":\\t") for line in open(path).read().splitlines() if ":\\t" in line)
    return {k: int(lines[k], 16) for k in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")}
from rocescope.probes.rights.dropping import CLSACT, READING, WATCHING, WRITING, drop_privileges
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", STATUS + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("keep", "numbers"),
    [
        ("READING", {39}),
        ("READING + WATCHING", {39, 38, 19, 2}),
        ("READING + WRITING + CLSACT", {39, 1, 12}),
        ("()", set()),
    ],
)
def test_what_is_left(keep, numbers):
    left, own, childs = run(
        f"left = drop_privileges({keep})\n"
        "own = capabilities()\n"
        "child = subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True)\n"
        "lines = dict(l.split(':\\t') for l in child.stdout.splitlines() if ':\\t' in l)\n"
        "print(json.dumps([left, own, int(lines['CapEff'], 16)]))"
    )
    mask = sum(1 << number for number in numbers)
    assert own == {"CapEff": mask, "CapPrm": mask, "CapInh": 0, "CapAmb": 0, "CapBnd": mask}
    assert childs & ~mask == 0
    assert len(left) == len(numbers)


def test_nothing_comes_back():
    assert run(
        "drop_privileges(())\n"
        "left = drop_privileges(('CAP_SYS_ADMIN', 'CAP_BPF'))\n"
        "print(json.dumps([left, capabilities()['CapEff']]))"
    ) == [[], 0]


@pytest.mark.thorough
@pytest.mark.usefixtures("libibverbs")
def test_watching_queue_pairs_goes_on():
    """Events come in, ranks of other users' processes are read, new files are watched."""
    code = f"""
from rocescope.probes.owners.queue_pairs import QueuePairs
from rocescope.probes.owners.uprobes import Uprobes
with Uprobes() as probes:
    drop_privileges(READING + WATCHING)
    job = subprocess.Popen(
        [sys.executable, {str(FAKE)!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={{**os.environ, "RANK": "3"}},
    )
    job.stdin.write('["create", 4242, {{}}]\\n'); job.stdin.flush()
    assert job.stdout.readline() == "true\\n"
    pairs = QueuePairs()
    pairs.note(probes.read())
    lost, found = probes.lost, probes.refresh()
    job.communicate()
    mine = [p for p in pairs if p.pid == job.pid]
print(json.dumps([[p.local_qp for p in mine], [p.rank.rank for p in mine], lost, found]))
"""
    assert run(code) == [[4242], [3], 0, []]
