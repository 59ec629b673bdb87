"""The command line starts without the heavy libraries; the analyzer never draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "numba", "pyarrow", "rich", "textual", "scapy", "pyshark", "dpkt")


def all_modules_after(statement: str) -> set[str]:
    """Modules loaded once a fresh interpreter has run `statement`."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def modules_after(statement: str) -> set[str]:
    """Top-level modules loaded once a fresh interpreter has run `statement`."""
    return {name for name in all_modules_after(statement) if "." not in name}


@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_a_report_loads_nothing_of_the_terminal_ui(checkout: Path, format: str) -> None:
    capture = checkout / "tests" / "data" / "c10_rping_ipv4.atB.pcap"
    words = ["analyze", str(capture), "--format", format]
    loaded = all_modules_after(f"import rocescope.cli\nassert rocescope.cli.run({words}) == 0")
    assert "rocescope.analyzer.pipeline.captures" in loaded
    assert not {name for name in loaded if name.startswith("rocescope.tui")}


@pytest.mark.parametrize("module", ["rocescope", "rocescope.cli"])
def test_importing_the_command_line_loads_nothing_heavy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert "rocescope" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_version_is_printed_without_the_heavy_libraries() -> None:
    loaded = modules_after("import rocescope.cli\nrocescope.cli.run(['--version'])")
    assert loaded.isdisjoint({"numpy", "numba", "pyarrow", "textual"})


def test_the_packet_table_loads_no_user_interface() -> None:
    loaded = modules_after("import rocescope.analyzer.wire.packets")
    assert "numpy" in loaded
    assert loaded.isdisjoint({"rich", "textual"})


@pytest.mark.thorough
def test_a_later_analysis_loads_neither_compiler_nor_parser(checkout: Path) -> None:
    """Numba alone takes longer to load than most captures take to analyse."""
    capture = checkout / "tests" / "data" / "c10_rping_ipv4.atB.pcap"
    words = ["analyze", str(capture), "--format", "json", "-o", "/dev/null"]
    statement = f"import rocescope.cli\nassert rocescope.cli.run({words}) == 0"
    modules_after(statement)  # the first run may have to compile
    loaded = modules_after(statement)
    assert "numpy" in loaded
    assert loaded.isdisjoint({"numba", "llvmlite", "scipy"})
    assert loaded.isdisjoint({"cyclopts", "lark", "pyarrow", "textual", "rich", "lz4", "hashlib"})


@pytest.mark.thorough
def test_screens_begin_without_compiler_and_parser() -> None:
    """The first packets of a capture are to be seen within a second."""
    loaded = modules_after("import rocescope.tui.app, rocescope.tui.screens.qps")
    assert "textual" in loaded
    assert loaded.isdisjoint({"numba", "llvmlite", "scipy", "cyclopts", "lark", "pyarrow"})


@pytest.mark.thorough
def test_screens_of_a_live_session_load_no_replay() -> None:
    """Numba and the replays take 40 MB, and a session without files has nothing to replay."""
    statement = (
        "import importlib, rocescope.tui.app\n"
        "from rocescope.tui.screens.base import SCREENS, prepared\n"
        "for name in prepared('diagnosis', can_replay=False):\n"
        "    module, name = SCREENS[name].split('.')\n"
        "    getattr(importlib.import_module(f'rocescope.tui.screens.{module}'), name)"
    )
    loaded = all_modules_after(statement)
    assert {"rocescope.tui.screens.paths", "rocescope.tui.screens.packets"} <= loaded
    assert "numba" not in loaded and "rocescope.tui.session.replays" not in loaded


@pytest.mark.thorough
def test_a_replay_loads_only_what_it_runs() -> None:
    """Start-up takes most of the time of a small replay."""
    words = ["replay", "--pattern", "permutation", "--fabric", "fat-tree:k=4", "-s", "ofan"]
    words += ["--lossless", "infinite"]
    statement = f"import rocescope.cli\nassert rocescope.cli.run({words}) == 0"
    all_modules_after(statement)  # the first run may have to compile
    loaded = all_modules_after(statement)
    assert "rocescope.replay.packets.open_loop" in loaded
    unwanted = {"numba", "llvmlite", "numpy.ma", "scipy", "cyclopts", "rich._emoji_codes"}
    assert loaded.isdisjoint(unwanted)
    unused = ("packets.event_driven", "compare.flows", "jobs", "seeds", "traffic.observed")
    assert loaded.isdisjoint(f"rocescope.replay.{name}" for name in unused)


def test_live_commands_load_no_compiler() -> None:
    """Probes and kernels are compiled once, then they come from the cache."""
    loaded = modules_after("import rocescope.probes.live_analysis, rocescope.commands.capture")
    assert loaded.isdisjoint({"numba", "scipy", "textual", "pyarrow"})
