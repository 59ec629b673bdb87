"""An analysis in tasks on processes of this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzer.errors import UsageError, require
from .progress import ProgressAs, steps_shown

if TYPE_CHECKING:
    from ...analyzer.pipeline.options import AnalyzeOptions
    from ...analyzer.results.analysis import Analysis


def in_tasks(
    paths: Sequence[str],
    options: AnalyzeOptions,
    cluster: str,
    work: Path | None,
    partitions: int | None,
    progress: ProgressAs,
) -> Analysis:
    """The analysis of captures, in tasks on `cluster`; errors as `analyze`.

    work: the folder that keeps the state; default a temporary one. partitions: default one per
    process.
    """
    require("pyarrow")
    from ...cluster.merge import merge
    from ...cluster.work import Work, make_plan, write_plan
    from ...cluster.workers import run_tasks, workers_of

    with closing(workers_of(cluster)) as workers:
        if work is None and not workers.here:
            raise UsageError("--cluster needs --work DIR, a folder that all machines can access")
        count = workers.processes if partitions is None else partitions
        plan = make_plan(paths, options, count)
        with _folder(work) as folder, steps_shown(progress) as tell:
            write_plan(Work(folder), plan)
            say = tell or (lambda what, done, total: None)
            try:
                with workers.errors():
                    run_tasks(folder, workers.executor, say)
                return merge(
                    folder,
                    flow_order=options.flow_order,
                    fabric=options.fabric,
                    dscp_priority=options.dscp_priority,
                    tell=say,
                )
            except KeyboardInterrupt:
                if work is not None:
                    text = f"rocescope: the same command resumes the analysis in {work}"
                    print(text, file=sys.stderr)
                raise


@contextmanager
def _folder(work: Path | None) -> Iterator[str]:
    if work is not None:
        yield str(work)
        return
    # On the disk, not in /tmp, which may be memory: rows need about a fifth of the captures.
    parent = os.environ.get("TMPDIR", "/var/tmp")
    _remove_abandoned(parent)
    folder, lock = _made(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


_PREFIX = "rocescope-tasks-"


def _made(parent: str) -> tuple[str, int | None]:
    """A new folder and its lock, which the kernel drops when this process ends in any way."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        try:
            lock = _locked(folder)
        except (FileNotFoundError, BlockingIOError):
            continue  # another run found it without a lock, and removes it
        except OSError:  # a file system without locks
            return folder, None
        if os.path.isdir(folder):
            return folder, lock
        os.close(lock)


def _remove_abandoned(parent: str) -> None:
    """Remove folders of runs of this user that were killed."""
    for folder in glob(os.path.join(escape(parent), f"{_PREFIX}*")):
        with suppress(OSError):  # in use, of another user, or gone
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: str) -> int:
    """A file descriptor that locks a folder of this user; OSError."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise PermissionError(folder)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
