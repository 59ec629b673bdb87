"""The example notebooks give the outputs that they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from examples import first
from nbclient import NotebookClient


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(1, ["incident", "hashes"]))
def test_a_notebook_shows_what_it_gives(
    checkout: Path, tmp_path: Path, golden: Callable[[str, str], None], name: str
) -> None:
    notebook = nbformat.read(checkout / f"docs/{name}.ipynb", as_version=4)
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").symlink_to(checkout / "tests")
    resources = {"metadata": {"path": tmp_path / "docs"}}
    done = NotebookClient(notebook, timeout=300, resources=resources).execute()
    done.metadata = {"kernelspec": done.metadata["kernelspec"], "language_info": {"name": "python"}}
    shown: list[dict[str, Any]] = []
    for cell in done.cells:
        cell.metadata = {}
        shown += cell.get("outputs", [])
    golden(f"docs/{name}.ipynb", json.dumps(done, indent=1, ensure_ascii=False) + "\n")
    assert all(output["output_type"] != "error" for output in shown)
    assert sum("image/svg+xml" in output.get("data", {}) for output in shown) >= 3
    if name == "incident":
        report = (tmp_path / "docs/incident.html").read_text()
        assert "spine2 loses everything from leaf2 to leaf1" in report
