"""The checkout is the package: what lies in it is what gets installed."""

from __future__ import annotations

import ast
import calendar
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

import rocescope
from rocescope.analyzer.errors import NEEDED_BY
from rocescope.kernels.build import levels
from rocescope.kernels.libraries import ROOMS

ROOT_MODULES = {"__init__.py", "__main__.py", "api.py", "cli.py", "plots.py", "version.py"}
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


def pins_of(file: Path) -> dict[str, str]:
    """Version by package."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def names_of(wanted: list[str]) -> set[str]:
    return {re.split("[<>[;]", name)[0].lower() for name in wanted} - {"rocescope"}


def test_every_dependency_has_an_exact_version(checkout: Path, pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    assert names_of(wanted) <= pins_of(checkout / "constraints.txt").keys()


HASHES = {
    "hashes": lambda project: [
        *project["dependencies"],
        *project["optional-dependencies"]["agent"],
        *project["optional-dependencies"]["ssh"],
    ],
    "agent": lambda project: project["agent-host"],
}
"""What a file of packages with hashes must hold, from the table of the project."""


@pytest.mark.parametrize("name", HASHES)
def test_every_dependency_has_hashes(checkout: Path, pyproject: dict[str, Any], name: str) -> None:
    """At the versions of the constraints; those of packages for other systems are not in them."""
    project = pyproject["project"] | pyproject["dependency-groups"]
    file = checkout / f"requirements-{name}.txt"
    pins, exact = pins_of(file), pins_of(checkout / "constraints.txt")
    assert names_of(HASHES[name](project)) <= {*pins}
    assert {name: pins[name] for name in pins if name in exact} == {
        name: exact[name] for name in pins if name in exact
    }
    entries = re.split(r"\n(?=[\w.-]+==)", file.read_text())[1:]
    assert len(entries) == len(pins)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_a_fleet_host_has_what_the_program_cannot_do_without(pyproject: dict[str, Any]) -> None:
    """Every dependency is on the host, or named where the program says what needs it."""
    project = pyproject["project"]
    on_the_host = names_of(pyproject["dependency-groups"]["agent-host"])
    assert names_of(project["dependencies"]) - on_the_host == NEEDED_BY.keys()


USERS = {
    "bcc": {"probes/program/compile.py"},
    "dpkt": {"tui/session/dissect.py"},
    "pyshark": {"tui/session/dissect.py"},
    "scapy": {"replay/generate/craft.py"},
}
"""Product modules that import a library."""


def imported_by(module: Path) -> Iterator[str]:
    """The packages from outside that a module imports, also within functions or by name."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0]
            case ast.Call(
                func=ast.Name("import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(name)), *_],
            ):
                yield name.partition(".")[0]


def test_libraries_for_packets_and_screens_are_used_where_they_belong(checkout: Path) -> None:
    users: dict[str, set[str]] = {}
    for root in package_roots(checkout):
        for path in root.rglob("*.py"):
            for package in imported_by(path):
                users.setdefault(package, set()).add(str(path.relative_to(checkout)))
    assert {package: users.get(package) for package in USERS} == USERS
    assert {name.rpartition("/")[0] for name in users["textual"]} == {"tui", "tui/screens"}
    assert "tui/app.py" in users["textual"]


def built(checkout: Path, folder: Path, **environment: str) -> Path:
    """`make dist`: the folder with the wheel and the source distribution."""
    command = [sys.executable, str(checkout / ".ci" / "dist.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    return folder


@pytest.fixture(scope="module")
def dist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(checkout, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


def test_source_distribution_is_what_the_wheel_is_made_of(dist: Path, wheel: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        ours = {n for n in packed.namelist() if n.startswith("rocescope/")}
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    compiled = {name for name in ours if name.endswith(".so")}
    assert {name.removeprefix("rocescope/") for name in ours - compiled} < names
    assert {"pyproject.toml", "README.md", "LICENSE", MAN_PAGE, ".ci/backend.py"} < names
    assert {"analyzer/kernels.json", "replay/aggregation/kernels.json"} < names
    assert {(m.uid, m.gid, m.uname) for m in members} == {(0, 0, "")}
    assert len({m.mtime for m in members}) == 1


@pytest.mark.thorough
def test_the_same_files_give_the_same_bytes(checkout: Path, dist: Path, tmp_path: Path) -> None:
    again = built(checkout, tmp_path / "again", PYTHONHASHSEED="7", TZ="Asia/Tokyo", USER="x")
    later = built(checkout, tmp_path / "later", SOURCE_DATE_EPOCH="1800000000")
    for path in dist.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
        assert (later / path.name).read_bytes() != path.read_bytes(), path.name


@pytest.mark.thorough
def test_the_source_distribution_builds_the_same_wheel(
    checkout: Path, dist: Path, wheel: Path, tmp_path: Path
) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:  # times of a zip file are local, without a zone
        year, *rest = packed.infolist()[0].date_time
    time = str(calendar.timegm((year, *rest)))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(tmp_path), str(archive)],
        check=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": time},
    )
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def package_index(unavailable: Callable[[str], NoReturn]) -> None:
    """For `usefixtures`: pip finds packages."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "platformdirs"]
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run([*command, "--dest", folder], capture_output=True).returncode:
            unavailable("needs a package index")


@pytest.mark.thorough
@pytest.mark.usefixtures("package_index")
def test_pip_builds_a_wheel_in_an_environment_of_its_own(
    checkout: Path, dist: Path, tmp_path: Path
) -> None:
    """As `pipx install .` does: what compiles the kernels comes from the index."""
    (archive,) = dist.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "host"], check=True)
    pip = [str(tmp_path / "host" / "bin" / "pip"), "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*pip, "--wheel-dir", str(tmp_path), str(archive)],
        check=True,
        env=os.environ | {"PIP_CONSTRAINT": str(checkout / "constraints.txt")},
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive_of_wheel:
        assert sum(name.endswith(".so") for name in archive_of_wheel.namelist()) > len(ROOMS)


def assert_analyses(command: Path, data: Path) -> None:
    capture = data / "c10_rping_ipv4.atB.pcap"
    run = subprocess.run(
        [command, "analyze", capture, "--format", "json"], cwd="/", capture_output=True, check=True
    )
    assert json.loads(run.stdout)["captures"][0]["roce_packets"] > 0


@pytest.mark.thorough
@pytest.mark.usefixtures("package_index")
def test_a_fleet_host_installs_wheels_with_hashes(
    checkout: Path, data: Path, wheel: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "host"], check=True)
    pip = [str(tmp_path / "host" / "bin" / "pip"), "--quiet", "install", "--only-binary", ":all:"]
    packages = checkout / "requirements-agent.txt"
    subprocess.run([*pip, "--require-hashes", "-r", str(packages)], check=True, capture_output=True)
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    assert_analyses(tmp_path / "host" / "bin" / "rocescope", data)


@pytest.mark.thorough
@pytest.mark.usefixtures("package_index")
def test_the_debian_package_runs_where_it_is_unpacked(
    checkout: Path, data: Path, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    deb_tool, packages = need_tool("dpkg-deb"), str(checkout / "requirements-agent.txt")
    subprocess.run([checkout / ".ci" / "deb", tmp_path, packages], check=True, capture_output=True)
    (deb,) = tmp_path.glob("rocescope_*.deb")
    subprocess.run([deb_tool, "-x", deb, tmp_path / "root"], check=True)
    assert (tmp_path / "root/usr/share/man/man1/rocescope.1.gz").exists()
    assert_analyses(tmp_path / "root" / "usr" / "bin" / "rocescope", data)


@pytest.mark.thorough
@pytest.mark.usefixtures("package_index")
def test_the_sbom_lists_every_package_with_its_hashes(checkout: Path) -> None:
    subprocess.run(["make", "sbom"], cwd=checkout, check=True, capture_output=True)
    file = checkout / "dist" / "rocescope.cdx.json"
    listed = json.loads(file.read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == "rocescope"
    assert {part["name"].lower(): part["version"] for part in listed["components"]} == pins_of(
        checkout / "requirements-hashes.txt"
    )
    assert all(part["externalReferences"][0]["hashes"] for part in listed["components"])


def test_citation_names_this_version(checkout: Path) -> None:
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert citation["version"] == rocescope.__version__
    assert citation["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_wheel_holds_the_whole_package_and_nothing_else(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"rocescope/{name}" for name in ROOT_MODULES}
    expected.add("rocescope/py.typed")
    data = f"rocescope-{rocescope.__version__}.data/data"
    expected.add(f"{data}/share/man/man1/rocescope.1")
    for root in package_roots(checkout):
        for pattern in ("*.py", "*.c", "*.h", "*.lua", "colorfilters", "*.tcss"):
            for path in root.rglob(pattern):
                expected.add(f"rocescope/{path.relative_to(checkout)}")
    for room in ROOMS:
        for level in levels():
            expected.add(f"rocescope/kernels/compiled/{room}-{level}.so")
    assert names == expected
    assert re.search(r"-py3-none-manylinux_2_\d+_\w+\.whl$", wheel.name)


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


def test_only_building_needs_numba(pyproject: dict[str, Any], wheel: Path) -> None:
    assert "numba" not in names_of(pyproject["project"]["dependencies"])
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        needed = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)
    assert [line for line in needed if "numba" in line] == ['numba<0.69; extra == "build"']


def pythons() -> list[str]:
    """Every Python of this machine that rocescope runs on: those of pyenv, which has others in
    PATH that do not start, and those in PATH."""
    found = {}
    for minor in range(11, 15):
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
        path = str(kept[-1]) if kept else shutil.which(f"python3.{minor}")
        if path is not None:
            found[minor] = path
    return list(found.values())


COMMANDS = (
    "analyze DATA/c10_rping_ipv4.atB.pcap",
    "analyze DATA/i01_write_loss0.5_AtoB.atB.pcap.gz",
    "check DATA/i01_write_loss0.5_AtoB.atB.pcap.gz",
    "generate permutation --hosts 4 --messages 1 -o WORK/made.pcap",
    "analyze WORK/made.pcap",
    "generate mrc --messages 1 --message-size 1MiB --loss 0.05 --trim 0.05 -o WORK/mrc.pcap",
    "analyze WORK/mrc.pcap",
    "replay --pattern permutation --fabric fat-tree:k=4 -s ofan --lossless infinite",
    "replay --pattern permutation:message-size=64KiB --fabric leaf-spine:leaves=2,spines=2,hosts=4"
    " -s all --packets",
    "sweep --pattern permutation --fabric leaf-spine:leaves=2,spines=2,hosts=4 --seeds 0:50",
    "aggregate --fabric leaf-spine:leaves=2,spines=2,hosts=4"
    " --jobs workers=4,racks=2,fragments=20,window=10,iterations=1",
)
"""Main commands, with all that they compile in a checkout."""


@pytest.mark.thorough
@pytest.mark.usefixtures("package_index")
@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
def test_one_wheel_runs_on_every_python_without_numba(
    checkout: Path, data: Path, wheel: Path, tmp_path: Path, python: str
) -> None:
    subprocess.run([python, "-m", "venv", tmp_path / "host"], check=True)
    run = tmp_path / "host" / "bin"
    pip = [str(run / "pip"), "--quiet", "--disable-pip-version-check", "install"]
    packages = [*pip, "--constraint", str(checkout / "constraints.txt"), str(wheel)]
    subprocess.run(packages, check=True, capture_output=True)
    listed = subprocess.run([run / "pip", "list"], capture_output=True, text=True).stdout
    assert "numba" not in listed and "llvmlite" not in listed
    environment = {**os.environ, "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}
    for line in COMMANDS:
        words = [w.replace("DATA", str(data)).replace("WORK", str(tmp_path)) for w in line.split()]
        command = [str(run / "rocescope"), *words]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stderr.count("compil")) == (0, 0), (line, done.stderr)
