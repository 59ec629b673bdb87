"""The report of `rocescope check`, and the conformance section of the report of `analyze`."""

from __future__ import annotations

from ...analyzer.results.conformance import Conformance
from ..words import human
from ..words.human import UNKNOWN
from . import conformance_tables as tables
from .report import Report


class CheckReport(Report):
    """Captures and their limits of trust, then the rules."""

    def print(self) -> None:
        """The whole section, the verdict first."""
        self.captures()
        self._conformance()
        result = self.analysis.conformance
        assert isinstance(result, Conformance)
        self._views(result)
        if self.page.unknowns:
            self.page.gap()
            self.page.say(f"{UNKNOWN}: not known from this capture", "dim")

    def _views(self, result: Conformance) -> None:
        views = sorted(result.views, key=lambda v: (v.violations, v.resent_packets), reverse=True)
        if not views:
            return
        text = (
            f"{human.counted(len(views), 'view')}, one per tap and direction of a connection;"
            " the position says where the tap is relative to the losses."
        )
        self.page.section("Taps", text)
        shown = views[: self.top]
        self.page.draw(lambda table: tables.view_table(table, shown, self.glyphs))
        self.page.more(len(views) - self.top, "view")
