"""Probes that stay attached while their readers change, and the owners of their flows.

A session of the terminal UI restarts when its packet filter changes. To attach the probes
again would need privileges that `begin` has given up for the whole process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ..analyzer.errors import CaptureError
from ..analyzer.results.flow import Owner
from ..analyzer.track.tracker import FlowTracker
from ..analyzer.wire.registry import MOST_ADDRESSES, Endpoints, Registry
from .live import LiveOptions, LiveSource
from .owners.watch import OwnerWatch, watch_owners
from .rights import allow, become_unprivileged

_UPDATE_EVERY_S = 1.0
_SHARE_OF_TIME = 20
"""Minimum interval between updates of owners, in multiples of the duration of an update."""


class LiveProbes:
    """A live source and the probes for owners of queue pairs, attached once."""

    def __init__(self, interfaces: Sequence[str], options: LiveOptions) -> None:
        self.registry = Registry(Endpoints(most=MOST_ADDRESSES))
        self.source = LiveSource(interfaces, options, registry=self.registry)
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self._watch: OwnerWatch | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._begun = self._ended = False
        self._readers = 0
        self._due = 0.0

    @property
    def ended(self) -> bool:
        """Whether the probes were removed."""
        return self._ended

    def warnings(self) -> tuple[str, ...]:
        """Programs of others before the probes, and limits of the information on owners."""
        unknown = [f"owners of queue pairs may be unknown: {reason}" for reason in self.reasons]
        return (*self.source.others.lines(), *unknown)

    def begin(self, drop: bool = False) -> None:
        """Attach everything; later calls do nothing. Errors as of `LiveSource`.

        drop: then become an unprivileged user, with the privileges that reading needs.
        """
        with self._lock:
            if self._ended:
                raise CaptureError("the probes were removed: start rocescope live again")
            if self._begun:
                return
            try:
                self.source.check()
                # Before the probes: it takes a second, and the rings would overflow.
                self._watch = watch_owners(self.source.interfaces, self._stack, self.reasons)
                allow()
                self._stack.enter_context(self.source)
            except BaseException:
                self._stack.close()
                raise
            self._begun = True
        if drop:
            become_unprivileged(self.source.privileges())

    def owners(self, tracker: FlowTracker) -> dict[int, Owner] | None:
        """Current owners by flow index; None if the last update is too recent.

        Pairs connections in the tracker by the queue pairs: the caller must hold its lock.
        """
        began = time.monotonic()
        if self._watch is None:
            return None
        owners: dict[int, Owner] = {}
        try:
            if began < self._due:
                self._watch.listen()
                return None
            self._watch.update()
            if len(self._watch.queue_pairs):
                owners = self._watch.owners(tracker, self.registry.endpoints)
        except Exception as error:  # ends the updates of owners, not the capture
            self._watch = None
            self.reasons.append(f"{type(error).__name__}: {error}")
        took = time.monotonic() - began
        self._due = began + max(_UPDATE_EVERY_S, _SHARE_OF_TIME * took)
        return owners

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
        """Detach permanently; the reader still gets the rest of the rings."""
        with self._lock:
            self._ended = True
            self.source.stop()
            if not self._readers:
                self._stack.close()
