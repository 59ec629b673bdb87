"""A recorded live session: probes write a pcapng file, and the session reads this file.

The buffer between probes and screens is the file, not memory: slow screens lose no packet,
and packets, time windows and replays work as on a capture.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ....analyzer.errors import RocescopeError
from ....analyzer.pipeline.options import AnalyzeOptions
from ....probes.files.capture_files import CaptureFiles
from ....probes.hooks.attach import gone_text
from ....probes.live import LiveOptions, LiveSource
from ....probes.owners.comments import OwnerComments
from ....probes.owners.watch import OwnerWatch
from ....probes.rights.dropping import become_unprivileged
from ....probes.rights.priority import allow, raise_own
from ..snapshots.snapshot import SourceState
from .feeds import CaptureFeed

POLL_S = 0.05


class Recording:
    """Probes and the file that they write, in a thread; outlives the feeds that read the file."""

    def __init__(self, interfaces: Sequence[str], options: LiveOptions, path: Path) -> None:
        self.path = path
        self.error = ""
        self._source = LiveSource(interfaces, options, to_blocks=True)
        self._owners: OwnerComments | None = None
        self._stack = ExitStack()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether packets are still written."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether the file is complete."""
        return self._thread is not None and not self._thread.is_alive()

    def begin(self, drop: bool = False) -> None:
        """Attach the probes and start to write; later calls do nothing. Errors as `LiveSource`.

        drop: become an unprivileged user once the file is open.
        """
        if self._thread is not None:
            return
        try:
            self._source.check()
            self._watch_owners()  # takes a second; the rings would overflow
            allow()
            self._stack.enter_context(self._source)
        except BaseException:
            self._stack.close()
            raise
        known = self._owners.new() if self._owners is not None else []
        files = CaptureFiles(
            self.path, self._source.head(), self._source.loss_by_tap, comments=known
        )
        if drop:  # before a thread starts: it would keep privileges
            become_unprivileged(self._source.privileges())
        self._thread = threading.Thread(
            target=self._write, args=(files,), name="rocescope-recording", daemon=True
        )
        self._thread.start()

    def _write(self, files: CaptureFiles) -> None:
        raise_own()
        try:
            for blocks in self._source.blocks(POLL_S):
                files.write(blocks)
                self._tell_owners(files)
        except (RocescopeError, OSError) as error:
            self.error = str(error)
        finally:
            self._source.finish()
            self._tell_owners(files, at_once=True)
            files.close()

    def _watch_owners(self) -> None:
        namespaces = {interface.namespace for interface in self._source.interfaces}
        try:
            watch = self._stack.enter_context(OwnerWatch({None, *namespaces}))
        except Exception:  # owners stay unknown; the recording continues
            return
        self._owners = OwnerComments(watch)

    def _tell_owners(self, files: CaptureFiles, at_once: bool = False) -> None:
        if self._owners is not None:
            files.comment(self._owners.new(at_once))

    def state(self, seen: SourceState) -> SourceState:
        """The state of the probes, in addition to the counts of the file."""
        loss = self._source.loss()
        gone = [interface.label for interface in self._source.gone()]
        ended = self._owners.ended if self._owners is not None else []
        return replace(
            seen,
            name=",".join(interface.label for interface in self._source.interfaces),
            kind="live",
            error=self.error or gone_text(gone),
            dropped=loss.ring_full,
            warnings=(*seen.warnings, *self._source.others.lines(), *ended),
            recording=self.path.name if self.running else "",
        )

    def stop(self) -> None:
        """Detach the probes and complete the file."""
        self._source.stop()
        if self._thread is not None:
            self._thread.join()
        self._stack.close()


class RecordedFeed(CaptureFeed):
    """Reads the file of a recording, to the end of the recording."""

    kind = "live"

    def __init__(self, recording: Recording, options: AnalyzeOptions) -> None:
        recording.begin()
        follow = not recording.ended
        super().__init__([str(recording.path)], replace(options, follow=follow))
        self._recording, self._follows = recording, follow

    def read(self) -> None:
        """Read every packet that was or will be written, until `stop`."""
        if self._follows:
            threading.Thread(target=self._end, name="rocescope-end", daemon=True).start()
        super().read()

    def _end(self) -> None:
        while self._recording.running:
            time.sleep(POLL_S)
        self.end_following()

    def state(self) -> SourceState:
        """Counts of the file, and losses of the probes."""
        return self._recording.state(super().state())
