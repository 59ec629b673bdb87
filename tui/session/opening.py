"""Sessions on interfaces of this host, with or without a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...analyzer.logs.following import FollowedLogs
from ...analyzer.measures.ending import IDLE_AFTER_NS
from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.pipeline.threads import give_back_large_arrays
from ...probes.live import LiveOptions
from ...probes.live_analysis import warm_up
from ...probes.live_probes import LiveProbes
from ...probes.rights.priority import raise_own
from .feeds.feeds import Feed
from .feeds.live import LiveFeed
from .feeds.recording import RecordedFeed, Recording
from .session import Session


def open_live(
    interfaces: Sequence[str],
    options: LiveOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
    attach_now: bool = False,
    idle_ns: int = IDLE_AFTER_NS,
    job_logs: tuple[str, ...] = (),
) -> Session:
    """A session on interfaces of this host; its start attaches the probes.

    idle_ns: flows without a packet for this time are ended, see `measures.ending`. job_logs:
    patterns of the logs of a job, which may appear and grow later.

    attach_now: attach the probes here, then give up the privileges of this thread and of the
    threads it starts later: removed probes cannot be attached again. This thread draws the
    screens, so its priority is raised first.
    """
    give_back_large_arrays()
    chosen = options or LiveOptions()
    probes = LiveProbes(interfaces, chosen)
    logs = FollowedLogs(job_logs) if job_logs else None

    def make(keep: str | None) -> Feed:
        nonlocal probes
        if probes.ended and not attach_now:
            probes = LiveProbes(interfaces, chosen)
        feed = LiveFeed(probes, AnalyzeOptions(filter=keep, idle_ns=idle_ns), logs)
        session.on_close(probes.end)
        return feed

    session = Session(make, ",".join(interfaces), "live", (), clock)
    session.options = AnalyzeOptions(udp_ports=chosen.udp_ports, job_logs=job_logs)
    session.on_close(probes.end)
    if attach_now:
        warm_up(DEFAULT_WINDOW_NS)
        raise_own()
        probes.begin(drop=True)
        session.start()  # rings fill from now on: a thread empties them while screens are made
    return session


def open_recorded(
    interfaces: Sequence[str],
    options: LiveOptions | None,
    path: Path,
    clock: Callable[[], float] = time.monotonic,
    attach_now: bool = False,
    idle_ns: int = IDLE_AFTER_NS,
    job_logs: tuple[str, ...] = (),
) -> Session:
    """A session on interfaces of this host that is recorded in a pcapng file.

    attach_now, idle_ns, job_logs: as for `open_live`.
    """
    chosen = options or LiveOptions()
    recording = Recording(interfaces, chosen, path)
    reading = AnalyzeOptions(udp_ports=chosen.udp_ports, idle_ns=idle_ns, job_logs=job_logs)
    if attach_now:
        warm_up(DEFAULT_WINDOW_NS)
        raise_own()
        recording.begin(drop=True)

    def make(keep: str | None) -> Feed:
        return RecordedFeed(recording, replace(reading, filter=keep))

    session = Session(make, ",".join(interfaces), "live", (str(path),), clock)
    session.options = reading
    session.on_close(recording.stop)
    return session
