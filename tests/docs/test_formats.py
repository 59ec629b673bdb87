"""The format page describes the records as they are declared."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from pyarrow import parquet

from rocescope import cli


def test_field_tables_are_up_to_date(checkout: Path) -> None:
    generator = runpy.run_path(str(checkout / "docs" / "generate.py"))
    written = (checkout / "docs" / "formats.md").read_text()
    assert written == generator["page"](), "run `make docs`"


def test_the_columns_are_those_of_an_exported_file(
    checkout: Path, data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "packets.parquet"
    assert cli.run(["export", str(data / "c40_rc_oddities_ipv4.atB.pcap"), "-o", str(file)]) == 0
    page = (checkout / "docs" / "formats.md").read_text().partition("## Columns of the packet")[2]
    written = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert written == [(field.name, str(field.type)) for field in parquet.read_schema(file)]
