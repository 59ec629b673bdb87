"""The format page describes the records as they are declared."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_field_tables_are_up_to_date(checkout: Path) -> None:
    generator = runpy.run_path(str(checkout / "docs" / "generate.py"))
    written = (checkout / "docs" / "formats.md").read_text()
    assert written == generator["page"](), "run `make docs`"
