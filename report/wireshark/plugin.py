"""Files for Wireshark: the Lua file that makes fields of the comments, and coloring rules."""

from __future__ import annotations

from pathlib import Path

NAME = "rocescope.lua"
COLOURS = "colorfilters"
"""As Wireshark calls the coloring rules of a profile."""
PROFILE = "rocescope"
"""The profile that has these rules: those of other profiles stay as they are."""


def text(name: str = NAME) -> str:
    """The contents of one of the files."""
    return Path(__file__).with_name(name).read_text()
