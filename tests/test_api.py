"""`import rocescope` for notebooks and scripts."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest
from captures import DATA
from network import roce_frames

import rocescope
from rocescope import cli
from rocescope.analyzer.errors import UnreadableInput, UsageError

CAPTURE = DATA / "c40_rc_oddities_ipv4.atB.pcap"
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=4"


def test_importing_loads_nothing_heavy():
    code = "import rocescope, sys; print(*sorted(m for m in sys.modules if m.startswith('roce')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [
        "rocescope",
        "rocescope.replay",
        "rocescope.version",
    ]


def test_every_name_it_offers_is_there():
    assert set(rocescope.__all__) <= set(dir(rocescope))
    for name in rocescope.__all__:
        assert getattr(rocescope, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rocescope.no_such_name


def test_analyze_gives_what_the_command_gives(capsysbinary):
    assert cli.run(["analyze", str(CAPTURE), "--format", "json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    assert json.loads(rocescope.analyze(CAPTURE).to_json()) == said


def test_options_are_those_of_the_analysis():
    some = rocescope.analyze(str(CAPTURE), filter="qp == 0x19b")
    assert {flow.dest_qp for flow in some.flows} == {0x19B}
    with pytest.raises(UsageError, match="there is no option 'filtre'"):
        rocescope.analyze(CAPTURE, filtre="x")
    with pytest.raises(UsageError, match="at least one capture"):
        rocescope.analyze([])
    with pytest.raises(UnreadableInput, match="no-such-file"):
        rocescope.analyze("no-such-file.pcap")


def test_packets_stream_into_polars():
    frame = pl.DataFrame(rocescope.packets(CAPTURE, columns=["psn", "dest_qp", "src"]))
    assert frame.columns == ["psn", "dest_qp", "src"]
    assert frame.height == sum(flow.packets for flow in rocescope.analyze(CAPTURE).flows)
    few = pl.DataFrame(rocescope.packets([CAPTURE], filter="qp == 0x19b"))
    assert set(few["dest_qp"]) == {0x19B}


def test_packets_come_batch_by_batch_and_again():
    stream = rocescope.packets(CAPTURE, extensions=True)
    first = [batch.num_rows for batch in stream]
    assert first == [batch.num_rows for batch in stream]
    assert "extensions_present" in stream.schema.names
    with pytest.raises(UsageError, match="no column 'qpn'"):
        rocescope.packets(CAPTURE, columns=["qpn"])


def test_html_of_a_result_tells_its_warnings():
    result = rocescope.analyze(CAPTURE)
    html = result._repr_html_()
    assert "564 packets" in html
    assert html.count("<li>") == len(result.warnings)


def test_replay_gives_what_the_command_gives(capsysbinary):
    words = ["replay", "--pattern", "permutation:qps=2", "--fabric", FABRIC, "--format", "json"]
    assert cli.run(words) == 0
    said = json.loads(capsysbinary.readouterr().out)
    found = rocescope.replay(pattern="permutation:qps=2", fabric=FABRIC)
    same = json.loads(found.to_json())
    for one in (said, same):  # how long the solver took is the only thing that differs
        one["strategies"][1]["solver"].pop("seconds")
    assert same == said
    frame = found.links("ecmp").to_polars()
    assert frame["wire_bytes"].sum() == sum(link.wire_bytes for link in found.links("ecmp"))
    with pytest.raises(UsageError, match="jsq was not replayed"):
        found.links("jsq")


def test_replay_by_packets():
    found = rocescope.replay(pattern="permutation", fabric=FABRIC, strategies=["jsq"])
    assert found.strategies[0].completion_time_ns >= found.strategies[0].lower_bound_ns
    with pytest.raises(UsageError, match="give captures, or --pattern"):
        rocescope.replay(fabric=FABRIC)


def test_a_fabric():
    assert rocescope.fabric(FABRIC).name == FABRIC
    with pytest.raises(UsageError, match="is not a fabric"):
        rocescope.fabric("torus")


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
def test_live_in_a_process_that_goes_on(network):
    there = network()
    for _ in range(2):  # privileges are kept: a second capture works
        sent = iter([roce_frames(10)])
        result = rocescope.live(
            "left",
            seconds=3,
            namespace=there.name,
            tell=lambda _, sent=sent: there.send(next(sent, []), "right"),
        )
        assert sum(flow.packets for flow in result.flows) == 10


def test_a_sweep_gives_what_the_command_gives(capsysbinary):
    words = ["sweep", "--pattern", "random:qps=2", "--fabric", FABRIC, "--hash", "crc32"]
    assert cli.run([*words, "--seeds", "0:30", "--production", "7", "--format", "json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    made = rocescope.sweep(
        pattern="random:qps=2", fabric=FABRIC, seeds=30, hash={"hash": "crc32"}, production=7
    )
    assert json.loads(made.to_json()) == said
    assert made.best[0].value == said["distribution"]["min"]
    assert made.worst[0].value == said["distribution"]["max"]
    assert repr(made) == "<Sweep of 30 seeds of crc32>"
    for wrong in ({"seeds": 0}, {"seeds": 1 << 33}, {"production": -1}, {"hash": {"seed": "1"}}):
        with pytest.raises(UsageError):
            rocescope.sweep(pattern="random:qps=2", fabric=FABRIC, **wrong)


def test_results_are_reports(tmp_path):
    report = tmp_path / "report.html"
    assert cli.run(["analyze", str(CAPTURE), "-o", str(report)]) == 0
    assert rocescope.analyze(CAPTURE).to_html() == report.read_bytes()
    replay = rocescope.replay(pattern="random:qps=2", fabric=FABRIC, strategies=["ecmp"])
    assert b"Load of the links by strategy" in replay.to_html()
    sweep = rocescope.sweep(pattern="random:qps=2", fabric=FABRIC, seeds=5)
    assert b"Imbalance over hash seeds" in sweep.to_html()
