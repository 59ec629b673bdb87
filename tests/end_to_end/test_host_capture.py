"""A capture that `rocescope capture` made on the host of real queue pairs.

Linux 6.1, rxe0 (10.0.0.1) and rxe1 (10.0.0.2) on a veth pair: ib_write_bw, then rping, each
with RANK=3 at rxe0 and RANK=0 at rxe1, while rocescope captured at the interface of rxe0.
Beside: what ib_write_bw printed of itself, and what rxe0 counted meanwhile.
"""

import pytest
from captures import DATA

from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

CAPTURE = DATA / "h01_rxe_at_the_host.pcapng.gz"
HERE, THERE = "10.0.0.1", "10.0.0.2"
WRITE_QP, PING_QP = 0x11, 0x12  # the devices number alike: both ends have the same
COUNTED = {
    "completer_retry_err": 1,
    "duplicate_request": 0,
    "out_of_seq_request": 0,
    "rcvd_pkts": 139,
    "rcvd_rnr_err": 0,
    "rcvd_seq_err": 0,
    "send_rnr_err": 0,
    "sent_pkts": 840,
}


@pytest.fixture(scope="module")
def result():
    checks = ConformanceOptions(counters=HostCounters(HERE, COUNTED))
    return analyze([str(CAPTURE)], AnalyzeOptions(conformance=checks))


def test_flows_have_their_processes_and_ranks(result):
    owners = {
        (f.src, f.dest_qp): (f.owner.command, f.owner.rank, f.owner.end)
        for f in result.flows
        if f.owner
    }
    # Both ends are processes of this host; a flow goes to the one and comes from the other.
    assert owners == {
        (HERE, WRITE_QP): ("ib_write_bw", 0, "destination"),
        (THERE, WRITE_QP): ("ib_write_bw", 3, "destination"),
        (HERE, PING_QP): ("rping", 0, "destination"),
        (THERE, PING_QP): ("rping", 3, "destination"),
    }


def test_connections_are_proved_by_the_host(result):
    for connection in result.connections:
        assert "host_probe" in connection.evidence
        one, other = (result.flows[i] for i in connection.flows)
        assert (one.src, one.dst, one.dest_qp) == (other.dst, other.src, other.dest_qp)
    assert len(result.connections) == 2


def test_every_counter_of_the_adapter_agrees(result):
    """Both directions of the interface are one vantage point."""
    found = {check.counter: check.captured for check in result.conformance.counters}
    assert found == COUNTED
    assert {check.tap for check in result.conformance.counters} == {f"{CAPTURE.name}:v0"}
    assert result.conformance.conformant
    judged = {rule.id for rule in result.conformance.rules if rule.judged}
    assert {"ack-order", "ack-request", "msn", "read-range", "rewind-order"} <= judged
