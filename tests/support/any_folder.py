"""The checkout is the package itself: tests run in a folder of any name, also one with a dot."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector:
    """No folder is imported as a package, which its name would have to allow."""
    return pytest.Dir.from_parent(parent, path=path)
