"""The Lua file that makes fields of the comments."""

from __future__ import annotations

from pathlib import Path

NAME = "rocescope.lua"


def text() -> str:
    """Its contents."""
    return Path(__file__).with_name(NAME).read_text()
