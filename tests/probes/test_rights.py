"""Threads that empty rings or draw run before others, as long as they want to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from jobs import FAKE

from rocescope.probes.rights import NICE, lower_own, raise_own, unprivileged

# Threads that empty rings or draw run before others, as long as they want to.


def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_a_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.usefixtures("root")
def test_a_raised_thread_starts_raised_ones_which_may_lower_themselves():
    def raised():
        raise_own()
        own, started = nice(), in_a_thread(nice)

        def lowered():
            lower_own()
            return nice()

        return own, started, in_a_thread(lowered), nice()

    before = nice()
    wanted = min(NICE, before)
    assert in_a_thread(raised) == (wanted, wanted, 0, wanted)
    assert nice() == before


def test_lowering_what_was_not_raised_changes_nothing():
    before = nice()
    lower_own()
    assert nice() == max(0, before)


def test_without_the_right_nothing_happens(monkeypatch):
    def refused(*_):
        raise PermissionError

    before = nice()
    with monkeypatch.context() as patched:
        patched.setattr(os, "setpriority", refused)
        raise_own()
    assert nice() == before


# The user that a capture becomes, and where it may write.


def test_the_user_of_sudo_or_nobody():
    assert unprivileged({"SUDO_UID": "1234", "SUDO_GID": "99"}) == (1234, 99)
    nobody = unprivileged({})
    assert nobody.uid > 0 and nobody.gid > 0
    for wrong in ({"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "x", "SUDO_GID": "5"}):
        assert unprivileged(wrong) == nobody


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("mode", "owner", "expected"),
    [
        (0o700, 0, False),
        (0o755, 0, False),
        (0o700, 1234, True),
        (0o777, 0, True),
        (0o1777, 0, False),  # files of root there could not be replaced
        (0o1777, 1234, True),
    ],
)
def test_where_it_may_write(tmp_path, mode, owner, expected):
    os.chmod(tmp_path, mode)
    os.chown(tmp_path, owner, 0)
    code = f"""
import os
from pathlib import Path
from rocescope.probes.rights import Identity, can_write
before = os.getresuid(), os.getresgid(), os.getgroups()
os.chdir({str(tmp_path)!r})
print(can_write(Identity(1234, 1234), Path(".")))
assert before == (os.getresuid(), os.getresgid(), os.getgroups())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{expected}\n", done.stderr


# Privileges that are given up stay away, and a running capture continues without them.

STATUS = """
import json, os, subprocess, sys
def capabilities(path="/proc/self/status"):
    lines = dict(line.split(":\\t") for line in open(path).read().splitlines() if ":\\t" in line)
    return {k: int(lines[k], 16) for k in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")}
from rocescope.probes.rights import CLSACT, READING, WATCHING, WRITING, drop_privileges
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", STATUS + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("root")
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


@pytest.mark.usefixtures("root")
def test_nothing_comes_back():
    assert run(
        "drop_privileges(())\n"
        "left = drop_privileges(('CAP_SYS_ADMIN', 'CAP_BPF'))\n"
        "print(json.dumps([left, capabilities()['CapEff']]))"
    ) == [[], 0]


@pytest.mark.usefixtures("root")
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
