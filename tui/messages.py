"""What workers tell the app. Newer messages replace older ones that still wait."""

from __future__ import annotations

from textual.message import Message

from ..analyzer.results import Flow
from .snapshot import FlowKey, Snapshot


class SnapshotReady(Message, bubble=False):
    """A new snapshot was made."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


class FocusReady(Message, bubble=False):
    """The whole record of the selected flow."""

    def __init__(self, flow: Flow | None) -> None:
        super().__init__()
        self.flow = flow

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FocusReady)


class FlowSelected(Message):
    """The user moved the one cursor to another flow."""

    def __init__(self, key: FlowKey) -> None:
        super().__init__()
        self.key = key

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FlowSelected)
