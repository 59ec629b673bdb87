"""Watches the queue pairs of this host while a capture runs, and stores their owners in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import msgspec

from ...analyzer.errors import CaptureError
from ...analyzer.results.flow import Owner
from ...analyzer.track.tracker import FlowTracker
from ...analyzer.wire.registry import Endpoints
from ..hooks.interfaces import Interface, in_namespace
from ..sysfs import gids
from . import helper
from .join import local_addresses, owners_of
from .queue_pairs import MAX_DESTROYED, QueuePair

_STARTS_WITHIN_S = 60.0
"""It compiles probes first: seconds on a busy machine."""
_ANSWERS_WITHIN_S = 5.0
_ENDS_WITHIN_S = 5.0
_SILENT_S = 10.0
"""A request that is not answered for so long: the helper hangs, as on a file system that does."""
_REQUEST = b"u"
_NO_ANSWER = "the process that watches owners does not answer"


class OwnerWatch:
    """Watches queue pairs as far as this host allows.

    CaptureError when the helper has ended or does not answer; the capture continues without it.
    namespaces: namespaces of the captured interfaces, whose addresses belong to this
    host; None is the own one. Use it in one thread. Only `update(wait=True)` waits.
    """

    def __init__(self, namespaces: Iterable[str | None] = (None,)) -> None:
        self._namespaces = set(namespaces)
        self._known_addresses: set[str] = set()
        self.queue_pairs = KnownQueuePairs()
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self.lost = 0
        """Calls of libibverbs that were lost because the ring was full."""
        self._addresses()  # later it may need privileges that were given up
        self._asked, self._asked_at = 0, 0.0
        self._decode = msgspec.json.Decoder(helper.News).decode
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel: socket.socket | None = ours
        with theirs:
            # Its own session protects it from Ctrl-C and the end of the terminal.
            self._process = subprocess.Popen(
                [sys.executable, "-m", helper.__name__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                # A thread that starts before privileges are given up would keep them.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
        self._update(_STARTS_WITHIN_S)

    def listen(self) -> None:
        """Take in what the helper has sent."""
        self._take(0)

    def update(self, wait: bool = False) -> None:
        """Ask the helper to look around, and take in what it has sent.

        wait: also what it finds now, for some seconds at most.
        """
        if wait:
            self._update(_ANSWERS_WITHIN_S)
            return
        if not self._asked:
            self._ask()
        self.listen()
        silent = self._asked and time.monotonic() - self._asked_at > _SILENT_S
        if silent and self._channel is not None:
            self._end(_NO_ANSWER, 0)

    def _update(self, seconds: float) -> None:
        self._ask()
        ends = time.monotonic() + seconds
        while self._asked and self._channel is not None:
            left = ends - time.monotonic()
            if left <= 0:
                self._end(_NO_ANSWER, 0)
            self._take(left)

    def _ask(self) -> None:
        if self._channel is not None:
            self._asked += 1
            self._asked_at = time.monotonic()
            with suppress(OSError):  # an end is noticed when receiving
                self._channel.send(_REQUEST)

    def _take(self, seconds: float) -> None:
        """Take in what comes within this time, at least one message if any comes."""
        while self._channel is not None:
            self._channel.settimeout(seconds)
            try:
                message = self._channel.recv(helper.MESSAGE_BYTES)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                message = b""
            if not message:
                self._end("the process that watches owners has ended")
            news = self._decode(message)
            self.queue_pairs.note(news.changed)
            if news.answers:
                self._asked -= news.answers
                self.lost, self.reasons[:] = news.lost, news.reasons
            seconds = 0

    def _end(self, reason: str, patience_s: float = _ENDS_WITHIN_S) -> None:
        self._close(patience_s)
        raise CaptureError(reason)

    def owners(self, tracker: FlowTracker, endpoints: Endpoints) -> dict[int, Owner]:
        """Current owners by flow index; see `owners_of`."""
        self.update()
        return owners_of(self.queue_pairs, self._addresses(), tracker, endpoints)

    def _addresses(self) -> set[str]:
        """The current and previous addresses of this host."""
        for namespace in self._namespaces:
            try:
                self._known_addresses |= in_namespace(namespace, local_addresses)
            except CaptureError:  # it is gone, or may no longer be entered
                continue
        return self._known_addresses

    def close(self) -> None:
        """End the helper, which detaches its probes; known owners stay."""
        self._close(_ENDS_WITHIN_S)

    def _close(self, patience_s: float) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                with suppress(PermissionError):  # it has another user than this process now
                    self._process.kill()

    def __enter__(self) -> OwnerWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch_owners(
    interfaces: Iterable[Interface], stack: ExitStack, reasons: list[str]
) -> OwnerWatch | None:
    """The watch for these captured interfaces, until the stack closes; takes a second.

    reasons: gets the limits of the information on owners. None if nothing can be watched: the
    capture continues without owners.
    """
    try:
        namespaces = {None, *(interface.namespace for interface in interfaces)}
        watch = stack.enter_context(OwnerWatch(namespaces))
    except Exception as error:
        known = isinstance(error, CaptureError)
        reasons.append(str(error) if known else f"{type(error).__name__}: {error}")
        return None
    reasons += watch.reasons
    return watch


class KnownQueuePairs:
    """The queue pairs that the helper has told of, including the latest destroyed ones."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, str | None, int, int | None], QueuePair] = {}
        self._destroyed: dict[tuple[int, str | None, int, int | None], QueuePair] = {}

    def __iter__(self) -> Iterator[QueuePair]:
        yield from self._pairs.values()
        yield from self._destroyed.values()

    def __len__(self) -> int:
        return len(self._pairs) + len(self._destroyed)

    def note(self, changed: Iterable[QueuePair]) -> None:
        """Replace what was known of these queue pairs."""
        for pair in changed:
            key = (pair.pid, pair.device, pair.local_qp, pair.created_ns)
            if pair.destroyed_ns is None:
                self._pairs[key] = pair
                continue
            self._pairs.pop(key, None)
            self._destroyed[key] = pair
            if len(self._destroyed) > MAX_DESTROYED:
                del self._destroyed[next(iter(self._destroyed))]


