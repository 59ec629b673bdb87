"""The files for Wireshark with the package."""

import os
import subprocess
from pathlib import Path

import pytest

from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.report.wireshark import plugin
from rocescope.report.wireshark.export import export_pcapng
from rocescope.report.wireshark.plugin import COLOURS, NAME, PROFILE, text


def test_it_registers_its_fields():
    assert NAME.endswith(".lua") and "register_postdissector(rocescope)" in text()


RULES = [line.split("@")[1:3] for line in text(COLOURS).splitlines() if line.startswith("@")]
SHOWN_BY = {
    "RoCE lost": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE NAK": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE retransmitted": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE late": ["i03_write_reorder5_AtoB.atB.pcap.gz"],
    "RoCE duplicate": ["i04_write_duplicate1_AtoB.atB.pcap.gz"],
    "RoCE gap": ["i03_write_reorder5_AtoB.atB.pcap.gz"],
    "RoCE congestion notification": [],
    "RoCE ECN-marked": ["i13_write_ecn_ce2_AtoB.atB.pcap.gz"],
    "RoCE": ["c10_rping_ipv4.atB.pcap"],
}
"""Captures with packets of each rule; none of them is known to have CNPs."""


@pytest.fixture(scope="module")
def coloured(data, tmp_path_factory):
    """The rules that tshark applies to the packets of a capture with comments, with its fields."""
    folder = tmp_path_factory.mktemp("wireshark")
    profile = folder / "profiles" / PROFILE
    profile.mkdir(parents=True)
    (profile / COLOURS).write_text(text(COLOURS))
    (folder / NAME).write_text(text())

    def run(path, *fields):
        words = ["tshark", "-X", f"lua_script:{folder / NAME}", "-C", PROFILE, "--color"]
        words += [
            "-n",
            "-c",
            "5000",
            "-r",
            str(path),
            "-T",
            "fields",
            "-e",
            "frame.coloring_rule.name",
        ]
        words += [word for field in fields for word in ("-e", field)]
        own = {"WIRESHARK_CONFIG_DIR": str(folder), "COLORTERM": "24bit"}
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env=os.environ | own
        )  # fmt: skip
        problems = [line for line in done.stderr.splitlines() if "Running as user" not in line]
        assert problems == []
        return [line.split("\t") for line in done.stdout.splitlines()]

    return run


def test_every_rule_has_a_filter_that_tshark_compiles(need_tool, data):
    need_tool("tshark")
    assert [name for name, _ in RULES] == list(SHOWN_BY)
    lua = Path(plugin.__file__).with_name(NAME)
    words = ["tshark", "-X", f"lua_script:{lua}", "-r", str(data / "c10_rping_ipv4.atB.pcap")]
    every = " || ".join(f"({rule})" for _, rule in RULES)
    done = subprocess.run([*words, "-Y", every], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 605


@pytest.mark.parametrize("capture", sorted({path for paths in SHOWN_BY.values() for path in paths}))
def test_packets_have_the_colours_of_their_verdicts(need_tool, data, tmp_path, coloured, capture):
    need_tool("tshark")
    path = tmp_path / "out.pcapng"
    with path.open("wb") as file:
        export_pcapng([str(data / capture)], AnalyzeOptions(), file)
    rows = coloured(path, "rocescope.verdict", "infiniband.bth.opcode")
    seen = {rule for rule, *_ in rows}
    assert {rule for rule, paths in SHOWN_BY.items() if capture in paths} <= seen
    for rule, verdict, opcode in rows:
        assert (rule == "") == (opcode == "")
        if verdict == "reordered":
            assert rule == "RoCE late"
        if rule == "RoCE retransmitted":
            assert verdict in ("retransmitted", "recovered")
