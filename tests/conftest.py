"""Fixtures and settings every test shares."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

pytest_plugins = ["networks", "tui_fixtures"]

# Kernels compile on their first call, so an example may take seconds; CI must not be random.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("ROCESCOPE_REQUIRE_TOOLS") else "local")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout, which is also the root of the package."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data(checkout: Path) -> Path:
    """The folder of bundled captures."""
    return checkout / "tests" / "data"


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str], NoReturn]:
    """`unavailable("takes root")` skips the test.

    With ROCESCOPE_REQUIRE_TOOLS set (as .ci/run does) it fails instead, so that
    no check is lost unnoticed.
    """

    def give_up(reason: str) -> NoReturn:
        if os.environ.get("ROCESCOPE_REQUIRE_TOOLS"):
            pytest.fail(reason)
        pytest.skip(reason)

    return give_up


@pytest.fixture(scope="session")
def need_tool(unavailable: Callable[[str], NoReturn]) -> Callable[[str], str]:
    """`need_tool("tshark")` is its path; a test whose tool is missing is `unavailable`."""

    def need(name: str) -> str:
        return shutil.which(name) or unavailable(f"{name} is not installed")

    return need


@pytest.fixture(scope="session")
def root(unavailable: Callable[[str], NoReturn]) -> None:
    """For `usefixtures`: the test takes root, to load probes, make networks or be somebody else."""
    if os.geteuid() != 0:
        unavailable("takes root")


_LONGEST_FIRST = (
    "tests/fuzz/",
    "tests/probes/",
    "_router.py",
    "tests/replay/flows/test_placement.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers (`pytest -n`) the tests of a file share one, and so do all that load BPF
    programs or make routers: they count what the whole machine has loaded.

    The longest files begin first, so that no worker is left with them at the end.
    """
    if not config.pluginmanager.hasplugin("xdist") or not config.getoption("numprocesses"):
        return
    for item in items:
        path = item.path.as_posix()
        needs = getattr(item, "fixturenames", ())
        alone = "live_capture" in needs or "/probes/" in path or path.endswith("_router.py")
        item.add_marker(pytest.mark.xdist_group("machine" if alone else path))
    items.sort(key=lambda item: _turn(item.path.as_posix()))


def _turn(path: str) -> int:
    return next((i for i, part in enumerate(_LONGEST_FIRST) if part in path), len(_LONGEST_FIRST))