# Information on queue pairs as comments of a capture file.

_CONNECTED = ("RC", "UC", "XRC_INI", "XRC_TGT")
_UPDATE_EVERY_S = 1.0
_MOST_ADDRESSES = 16


def owner_comment(pair: QueuePair) -> str:
    """One line about a queue pair: its number and address, its peer's, its process and rank.

    For example "owner: QP 0x000011 at 10.0.0.2 (mlx5_0) to QP 0x000022 at 10.0.0.1:
    pid 4711 python, rank 3". If only its device is known, all addresses of the device.
    """
    text = f"owner: QP 0x{pair.local_qp:06x}"
    here = [pair.local_gid] if pair.local_gid else gids(pair.device) if pair.device else []
    if here:
        text += f" at {' or '.join(here[:_MOST_ADDRESSES])}"
    if pair.device:
        text += f" ({pair.device})"
    if pair.remote_qp is not None:
        text += f" to QP 0x{pair.remote_qp:06x}"
        if pair.remote_gid:
            text += f" at {pair.remote_gid}"
    text += f": pid {pair.pid} {pair.command}"
    if pair.rank.rank is not None:
        text += f", rank {pair.rank.rank}"
    return text


class OwnerComments:
    """Comments on queue pairs, each given once; an error ends the comments, not the capture."""

    def __init__(self, watch: OwnerWatch) -> None:
        self._watch: OwnerWatch | None = watch
        self.ended: list[str] = []
        """Why owners are unknown from a point on."""
        self._told: set[str] = set()
        self._updated = float("-inf")

    def new(self, at_once: bool = False) -> list[str]:
        """New comments since the last call; updates at most once per second."""
        if self._watch is None:
            return []
        now = time.monotonic()
        try:
            if not at_once and now - self._updated < _UPDATE_EVERY_S:
                self._watch.listen()
                return []
            self._updated = now
            self._watch.update(wait=at_once)
            return self._untold(self._watch.queue_pairs)
        except Exception as error:
            self._watch = None
            self.ended = [f"owners of queue pairs are unknown from here on: {error}"]
            return self.ended

    def _untold(self, pairs: Iterable[QueuePair]) -> list[str]:
        found = []
        for pair in pairs:
            if pair.remote_qp is None and pair.type in _CONNECTED:
                continue  # no packet passes before it is connected
            comment = owner_comment(pair)
            if comment not in self._told:
                self._told.add(comment)
                found.append(comment)
        return found
