"""What an opening took is released at the end, and when the opening fails."""

from __future__ import annotations

import pytest

from rocescope.probes.opened import Opened


class _Door(Opened):
    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails, self.released = fails, 0

    def _open(self) -> None:
        self._stack.callback(self._release)
        if self.fails:
            raise OSError("locked")

    def _release(self) -> None:
        self.released += 1


def test_the_end_releases() -> None:
    with _Door(fails=False) as door:
        assert not door.released
    assert door.released == 1


def test_a_failed_opening_releases() -> None:
    door = _Door(fails=True)
    with pytest.raises(OSError, match="locked"):
        door.__enter__()
    assert door.released == 1
