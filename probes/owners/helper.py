"""The process that watches queue pairs: the only one that keeps the privileges for it.

It reads files and environments of any process, which may be slow, or hang on a file system of
another user. The capturing process only receives what it found: see `watch.py`.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import msgspec

from ..rights.dropping import READING, WATCHING, become_unprivileged
from .observer import Observer
from .queue_pairs import QueuePair

MESSAGE_BYTES = 1 << 17
"""More than the largest message."""
_PAIRS_PER_MESSAGE = 64
_LISTEN_EVERY_S = 0.1


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
        if select.select([channel], [], [], _LISTEN_EVERY_S)[0]:
            answers = len(channel.recv(MESSAGE_BYTES))
            if not answers:
                return
            observer.update()
        else:
            observer.listen()


if __name__ == "__main__":
    main()
