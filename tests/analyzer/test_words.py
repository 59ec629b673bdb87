"""Numbers with units, nouns and names from outside."""

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
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import NEEDED_BY, UsageError, explained, require
from rocescope.analyzer.saved_file import read_saved
from rocescope.analyzer.words import choices, duration, noun, printable, scaled, short

# Numbers with units, nouns and names from outside.


@given(st.text())
def test_nothing_in_a_name_steers_a_terminal(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert len(shown) == len(name)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("ecpm", "did you mean ecmp? There are ecmp, ring-allreduce"),
        ("ring", "did you mean ring-allreduce? There are ecmp, ring-allreduce"),
        ("star", "there are ecmp, ring-allreduce"),
        ("", "there are ecmp, ring-allreduce"),
    ],
)
def test_the_name_like_a_mistyped_one_comes_first(wrong: str, text: str) -> None:
    assert choices(wrong, ("ecmp", "ring-allreduce")) == text


def test_nouns() -> None:
    assert [noun(n, "flow") for n in (0, 1, 2, None)] == ["flows", "flow", "flows", "flows"]
    assert noun(2, "entry", "entries") == "entries"


@pytest.mark.parametrize(
    ("value", "text"),
    [(12, "12 B"), (999.4, "999 B"), (999.6, "1.00 kB"), (47.9e9, "47.9 GB"), (2e18, "2000 PB")],
)
def test_scaled(value: float, text: str) -> None:
    assert scaled(value, "B") == text


@pytest.mark.parametrize(
    ("ns", "text", "without_zeros"),
    [
        (850, "850 ns", "850 ns"),
        (999.9, "1.00 us", "1 us"),
        (12_000, "12.0 us", "12 us"),
        (310_000_000, "310 ms", "310 ms"),
        (1_200_000_000, "1.20 s", "1.2 s"),
        (250_000_000_000, "4 min 10 s", "4 min 10 s"),
        (10_000_000_000_000, "2.8 h", "2.8 h"),
    ],
)
def test_durations(ns: float, text: str, without_zeros: str) -> None:
    assert duration(ns) == text
    assert short(text) == without_zeros


# Files that others may have put into a folder.


def test_a_regular_file_up_to_the_limit(tmp_path):
    file = tmp_path / "answer"
    file.write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("answer")
    assert read_saved(file, 100) == b"x" * 100
    assert read_saved(tmp_path / "link", 100) == b"x" * 100
    with pytest.raises(UsageError, match=r"cannot read .*/answer: larger than 99 bytes"):
        read_saved(file, 99)


def test_pipes_devices_and_sparse_files_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("pipe", "not a regular file"),
        ("device", "not a regular file"),
        ("sparse", "larger than 256 mib"),
        ("loop", "too many levels"),
        (".", "directory"),
        ("none", "no such file"),
    ):
        with pytest.raises(UsageError, match=reason):
            read_saved(tmp_path / name)


def test_a_file_that_tells_no_size():
    """Files of /proc have size 0 and content."""
    assert read_saved("/proc/self/stat").startswith(str(os.getpid()).encode())


# The program with the packages of requirements-agent.txt alone, taken from this environment.

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
    (said,) = result.stderr.splitlines()
    start = f"rocescope: {NEEDED_BY[package]} {package}, which is not installed: "
    assert said.startswith(start) and said.endswith(f"pip install {package}")
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
