"""Messages from workers to the app. Newer messages replace older ones in the queue."""

from __future__ import annotations

from textual.message import Message

from ..analyzer.results.flow import Flow
from .session.snapshots.snapshot import FlowKey, Snapshot


class Newest(Message, bubble=False):
    """A message that makes older ones of its kind superfluous."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, type(self))


class SnapshotReady(Newest, bubble=False):
    """A new snapshot was made, and the whole record of the selected flow."""

    def __init__(self, snapshot: Snapshot, record: Flow | None) -> None:
        super().__init__()
        self.snapshot, self.record = snapshot, record


class DiagnosisReady(Message, bubble=False):
    """The session has another diagnosis."""


class FocusReady(Newest, bubble=False):
    """The whole record of the selected flow."""

    def __init__(self, flow: Flow | None) -> None:
        super().__init__()
        self.flow = flow


class FlowSelected(Newest):
    """The shared cursor moved to another flow.

    by_user: False for a cursor that stays on the first row, whatever flow that is.
    """

    def __init__(self, key: FlowKey, by_user: bool = True) -> None:
        super().__init__()
        self.key, self.by_user = key, by_user
