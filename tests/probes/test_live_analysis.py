"""A live analysis from inside: RDMA ports, owners that fail, too many flows."""

from __future__ import annotations

import io

import numpy as np
import pytest
from captures import data
from network import ethernet, ipv4, roce, udp

from rocescope.analyzer.measures.ending import end_idle
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.measures.series import DEFAULT_WINDOW_NS
from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import LiveInterval
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.kernels.kernel import Kernel
from rocescope.kernels.libraries import shape_of, text_of
from rocescope.probes import live_analysis
from rocescope.probes.live import LiveOptions
from rocescope.probes.live_analysis import LiveAnalysis
from rocescope.probes.rings import Loss
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report

from .conftest import write


@pytest.fixture(autouse=True)
def privileges_kept(monkeypatch):
    """The process of the tests needs its own later."""
    monkeypatch.setattr(live_analysis, "become_unprivileged", lambda *_: [])


def opened(net, options=None, **more):
    live = LiveOptions(ring_bytes=1 << 20, namespace=net.name)
    return LiveAnalysis(["left"], live, options, **more)


@pytest.mark.thorough
def test_rdma_ports_in_result_and_report(network, tree):
    net = network()
    with opened(net, rdma_devices=tree) as live:
        write(tree / "rxe0" / "ports" / "1" / "hw_counters" / "sent_pkts", 12_345)
        write(tree / "rxe0" / "ports" / "1" / "counters" / "port_rcv_data", 4)
        net.send([roce(1), ethernet(ipv4(udp(bytes(60), dport=4793)))])
        live.source.stop()
        live.run(lambda _interval: None)
        analysis = live.result()
    assert "1 packets of Ultra Ethernet were seen, and not captured" in analysis.warnings
    (port,) = analysis.rdma_ports
    assert (port.device, port.port, port.restarted) == ("rxe0", 1, ["port_rcv_data"])
    assert port.counters == {"link_downed": 0, "port_xmit_data": 0}
    assert port.hw_counters == {"rcvd_pkts": 0, "sent_pkts": 12_335}
    sink = io.StringIO()
    Report(analysis, page_on(sink)).print()
    section = sink.getvalue().partition("RDMA PORTS\n")[2].splitlines()
    assert " ".join(section[:2]) == (
        "Counters grew on 1 of 1 RDMA port during the capture. rxe0/1: reset of port_rcv_data."
    )
    assert section[3].split() == ["rxe0/1", "sent_pkts", "12,335"]


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["__init__", "update", "owners"])
def test_owner_probes_that_fail_do_not_end_the_capture(network, monkeypatch, where):
    def fail(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(live_analysis.OwnerWatch, where, fail)
    net = network()
    with opened(net) as live:
        net.send([roce(1), roce(2)])
        live.source.stop()
        live.run(lambda _interval: None)
        analysis = live.result()
    assert [flow.packets for flow in analysis.flows] == [2]
    assert live.reasons[-1] == "RuntimeError: no such luck"


@pytest.mark.parametrize("keep", [None, "psn > 3"])
def test_with_a_filter_flows_begin_later_than_cm_messages_say(network, keep):
    live = LiveOptions(ring_bytes=1 << 20, namespace=network().name, filter=keep)
    assert LiveAnalysis(["left"], live).pipeline.measuring.filtered == (keep is not None)


@pytest.mark.thorough
def test_more_flows_than_fit_end_it_and_are_said(network):
    net = network()
    intervals = []
    with opened(net, AnalyzeOptions(max_flows=3)) as live:
        net.send([roce(1, qp=qp) for qp in range(0x20, 0x25)])
        live.run(intervals.append)
        analysis = live.result()
    assert live.ended_by == (
        "more than 3 flows at once: give a --filter to analyse a part, or a shorter --idle-after"
    )
    assert f"ended early, {live.ended_by}" in analysis.warnings
    # The fifth one may have come when it had ended.
    assert 3 < len(analysis.flows) == intervals[-1].flows_total <= 5


def test_sums_of_intervals_are_those_of_present_and_ended_flows():
    with open_captures([str(data("i01_write_loss0.5_AtoB.atB"))], AnalyzeOptions()) as run:
        flows = run.conclude(run.read()).flows
        numbers = {name: n for n, name in enumerate(Ended.__struct_fields__, 1)}
        run.measuring.ended = Ended(**numbers)
        sums = live_analysis._Counted(run.measuring, Loss()).sums
    assert sums == {
        name: numbers[name] + sum(getattr(flow, name) or 0 for flow in flows)
        for name in LiveInterval.__struct_fields__
        if name in numbers and name != "flows"
    }
    assert sums["retransmitted_packets"] > numbers["retransmitted_packets"]


def test_idle_flows_need_no_kernel_that_is_not_warm(monkeypatch):
    """A process without privileges cannot store any, and compiling takes seconds and 80 MB."""
    used = [set(), set()]
    call = Kernel.__call__

    def noted(self, *arguments):
        used[-1].add((self.__name__, text_of(shape_of(arguments))))
        return call(self, *arguments)

    monkeypatch.setattr(Kernel, "__call__", noted)
    live_analysis.warm_up(DEFAULT_WINDOW_NS)
    warm, ended = used.pop(), 0
    measuring = Measuring(DEFAULT_WINDOW_NS, many_taps=True)
    for first in range(0, 6000, 200):
        table, n = PacketTable.zeros(200), np.arange(first, first + 200)
        table.time_ns[:], table.dest_qp[:], table.psn[:] = n * DEFAULT_WINDOW_NS, n // 2, n
        table.opcode[:], table.traffic_class[:] = np.where(n % 2, 17, 10), n % 7
        measuring.update(table)
        ended += end_idle(measuring, 10**10, [""])
    measuring.hops.settled()
    assert ended > 1000 and warm
    assert used[-1] <= warm
