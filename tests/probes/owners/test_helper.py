"""What the helper process knows of queue pairs, without the process."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Job
from processes import status_of_threads
from waiting import until

from rocescope.analyzer.errors import CaptureError
from rocescope.probes.owners import helper as observer
from rocescope.probes.owners.helper import Observer
from rocescope.probes.owners.watch import OwnerWatch

# What the helper process knows of queue pairs, without the process.


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_killed_process_owns_nothing_more():
    job = Job(5)
    with Observer() as watch:
        job.connect(0x31, 0x61)
        watch.update()
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [None]
        job.kill()
        watch.queue_pairs.bury(1)
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [1]


@pytest.mark.usefixtures("root", "libibverbs")
def test_what_cannot_be_watched_is_said(monkeypatch):
    def refuse():
        raise CaptureError("no libibverbs to watch: install libibverbs1")

    monkeypatch.setattr(observer, "Uprobes", refuse)
    with Observer() as watch:
        watch.update()
        assert watch.reasons[0] == "no libibverbs to watch: install libibverbs1"
        assert watch.lost == 0


# The process that watches queue pairs: its end and its privileges.


@pytest.mark.usefixtures("root", "libibverbs")
def test_the_helper_ends_with_the_process_that_started_it():
    code = (
        "from rocescope.probes.owners.watch import OwnerWatch\n"
        "watch = OwnerWatch(); print(watch._process.pid, flush=True); input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    helper = int(process.stdout.readline())
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{helper}/exe").exists())


@pytest.mark.usefixtures("root", "libibverbs")
def test_it_has_an_unprivileged_user_and_can_only_watch():
    with OwnerWatch() as watch:
        threads = status_of_threads(watch._process.pid)
    assert threads
    for status in threads:
        assert 0 not in status.users and 0 not in status.groups
        assert status.kept == {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}
        assert status.no_new_privileges
