"""`rocescope discover` as people call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from answers import recorded

from rocescope import cli
from rocescope.commands import doctor as command
from rocescope.commands import warm_up
from rocescope.kernels import LibraryError, build
from rocescope.kernels.libraries import ROOMS
from rocescope.probes.doctor import Check, Diagnosis
from rocescope.replay.fabrics.parse import parse_fabric

# `rocescope discover` as people call it.


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run(["discover", *(str(a) for a in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_the_fabric_as_a_file(suffix, run, tmp_path):
    file = tmp_path / f"fabric.{suffix}"
    code, out, _ = run(recorded(tmp_path) / "flapped", "-o", file, "--rate", "25G")
    assert code == 0
    assert "4 switches, 4 hosts, 12 links, from the answers of 8 devices" in out
    fabric = parse_fabric(str(file))
    assert fabric.links.rate_bits_per_second[0] == 25_000_000_000
    assert fabric.origin.ports[7] == ("swp4", "swp2")


def test_the_report_as_json(run, tmp_path):
    code, out, _ = run(recorded(tmp_path) / "flapped", "--format", "json")
    assert code == 0
    kinds = [remark["kind"] for remark in json.loads(out)["remarks"]]
    assert kinds == ["management network", "lost member", "lost member"]


def test_the_commands_to_run(run):
    code, out, _ = run("--commands", "frr")
    assert code == 0
    assert "ip -j route > NAME.route.json" in out.splitlines()
    *_, routes, pairs, _, _ = out.splitlines()
    assert routes == "vtysh -c 'show ip route json' > NAME.frr-route.json"
    assert pairs == "rdma -j resource show qp > NAME.qp.json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give an inventory or a folder with answers, or --commands linux"),
        (("nowhere",), "nowhere does not exist; give an inventory or a folder with answers"),
        ((".", "-o", "x.txt"), "the suffix of x.txt is not .yaml or .json"),
        ((".", "--rate", "fast"), "--rate"),
        (("nowhere.yaml", "--dry-run"), "nowhere.yaml does not exist; give an inventory"),
        ((".", "--max-answer", "much"), "--max-answer 'much' is not a size"),
        ((".", "--max-answer", "1GiB"), "--max-answer must be at most 256MiB"),
        ((".", "--raw", "raw"), "--raw and --dry-run need an inventory"),
    ],
)
def test_mistakes(arguments, message, run):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_damaged_answer_in_a_folder_is_a_failure(run, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "leaf1.lldp.json").write_text("[" * 100_000)
    code, out, _ = run(folder)
    assert code == 1
    assert "unexpected answer: leaf1: leaf1.lldp.json: not the output of" in " ".join(out.split())


def test_an_answer_beyond_the_limit_names_its_command_and_its_device(run, tmp_path):
    from eos_answers import eos_answers
    from switch_lab import LAB, save

    for switch in LAB:
        save(tmp_path, switch.name, eos_answers(switch))
    file = tmp_path / "leaf1.eos-interfaces.json"
    file.write_text(file.read_text() + " " * 8192)
    assert run(tmp_path)[0] == 0
    code, out, _ = run(tmp_path, "--max-answer", "8KiB")
    assert code == 1
    told = "unexpected answer: leaf1: `show interfaces | json`: leaf1.eos-interfaces.json: "
    assert f"{told}larger than 8 KiB" in " ".join(out.split())
    assert "LLDP" in out


def test_what_would_run_where(run, tmp_path):
    file = tmp_path / "inventory.yaml"
    file.write_text("switches: {leaf1: {dialect: frr, ssh: mgmt1}}\nhosts: {h1: }\n")
    code, out, _ = run(file, "--dry-run", "--raw", tmp_path / "raw")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "leaf1 (switch, frr, ssh mgmt1): ip -j route"
    assert "leaf1 (switch, frr, ssh mgmt1): vtysh -c 'show ip route json'" in lines
    assert lines[-1].startswith("h1 (host, linux, ssh h1): ")
    assert not (tmp_path / "raw").exists()


def test_the_gate(run):
    code, out, _ = run("--print-gate", "frr")
    assert code == 0
    assert out.startswith("#!/bin/sh\n")
    assert "vtysh -c 'show ip route json'" in out


# The report of `rocescope doctor`.


def test_lines():
    works = Diagnosis(True, [Check("kernel", "ok", "Linux 9", True), Check("tshark", "ok", "5")])
    assert command._lines(works, 80) == [
        "Needed for live capture",
        "  ok       kernel            Linux 9",
        "",
        "More",
        "  ok       tshark            5",
        "",
        "Live capture works. Start with: sudo rocescope capture IFACE -w roce.pcapng",
    ]
    ill = Diagnosis(False, [Check("bcc", "missing", "none", True, "it compiles", "apt-get x")])
    assert command._lines(ill, 80)[1:4] == [
        "  missing  bcc               none",
        " " * 29 + "- it compiles",
        " " * 29 + "> apt-get x",
    ]


# After a warm-up nothing is compiled any longer.


@pytest.mark.thorough
@pytest.mark.parametrize("use", ["analyze --format json", "export --pcapng"])
def test_after_a_warm_up_nothing_is_compiled(checkout: Path, use: str) -> None:
    """Captures of all kinds: READs, retransmissions, pcapng of a host."""

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = ["warm-up", "--for", use.partition(" ")[0], "--progress", "none"]
    said = run(f"from rocescope.cli import main; main({words})")
    assert said == f"compiled kernels are kept in {warm_up.BUILT}\n"
    data = checkout / "tests" / "data"
    for name in (
        "c10_rping_ipv4.atB.pcap",
        "i01_write_loss0.5_AtoB.atB.pcap.gz",
        "h01_rxe_at_the_host.pcapng.gz",
    ):
        words = [*use.split(), str(data / name), "-o", "/dev/null"]
        code = f"import sys, rocescope.cli as c; print(c.run({words}), 'numba' in sys.modules)"
        assert run(code) == "0 False\n", name


@pytest.mark.parametrize("use", warm_up.USES)
def test_a_warm_up_builds_the_rooms_of_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], use: str
) -> None:
    rooms: list[str] = []
    monkeypatch.setattr(build, "run", lambda room, tell: rooms.append(room))
    assert cli.run(["warm-up", "--for", use, "--progress", "none"]) == 0
    assert "analyzer" in rooms and set(rooms) <= set(ROOMS)
    assert ("replay.aggregation" in rooms) == (use == "aggregate")
    assert capsys.readouterr().out == f"compiled kernels are kept in {warm_up.BUILT}\n"


def test_a_room_that_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "linker", lambda: ["false"])
    with pytest.raises(LibraryError, match="false failed"):
        build._link([], "/nowhere")

    def fail(room: str, tell: object) -> None:
        raise LibraryError("cc failed: no such symbol")

    monkeypatch.setattr(build, "run", fail)
    assert cli.run(["warm-up", "--progress", "none"]) == 1
    assert capsys.readouterr().err == "rocescope: cc failed: no such symbol\n"


def test_an_installed_wheel_needs_no_warm_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "PACKAGED", True)
    assert cli.run(["warm-up"]) == 0
    assert capsys.readouterr().out == "the kernels of this installation are compiled\n"
