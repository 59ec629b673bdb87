"""The process that watches queue pairs: its end and its privileges."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import status_of_threads
from waiting import until

from rocescope.probes.owners.watch import OwnerWatch

pytestmark = pytest.mark.usefixtures("root", "libibverbs")


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


def test_it_has_an_unprivileged_user_and_can_only_watch():
    with OwnerWatch() as watch:
        threads = status_of_threads(watch._process.pid)
    assert threads
    for status in threads:
        assert 0 not in status.users and 0 not in status.groups
        assert status.kept == {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}
        assert status.no_new_privileges
