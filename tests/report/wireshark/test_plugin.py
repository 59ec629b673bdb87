"""The files for Wireshark with the package."""

import pytest
from lua_tshark import tshark

from rocescope.analyzer.pipeline.options import AnalyzeOptions
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
        words = ["-C", PROFILE, "--color", "-c", "5000", "-r", str(path), "-T", "fields"]
        words += [word for field in ("frame.coloring_rule.name", *fields) for word in ("-e", field)]
        own = {"WIRESHARK_CONFIG_DIR": str(folder), "COLORTERM": "24bit"}
        return [line.split("\t") for line in tshark(*words, lua=folder / NAME, **own)]

    return run


def test_every_rule_has_a_filter_that_tshark_compiles(need_tool, data):
    need_tool("tshark")
    assert [name for name, _ in RULES] == list(SHOWN_BY)
    every = " || ".join(f"({rule})" for _, rule in RULES)
    assert len(tshark("-r", str(data / "c10_rping_ipv4.atB.pcap"), "-Y", every)) == 605


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
