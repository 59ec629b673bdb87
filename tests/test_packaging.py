"""The checkout is the package: what lies in it is what gets installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rocescope

ROOT_MODULES = {"__init__.py", "__main__.py", "api.py", "cli.py", "version.py"}
MAN_PAGE = "docs/rocescope.1"
NOT_PACKAGED = {"tests", "benchmarks", "docs", "build", "dist"}


def package_roots(checkout: Path) -> list[Path]:
    """The folders at the root that belong to the package."""
    return [
        path
        for path in sorted(checkout.iterdir())
        if path.is_dir()
        and not path.name.startswith((".", "__"))
        and not path.name.endswith(".egg-info")
        and path.name not in NOT_PACKAGED
    ]


@pytest.fixture(scope="module")
def pyproject(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text())


def folders_with_code(checkout: Path) -> set[str]:
    """Every folder of the package that holds Python files, as a dotted name."""
    folders = {
        path.parent.relative_to(checkout)
        for root in package_roots(checkout)
        for path in root.rglob("*.py")
    }
    return {"rocescope", *(".".join(("rocescope", *folder.parts)) for folder in folders)}


def test_root_holds_exactly_the_root_package(checkout: Path) -> None:
    # Every other module at the root would land in the wheel.
    assert {path.name for path in checkout.glob("*.py")} == ROOT_MODULES


def test_packages_list_equals_the_tree(checkout: Path, pyproject: dict[str, Any]) -> None:
    # A package that is not listed works in an editable install and is missing from the wheel.
    setuptools = pyproject["tool"]["setuptools"]
    assert set(setuptools["packages"]) == folders_with_code(checkout)
    assert setuptools["package-dir"] == {"rocescope": "."}


def test_every_package_folder_has_an_init(checkout: Path) -> None:
    for package in folders_with_code(checkout) - {"rocescope"}:
        assert (checkout.joinpath(*package.split(".")[1:]) / "__init__.py").exists(), package


def test_every_dependency_has_an_exact_version(checkout: Path, pyproject: dict[str, Any]) -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (checkout / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    project = pyproject["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    names = {re.split("[<>[;]", name)[0].lower() for name in wanted} - {"rocescope"}
    assert names <= pinned


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from a copy of the tracked files."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "py.typed", *ROOT_MODULES):
        (source / name).write_bytes((checkout / name).read_bytes())
    for root in package_roots(checkout):
        for path in root.rglob("*"):
            if path.is_file() and path.suffix in (".py", ".c", ".h", ".tcss"):
                target = source / path.relative_to(checkout)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    (source / "docs").mkdir()
    (source / MAN_PAGE).write_bytes((checkout / MAN_PAGE).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(work), str(source)], check=True
    )
    (built,) = work.glob("*.whl")
    return built


def test_wheel_holds_the_whole_package_and_nothing_else(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"rocescope/{name}" for name in ROOT_MODULES}
    expected.add("rocescope/py.typed")
    data = f"rocescope-{rocescope.__version__}.data/data"
    expected.add(f"{data}/share/man/man1/rocescope.1")
    for root in package_roots(checkout):
        for pattern in ("*.py", "*.c", "*.h", "*.tcss"):
            for path in root.rglob(pattern):
                expected.add(f"rocescope/{path.relative_to(checkout)}")
    assert names == expected


def test_wheel_says_how_to_start_it_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            Path(name).name: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }
    assert "rocescope = rocescope.cli:main" in texts["entry_points.txt"]
    assert "License-Expression: MIT" in texts["METADATA"]
    assert texts["LICENSE"].startswith("MIT License")


def test_the_package_and_its_metadata_name_one_version(pyproject: dict[str, Any]) -> None:
    assert rocescope.__version__ == pyproject["project"]["version"]


def test_numba_is_bounded_by_the_release_that_was_tested(
    checkout: Path, pyproject: dict[str, Any]
) -> None:
    """Kernels are loaded by what numba does inside, which every release of it may change."""
    pins = (line.partition("==") for line in (checkout / "constraints.txt").open())
    ((major, minor),) = [pin.split(".")[:2] for name, _, pin in pins if name == "numba"]
    assert f"numba<{major}.{int(minor) + 1}" in pyproject["project"]["dependencies"]
