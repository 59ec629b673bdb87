"""The user's marks and comments on flows and packets."""

from __future__ import annotations

from dataclasses import dataclass, field

from .snapshots.snapshot import FlowKey


@dataclass
class Marks:
    """Comments, empty for marks without a comment; exported captures contain them."""

    flows: dict[FlowKey, str] = field(default_factory=dict)
    packets: dict[tuple[str, int], str] = field(default_factory=dict)
    """By tap and frame number."""

    def toggle(self, key: FlowKey) -> bool:
        """Mark or unmark a flow; returns whether it is marked now."""
        if key in self.flows:
            del self.flows[key]
            return False
        self.flows[key] = ""
        return True
