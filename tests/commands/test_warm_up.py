"""After a warm-up nothing is compiled any longer; what cannot be kept is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocescope import cli
from rocescope.commands import warm_up


@pytest.mark.thorough
@pytest.mark.parametrize("use", ["analyze --format json", "export --pcapng"])
def test_after_a_warm_up_nothing_is_compiled(checkout: Path, tmp_path: Path, use: str) -> None:
    """Captures that were not made by it: READs, retransmissions, pcapng of a host."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = ["warm-up", "--for", use.partition(" ")[0], "--progress", "none"]
    said = run(f"from rocescope.cli import main; main({words})")
    assert said == f"compiled kernels are kept in {tmp_path / 'rocescope'}\n"
    data = checkout / "tests" / "data"
    for name in (
        "c10_rping_ipv4.atB.pcap",
        "i01_write_loss0.5_AtoB.atB.pcap.gz",
        "h01_rxe_at_the_host.pcapng.gz",
    ):
        words = [*use.split(), str(data / name), "-o", "/dev/null"]
        code = f"import sys, rocescope.cli as c; print(c.run({words}), 'numba' in sys.modules)"
        assert run(code) == "0 False\n", name


@pytest.mark.thorough
def test_after_a_warm_up_for_aggregate_no_scheme_is_compiled(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    fabric = "leaf-spine:leaves=2,spines=2,hosts=8"
    words = ["aggregate", "--fabric", fabric, "--jobs", "workers=4,racks=2,fragments=50,window=9"]
    words += ["--loss", "0.01", "--format", "json", "-o", "/dev/null"]
    kept = []
    for code in (
        "from rocescope.cli import main; main(['warm-up', '--for', 'aggregate'])",
        f"from rocescope.cli import main; main({words})",
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        kept.append(sorted(str(file) for file in tmp_path.rglob("*") if file.is_file()))
    assert kept[0] == kept[1] and kept[0]


def test_a_part_that_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "PARTS", ())
    monkeypatch.setattr(warm_up, "_CAPTURES", {"plain": "no-such-pattern"})
    assert cli.run(["warm-up", "--progress", "none"]) == 1
    assert "no-such-pattern" in capsys.readouterr().err


def test_nowhere_to_keep_code_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "cache_base", lambda: None)
    assert cli.run(["warm-up"]) == 1
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
