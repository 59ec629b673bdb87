"""How times are shown: seconds since the start, UTC, or local time."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Final, NamedTuple

MODES: Final = ("start", "utc", "local")
_TITLES: Final = {"start": "s", "utc": "UTC", "local": "local"}
_WORDS: Final = {
    "start": "times are seconds since the start",
    "utc": "times are UTC",
    "local": "times are local",
}


class Clock(NamedTuple):
    """Times of one session as text."""

    origin_ns: int
    """The start of the session, ns since the Unix epoch."""
    mode: str = "start"

    @property
    def title(self) -> str:
        """The unit, for headings: `s`, `UTC`, `local`."""
        return _TITLES[self.mode]

    @property
    def words(self) -> str:
        """What the times are, for a notice."""
        return _WORDS[self.mode]

    @property
    def of_day(self) -> bool:
        """Whether times are times of day."""
        return self.mode != "start"

    def text(self, time_ns: int, digits: int = 3) -> str:
        """`0.663` or `14:03:07.412`; digits: of the fraction of a second."""
        if not self.of_day:
            return f"{(time_ns - self.origin_ns) / 1e9:.{digits}f}"
        seconds, nanoseconds = divmod(time_ns, 10**9)
        fraction = f".{nanoseconds:09d}"[: digits + 1] if digits else ""
        return f"{self._moment(seconds):%H:%M:%S}{fraction}"

    def point(self, time_ns: int, digits: int = 3) -> str:
        """A time in a sentence: `0.663 s`, `14:03:07.412 UTC`, `15:03:07.412`."""
        unit = {"start": " s", "utc": " UTC", "local": ""}[self.mode]
        return f"{self.text(time_ns, digits)}{unit}"

    def seconds(self, text: str) -> float:
        """Seconds since the start of what a user enters: a number of them, or a time of the day of
        the start, UTC unless times are local. ValueError if it is neither."""
        if ":" not in text:
            return float(text)
        at = time.fromisoformat(text.strip())
        zone = self if self.of_day else self._replace(mode="utc")
        second, nanoseconds = divmod(self.origin_ns, 10**9)
        begin = zone._moment(second)
        there = begin.replace(
            hour=at.hour, minute=at.minute, second=at.second, microsecond=at.microsecond
        )
        return (there - begin).total_seconds() - nanoseconds / 1e9

    def day(self) -> str:
        """`2026-11-21 UTC`: the day of the start; empty for seconds."""
        if not self.of_day or not self.origin_ns:
            return ""
        moment = self._moment(self.origin_ns // 10**9)
        return f"{moment:%Y-%m-%d} {'UTC' if self.mode == 'utc' else moment.tzname()}"

    def _moment(self, seconds: int) -> datetime:
        moment = datetime.fromtimestamp(seconds, UTC)
        return moment if self.mode == "utc" else moment.astimezone()
