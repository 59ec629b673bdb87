"""Probes that stay attached while those who read them come and go, and the owners of their flows.

A session of the terminal UI begins anew when its packet filter changes. Attaching
anew would take privileges that `begin` has given up for the whole process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ..analyzer.errors import CaptureError
from ..analyzer.results.flow import Owner
from ..analyzer.track.tracker import FlowTracker
from ..analyzer.wire.registry import Registry
from .live import LiveOptions, LiveSource
from .owners.watch import OwnerWatch
from .rights.dropping import WATCHING, WRITING, drop_privileges
from .rights.priority import allow

_UPDATE_EVERY_S = 1.0
_SHARE_OF_TIME = 20
"""Owners are looked for again after this many times what it took, so many flows cost no more."""


class LiveProbes:
    """A live source and what tells the owners of queue pairs, attached once."""

    def __init__(self, interfaces: Sequence[str], options: LiveOptions) -> None:
        self.registry = Registry()
        self.source = LiveSource(interfaces, options, registry=self.registry)
        self.reasons: list[str] = []
        """What limits the knowledge of owners."""
        self._watch: OwnerWatch | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._begun = self._ended = False
        self._readers = 0
        self._due = 0.0

    @property
    def ended(self) -> bool:
        """Whether the probes were taken away."""
        return self._ended

    def begin(self, drop: bool = False) -> None:
        """Attach everything; the first call counts. Errors as those of `LiveSource`.

        drop: then give up the privileges of this thread, and so of those it starts
        later, that are not needed to read and to write files.
        """
        with self._lock:
            if self._ended:
                raise CaptureError("the probes were taken away: start rocescope live again")
            if self._begun:
                return
            try:
                self.source.check()
                self._watch_owners()  # takes a second, in which rings would overflow
                allow()
                self._stack.enter_context(self.source)
            except BaseException:
                self._stack.close()
                raise
            self._begun = True
        if drop:
            watching = WATCHING if self._watch is not None else ()
            drop_privileges(self.source.privileges() + WRITING + watching)

    def owners(self, tracker: FlowTracker) -> dict[int, Owner] | None:
        """Owners by flow index as known now, None when it is too early to look again.

        Pairs in the tracker what queue pairs prove: whoever calls must hold its lock.
        """
        began = time.monotonic()
        if self._watch is None:
            return None
        found: dict[int, Owner] = {}
        try:
            if began < self._due:
                self._watch.listen()
                return None
            self._watch.update()
            if len(self._watch.queue_pairs):
                found = self._watch.owners(tracker, self.registry.endpoints)
        except Exception as error:  # it ends what is known of owners, not the capture
            self._watch = None
            self.reasons.append(f"{type(error).__name__}: {error}")
        took = time.monotonic() - began
        self._due = began + max(_UPDATE_EVERY_S, _SHARE_OF_TIME * took)
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around every iteration over the source."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._ended and not self._readers:
                    self._stack.close()

    def end(self) -> None:
        """Detach for good; whoever reads is handed what is left in the rings."""
        with self._lock:
            self._ended = True
            self.source.stop()
            if not self._readers:
                self._stack.close()

    def _watch_owners(self) -> None:
        namespaces = {interface.namespace for interface in self.source.interfaces}
        try:
            self._watch = self._stack.enter_context(OwnerWatch({None, *namespaces}))
            self._watch.update()
            self.reasons += self._watch.reasons
        except Exception as error:
            self._watch = None
            self.reasons.append(f"{type(error).__name__}: {error}")
