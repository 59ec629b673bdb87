"""The process that observes queue pairs of this host with the privileges for it.

It reads files and environments of any process, which may be slow, or hang on a file system of
another user. The capturing process only receives what it found: see `watch.py`.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress

import msgspec

from ...analyzer.errors import CaptureError
from ..rights import READING, WATCHING, become_unprivileged
from .nldev import dump_queue_pairs
from .queue_pairs import QueuePair, QueuePairs, rdma_tool, read_resources
from .uprobes import Uprobes

# All sources of queue pairs, kept up to date: the work of the helper process.

_LOOK_AROUND_EVERY_S = 5.0
_LISTEN_EVERY_S = 0.1


class Observer:
    """Watches queue pairs as far as this host allows."""

    def __init__(self) -> None:
        self.queue_pairs = QueuePairs()
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self._uprobes: Uprobes | None = None
        try:
            self._uprobes = Uprobes()
        except CaptureError as error:
            self.reasons.append(str(error))
        self._looked_around = self._heard = float("-inf")

    @property
    def lost(self) -> int:
        """Calls of libibverbs that were lost because the ring was full."""
        return self._uprobes.lost if self._uprobes is not None else 0

    def listen(self) -> None:
        """Process new calls; call it often, so that short-lived processes have a rank."""
        if time.monotonic() - self._heard >= _LISTEN_EVERY_S:
            self._hear()

    def _hear(self) -> None:
        self._heard = time.monotonic()
        if self._uprobes is not None:
            self.queue_pairs.note(self._uprobes.read())

    def update(self) -> None:
        """Process new events."""
        self._hear()
        now = time.monotonic()
        if now - self._looked_around < _LOOK_AROUND_EVERY_S:
            return
        first = self._looked_around < 0
        self._looked_around = now
        if self._uprobes is not None and not first:
            self._uprobes.refresh()
        rows, reason = read_resources() if rdma_tool() else dump_queue_pairs()
        if first and reason is not None:
            self.reasons.append(reason)
        self.queue_pairs.merge(rows, time.time_ns())
        self.queue_pairs.bury(time.time_ns())

    def close(self) -> None:
        """Detach the probes; known owners stay."""
        if self._uprobes is not None:
            self.queue_pairs.note(self._uprobes.read())
            self._uprobes.close()
            self._uprobes = None

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


MESSAGE_BYTES = 1 << 17
"""More than the largest message."""
_PAIRS_PER_MESSAGE = 64
_HELPER_LISTEN_EVERY_S = 0.1


class News(msgspec.Struct, frozen=True):
    """A message to the capturing process."""

    changed: list[QueuePair] = []
    """Queue pairs that are new or have changed since the last message."""
    answers: int = 0
    """Number of requests that are answered with this message."""
    lost: int = 0
    """Calls of libibverbs that were lost because the ring was full."""
    reasons: list[str] = []
    """Limits of the information on owners."""


def main() -> None:
    """Send news until the other end of standard input, a socket, is closed."""
    channel = socket.socket(fileno=0)
    with Observer() as observer:
        observer.update()
        become_unprivileged(READING + WATCHING)
        with suppress(BrokenPipeError, ConnectionResetError):
            _serve(channel, observer)


def _serve(channel: socket.socket, observer: Observer) -> None:
    encode = msgspec.json.Encoder().encode
    answers = 0
    while True:
        changed = observer.queue_pairs.changes()
        while len(changed) > _PAIRS_PER_MESSAGE:
            channel.send(encode(News(changed[:_PAIRS_PER_MESSAGE])))
            del changed[:_PAIRS_PER_MESSAGE]
        if changed or answers:
            channel.send(encode(News(changed, answers, observer.lost, observer.reasons)))
        answers = 0
        if select.select([channel], [], [], _HELPER_LISTEN_EVERY_S)[0]:
            answers = len(channel.recv(MESSAGE_BYTES))
            if not answers:
                return
            observer.update()
        else:
            observer.listen()


if __name__ == "__main__":
    main()
