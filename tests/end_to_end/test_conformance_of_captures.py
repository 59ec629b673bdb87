"""The bundled captures of Soft-RoCE keep the rules, and agree with the counters of its hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import DATA, data, truth

from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

HOSTS = {"A": "10.0.0.1", "B": "10.0.0.2"}
CHECK = ConformanceOptions()


def checked(*paths, options=CHECK):
    """The conformance of captures."""
    found = analyze([str(path) for path in paths], AnalyzeOptions(conformance=options)).conformance
    assert found
    return found


def rule(found, name):
    """The result of one rule."""
    (one,) = [one for one in found.rules if one.id == name]
    return one


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pcap*")), ids=lambda path: path.name[:24])
def test_every_capture_conforms(path: Path) -> None:
    found = checked(path)
    assert found.conformant, found.violations
    assert not found.violations


@pytest.mark.thorough
@pytest.mark.parametrize("run", sorted(DATA.glob("leafspine/r*")), ids=lambda path: path.name)
def test_every_tap_of_the_fabric_conforms(run: Path) -> None:
    files = sorted(run.glob("*.pcap*"))
    if not files:
        pytest.skip("no capture of this run is bundled")
    found = checked(*files)
    assert found.conformant, found.violations


def counters(run, host):
    """What the host's driver counted while the capture ran."""
    return run["rxe_hw_counters_delta"][host]["rxe0"]


def test_naks_and_rewinds_are_those_the_hosts_counted() -> None:
    run, _ = truth("i03")
    found = checked(data("i03_write_reorder5_AtoB.atB"))
    assert rule(found, "nak-psn").judged == counters(run, "B")["out_of_seq_request"] == 81
    assert rule(found, "nak-psn").undecided == 0
    run, _ = truth("i01_write")
    at_sender = checked(DATA / "i01_write_loss0.5_AtoB.atA.pcap.gz")
    rewinds = sum(sum(view.rewinds.values()) for view in at_sender.views)
    assert rewinds == counters(run, "A")["completer_retry_err"] == 126
    assert {view.position for view in at_sender.views} == {"before_loss"}
    assert rule(at_sender, "nak-psn").status == "not_judged"


def test_each_tap_is_judged_by_itself() -> None:
    files = [DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz" for host in "AB"]
    both = checked(*files)
    alone = [checked(file) for file in files]
    for index, one in enumerate(both.rules):
        assert one.judged == sum(found.rules[index].judged for found in alone)
        assert one.undecided == sum(found.rules[index].undecided for found in alone)
    assert {view.position for view in both.views} == {"before_loss", "behind_loss"}
    assert both.latency.nak_generation_ns == alone[1].latency.nak_generation_ns
    assert all(view.flow is not None for view in both.views)


def test_host_counters_agree_where_the_tap_can_know() -> None:
    run, _ = truth("i01_write")
    saved = HostCounters(HOSTS["B"], counters(run, "B"))
    found = checked(
        DATA / "i01_write_loss0.5_AtoB.atB.pcap.gz", options=ConformanceOptions(counters=saved)
    )
    assert {one.counter: one.agrees for one in found.counters} == {
        "out_of_seq_request": True,
        "rcvd_pkts": True,
        "sent_pkts": True,
    }
    at_sender = checked(
        DATA / "i01_write_loss0.5_AtoB.atA.pcap.gz", options=ConformanceOptions(counters=saved)
    )
    (lost,) = [one for one in at_sender.counters if one.counter == "rcvd_pkts"]
    assert lost.agrees is False
    assert lost.captured - lost.grew_by == 180  # what netem dropped on the way
    assert "after the tap" in lost.text


def test_duplicates_of_the_network_are_counted_as_the_host_does() -> None:
    run, _ = truth("i04")
    saved = HostCounters(HOSTS["B"], counters(run, "B"))
    found = checked(
        data("i04_write_duplicate1_AtoB.atB"), options=ConformanceOptions(counters=saved)
    )
    assert {one.counter: one.agrees for one in found.counters}["duplicate_request"] is True


def test_marks_without_cnps() -> None:
    (cnp,) = checked(data("i13")).cnp
    assert (cnp.ecn_marked_packets, cnp.cnps) == (443, 0)
    assert cnp.explained_by == []
