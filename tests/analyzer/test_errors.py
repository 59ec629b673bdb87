"""The program with the packages of requirements-agent.txt alone, taken from this environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rocescope.analyzer.errors import NEEDED_BY, UsageError, explained, require

Run = Callable[..., CompletedProcess[str]]


def packages_in(file: Path) -> list[Distribution]:
    """Those for this system: a line with a marker is for another one."""
    names = re.findall(r"^([\w.-]+)==[^\s;]+ \\$", file.read_text(), re.MULTILINE)
    return [distribution(name) for name in names]


def megabytes(packages: Iterable[Distribution]) -> float:
    """Bytes of the installed files over 10^6, without compiled bytecode."""
    files = [Path(str(d.locate_file(f))) for d in packages for f in d.files or []]
    return sum(f.stat().st_size for f in files if f.suffix != ".pyc" and f.exists()) / 1e6


@pytest.fixture(scope="module")
def run(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run(words)`: the command line in an environment with these packages and no other."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "rocescope").symlink_to(checkout)
    for package in packages_in(checkout / "requirements-agent.txt"):
        for top in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            (folder / top).symlink_to(str(package.locate_file(top)))

    def command(*words: str | Path, terminal: int | None = None) -> CompletedProcess[str]:
        start = f"import sys\nsys.path.insert(0, {str(folder)!r})"
        code = f"{start}\nfrom rocescope.cli import main\nmain()"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, *map(str, words)],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal or subprocess.PIPE,
            text=True,
        )

    return command


def assert_missing(result: CompletedProcess[str], package: str) -> None:
    assert result.stderr.splitlines() == [
        f"rocescope: {NEEDED_BY[package]} {package}, which is not installed: pip install {package}"
    ]
    assert result.returncode == 2


def test_a_fleet_host_needs_less_than_half(checkout: Path) -> None:
    some, every = (
        packages_in(checkout / f"requirements-{name}.txt") for name in ("agent", "hashes")
    )
    assert {package.name for package in some} < {package.name for package in every}
    assert megabytes(some) < megabytes(every) / 2


def test_an_analysis_is_the_same(run: Run, data: Path) -> None:
    result = run("analyze", data / "c10_rping_ipv4.atB.pcap", "--format", "json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["captures"][0]["roce_packets"] > 0


def test_the_agent_begins(run: Run) -> None:
    result = run("agent", "nosuch0", "--listen", "127.0.0.1:0")
    assert result.returncode == 3
    assert "prometheus" not in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("networkx", ["fabric", "{tmp}/fabric.graphml"]),
        ("pyarrow", ["analyze", "{data}/c10_rping_ipv4.atB.pcap", "-o", "{tmp}/x.parquet"]),
        ("pyarrow", ["export", "{data}/c10_rping_ipv4.atB.pcap", "-o", "{tmp}/x.parquet"]),
        ("scapy", ["generate", "ring-allreduce", "--mirror", "gre", "-o", "{tmp}/x.pcap"]),
        ("scipy", ["fabric", "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"]),
    ],
)
def test_what_needs_a_missing_package_says_so_in_one_line(
    run: Run, data: Path, tmp_path: Path, package: str, words: list[str]
) -> None:
    (tmp_path / "fabric.graphml").write_text("<graphml/>")
    result = run(*(word.format(data=data, tmp=tmp_path) for word in words))
    assert_missing(result, package)
    assert not list(tmp_path.glob("x.*"))


@pytest.mark.thorough
def test_the_agent_runs(run: Run) -> None:
    """As far as its options: with its modules loaded, but without a port."""
    result = run("agent", "lo", "--source", "queue-pairs", "--listen", "192.0.2.1:1")
    assert "192.0.2.1 is reachable from other hosts" in result.stderr
    result = run("agent", "lo", "--listen", "192.0.2.1:1", "--without-tls")
    assert result.stderr == "rocescope: 192.0.2.1 port 1: cannot assign requested address\n"


def test_the_terminal_ui_needs_textual(run: Run, data: Path) -> None:
    ours, theirs = os.openpty()
    result = run("tui", data / "c10_rping_ipv4.atB.pcap", terminal=theirs)
    result.stderr = os.read(ours, 1000).decode()
    os.close(theirs)
    os.close(ours)
    assert_missing(result, "textual")


def test_a_package_that_is_there_is_no_error() -> None:
    require("pyarrow")


def test_modules_that_nobody_may_lack_stay_errors() -> None:
    assert explained(ModuleNotFoundError(name="numba.core")) is None
    assert isinstance(explained(ModuleNotFoundError(name="scipy.sparse")), UsageError)
