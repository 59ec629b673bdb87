"""The page of hash models lists the registry, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rocescope.replay.hashing.models import MODELS


def test_every_model_is_listed(checkout: Path) -> None:
    page = (checkout / "docs" / "hashing.md").read_text()
    listed = re.findall(
        r"^\| `(\S+)` \| (\d+) \| (linear|nonlinear) \| (.*) \|$", page, re.MULTILINE
    )
    assert listed == [
        (
            model.name,
            "16" if model.half else str(model.bits),
            "linear" if model.linear else "nonlinear",
            model.help,
        )
        for model in MODELS.values()
    ]


def test_the_example_runs(checkout: Path) -> None:
    page = (checkout / "docs" / "hashing.md").read_text()
    variables: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, variables)
    assert variables["uplinks"].shape == (1000, 2)
    assert variables["uplinks"].max() == 15
