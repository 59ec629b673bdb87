"""Fabrics of texts."""

from __future__ import annotations

import pytest

from rocescope.replay.fabrics.parse import parse_fabric


@pytest.fixture
def parse(tmp_path):
    """Parse a text as a file."""

    def parsed(text, name="lab.yaml", options=""):
        file = tmp_path / name
        file.write_text(text)
        return parse_fabric(f"{file}{options}")

    return parsed
