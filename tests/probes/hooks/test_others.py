"""Programs of others that take packets before our probes see them, on real interfaces."""

import os
import re
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest
from network import roce_frames
from waiting import until

from rocescope.probes import bpf
from rocescope.probes.counters.counters import CounterOptions, CounterSource
from rocescope.probes.hooks import clsact
from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.probes.live import LiveOptions, LiveSource

from ...commands.test_analyze_live import Analyzing


def returning(number):
    """Machine code: r0 = number; exit."""
    return struct.pack("<BBhi", 0xB7, 0, 0, number) + struct.pack("<BBhi", 0x95, 0, 0, 0)


XDP_DROP, TCX_DROP, TCX_PASS = 1, 2, 0


@contextmanager
def program(net, interface, kind, attach_type, number, flags=0, name="firewall"):
    loaded = bpf.load_program(kind, returning(number), name=name, attach_type=attach_type)

    def attach():
        return bpf.create_link(loaded, socket.if_nametoindex(interface), attach_type, flags)

    try:
        link = in_namespace(net.name, attach)
        yield bpf.object_info(loaded)
        os.close(link)
    finally:
        os.close(loaded)


def xdp(net, interface="right", name="firewall"):
    flags = bpf.XDP_GENERIC
    return program(net, interface, bpf.PROG_XDP, bpf.ATTACH_XDP, XDP_DROP, flags, name)


def tcx(net, interface, attach_type, number, flags=bpf.BEFORE, name="firewall"):
    return program(net, interface, bpf.PROG_SCHED_CLS, attach_type, number, flags, name)


def id_of(info):
    return struct.unpack_from("I", info, 4)[0]


def source(net, interface, hook="tc"):
    return LiveSource([net.interface(interface)], LiveOptions(hook=hook, ring_bytes=1 << 20))


def test_an_xdp_program_hides_packets_and_is_said(network):
    net = network()
    with xdp(net) as info, source(net, "right") as live:
        net.send(roce_frames(10))
        (line,) = live.others.lines()
        live.finish()
        assert live.loss().seen == 0  # which would look like packets that were never sent
    assert f"another program (xdp id {id_of(info)} firewall) runs before ours on" in line
    assert f"{net.interface('right')} in" in line


def test_an_xdp_program_that_comes_during_the_capture_is_said(network, monkeypatch):
    monkeypatch.setattr("rocescope.probes.hooks.others._LOOK_EVERY_S", 0)
    net = network()
    with source(net, "right") as live:
        assert live.others.lines() == []
        with xdp(net) as info:
            (line,) = live.others.lines()
            assert f"xdp id {id_of(info)}" in line
        assert live.others.lines() == [line]  # it was there: packets are missing


@pytest.mark.parametrize("number", [TCX_DROP, TCX_PASS])
def test_a_tcx_program_before_the_probe_of_sent_packets(network, number):
    """The one that ends the chain hides packets although they are sent."""
    net = network()
    with tcx(net, "left", bpf.ATTACH_TCX_EGRESS, number), source(net, "left") as live:
        with suppress(OSError):  # the sender is told of the drop
            net.send(roce_frames(10))
        (line,) = live.others.lines()
        live.finish()
        assert live.loss().seen == 0
    assert "(tcx id" in line and "left out" in line


def test_a_tcx_program_behind_the_probe_is_no_matter(network):
    net = network()
    with (
        tcx(net, "right", bpf.ATTACH_TCX_INGRESS, TCX_DROP, bpf.AFTER),
        source(net, "right") as live,
    ):
        net.send(roce_frames(10))
        until(lambda: live.loss().seen == 10)
        assert live.others.lines() == []


@pytest.mark.thorough
def test_filters_run_before_a_probe_on_clsact(network):
    net = network()
    drop = bpf.load_program(bpf.PROG_SCHED_CLS, returning(TCX_DROP), name="firewall")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clsact, "_INFO", 1 << 16 | clsact._ALL_PROTOCOLS)
        for name in ("_NAME", "_NAME_WITH_QDISC"):
            patch.setattr(clsact, name, b"drops_all\0")
        in_namespace(
            net.name, lambda: clsact.add_filter(drop, socket.if_nametoindex("right"), "in")
        )
    with source(net, "right", "clsact") as live:
        net.send(roce_frames(10))
        (line,) = live.others.lines()
        live.finish()
        assert live.loss().seen == 0
    assert re.search(r"\(tc id \d+ drops_all\) runs before ours", line)
    with source(net, "right") as live:  # tcx is before the filters
        net.send(roce_frames(10))
        until(lambda: live.loss().seen == 10)
        assert live.others.lines() == []
    os.close(drop)


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact"])
def test_captures_of_our_own_are_no_others(network, hook):
    net = network()
    with source(net, "left", hook), source(net, "left", hook) as live:
        assert live.others.lines() == []
        with CounterSource([net.interface("left")], CounterOptions()) as counters:
            assert counters.others.lines() == []


@pytest.mark.thorough
def test_the_commands_say_it(network, tmp_path):
    net = network()
    with xdp(net):
        live = Analyzing(net, tmp_path, "right", "-f", "json")
        live.wait_for("another program (xdp id")
        assert live.end() == 0
        assert any("another program (xdp id" in line for line in live.lines()[-1]["warnings"])
        out = tmp_path / "x.pcapng"
        arguments = ["right", "-w", str(out), "--duration", "1s"]
        capturing = Analyzing(net, tmp_path, *arguments, command="capture")
        assert capturing.process.wait(300) == 0
        assert "another program (xdp id" in capturing.err.read_text()
        assert b"warning: another program (xdp id" in out.read_bytes()
        counting = Analyzing(
            net, tmp_path, "right", "--counters", "--duration", "1s", command="capture",
            said="counting on",
        )  # fmt: skip
        assert counting.process.wait(300) == 0
        assert "another program (xdp id" in counting.err.read_text()


@pytest.mark.thorough
def test_names_of_programs_steer_no_terminal_and_doctor_lists_them(network):
    net = network()
    with xdp(net, name="fire.wall"):
        command = [sys.executable, "-m", "rocescope", "doctor", "--format", "json"]
        done = net.run(*command)
    assert re.search(r"right: xdp id \d+ fire\.wall", done)
    clean = subprocess.run(["ip", "netns", "exec", net.name, *command], capture_output=True)
    assert b"none at any interface of this network namespace" in clean.stdout
