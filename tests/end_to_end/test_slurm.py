"""The script for SLURM on a real SLURM of one node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import SPRAYED

from rocescope import cli

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=node(127.0.0.1)
NodeName=node NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=node Default=YES
SlurmUser=root
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
MessageTimeout=100
"""
"""Without memory of the node no job asks for memory."""
# In namespaces of its own: ports are free, and all processes end with the first one.
RUN = """\
set -e
hostname node
ip link set lo up
ip address add 10.0.0.1/32 dev lo  # with 127.0.0.1 alone SLURM finds no address to listen at
cd {folder}
export SLURM_CONF={folder}/slurm.conf
munged --foreground --force --key-file=key --socket=munge.sock --pid-file=munge.pid \
  --log-file=munge.log --seed-file=seed &
daemons=$!
until [ -S munge.sock ]; do kill -0 $daemons; sleep 0.1; done
slurmctld -D -c >slurmctld.log 2>&1 &
daemons="$daemons $!"
slurmd -D -c >slurmd.log 2>&1 &
daemons="$daemons $!"
until sinfo --noheader --format=%T 2>/dev/null | grep -q idle; do kill -0 $daemons; sleep 0.1; done
sh job.sh
until left=$(squeue --noheader) && [ -z "$left" ]; do kill -0 $daemons; sleep 0.1; done
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
def test_arrays_of_slurm_give_the_result_of_one_process(
    tmp_path: Path,
    need_tool: Callable[[str], str],
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    for tool in ("slurmctld", "slurmd", "munged", "unshare"):
        need_tool(tool)
    assert cli.run(["analyze", *SPRAYED[:2], "--format", "json"]) == 0
    expected = capfdbinary.readouterr().out
    work = tmp_path / "100 % of it"
    planned = ["cluster", "plan", *SPRAYED[:2], "--work", str(work), "--partitions", "2"]
    assert cli.run(planned) == 0
    command = f"{shlex.quote(sys.executable)} -m rocescope"
    assert cli.run(["cluster", "sbatch", "--work", str(work), "--command", command]) == 0
    (tmp_path / "job.sh").write_bytes(capfdbinary.readouterr().out)
    (tmp_path / "slurm.conf").write_text(CONFIGURATION.format(folder=tmp_path))
    (tmp_path / "key").write_bytes(os.urandom(1024))
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "state").mkdir()
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(
            [
                *("unshare", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", RUN.format(folder=shlex.quote(str(tmp_path)))),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=900,
        )
    printed = "".join(path.read_text() for path in work.glob("slurm-*.out"))
    assert not printed, printed
    assert (work / "results" / "summary.json").read_bytes() == expected
    assert len(list(work.glob("slurm-*.out"))) == 5
