"""The registry of dialects."""

from __future__ import annotations

from rocescope.discovery.dialects.registry import DIALECTS


def test_dialects_are_found_by_their_name():
    assert list(DIALECTS) == ["linux", "frr"]
    assert all(dialect.name == name for name, dialect in DIALECTS.items())
