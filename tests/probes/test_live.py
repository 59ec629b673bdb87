"""What an opening took is released at the end, and when the opening fails."""

from __future__ import annotations

import errno
import os
import struct
import sys
import tempfile
import threading
import time
import types
from contextlib import ExitStack

import numpy as np
import pytest
from examples import first
from network import Watched, bth, ethernet, ipv4, ipv6, roce, roce_frames, udp
from probes_generator import FLOWS, Link
from waiting import until

from rocescope.analyzer.errors import CaptureError, UsageError
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.summarize import Summary
from rocescope.probes import bpf, live
from rocescope.probes import bpf as clock
from rocescope.probes import live as privileges
from rocescope.probes.live import LiveOptions, LiveSource, Opened, default_ring_bytes
from rocescope.probes.program import compile as bcc_module
from rocescope.probes.program import compile as stub_headers
from rocescope.probes.program import program
from rocescope.probes.program.compile import load

from .test_program import ENCAPSULATED, LONG, OTHER, PLAIN, SHORT

# What an opening took is released at the end, and when the opening fails.


class _Door(Opened):
    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails, self.released = fails, 0

    def _open(self) -> None:
        self._stack.callback(self._release)
        if self.fails:
            raise OSError("locked")

    def _release(self) -> None:
        self.released += 1


def test_the_end_releases() -> None:
    with _Door(fails=False) as door:
        assert not door.released
    assert door.released == 1


def test_a_failed_opening_releases() -> None:
    door = _Door(fails=True)
    with pytest.raises(OSError, match="locked"):
        door.__enter__()
    assert door.released == 1


# What is missing is said by name, with the remedy, on one line.

EVERYTHING = (1 << 41) - 1


def without(*bits: int) -> int:
    return EVERYTHING & ~sum(1 << bit for bit in bits)


@pytest.mark.parametrize(
    ("held", "namespaces", "missing"),
    [
        (EVERYTHING, True, []),
        (without(39), False, []),  # CAP_SYS_ADMIN stands for it
        (without(21), False, []),
        (without(21), True, ["CAP_SYS_ADMIN"]),
        (without(12), False, ["CAP_NET_ADMIN"]),
        (without(21, 39), False, ["CAP_BPF"]),
        (0, False, ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]),
    ],
)
def test_capabilities(monkeypatch, held, namespaces, missing):
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: held)
    assert privileges.missing_capabilities(namespaces) == missing
    if missing:
        with pytest.raises(CaptureError, match=f"needs {', '.join(missing)}: run with sudo"):
            privileges.check(["some"] if namespaces else [])


def test_effective_capabilities_are_those_of_the_kernel():
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("CapEff"))
    assert privileges.effective_capabilities() == int(line.split()[1], 16)


def test_old_kernel(monkeypatch):
    monkeypatch.setattr(privileges, "kernel_version", lambda: (5, 4))
    with pytest.raises(CaptureError, match=r"needs Linux 5\.15 or later.*tcpdump"):
        privileges.check()


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (errno.ENOSYS, "has no BPF"),
        (errno.EPERM, "seccomp"),
        (errno.EINVAL, "no BPF ring buffer"),
        (errno.ENOMEM, "raise the memory limit"),
        (errno.EMFILE, "too many open files"),
    ],
)
def test_ring_that_cannot_be_made(monkeypatch, code, what):
    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(privileges, "effective_capabilities", lambda: EVERYTHING)
    monkeypatch.setattr(bpf, "create_map", refuse)
    with pytest.raises(CaptureError, match=what) as caught:
        privileges.check()
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code == 3


def test_no_bcc(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcc", None)
    monkeypatch.setattr(bcc_module, "_SYSTEM_PACKAGES", "/nowhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(CaptureError, match="apt-get install python3-bpfcc"):
        bcc_module.import_bcc()


def test_another_package_named_bcc(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcc", types.ModuleType("bcc"))
    monkeypatch.setattr(bcc_module, "_SYSTEM_PACKAGES", "/nowhere")
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(CaptureError, match="bcc on PyPI is another package"):
        bcc_module.import_bcc()


def test_stub_headers_are_in_no_folder_that_the_environment_names(monkeypatch, tmp_path):
    """A user who keeps TMPDIR when becoming root could replace them."""
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "/before")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with stub_headers.stub_headers():
        folder = os.environ["BCC_KERNEL_SOURCE"]
        assert os.path.isfile(f"{folder}/include/linux/kconfig.h")
        assert os.listdir(tmp_path) == []
    assert os.environ["BCC_KERNEL_SOURCE"] == "/before"


def test_a_program_the_verifier_refuses(live_capture):
    reads_uninitialised = bytes.fromhex("bf20000000000000 9500000000000000")
    with pytest.raises(CaptureError, match=r"verifier rejects the bad probe \(EACCES\)") as caught:
        load(bpf.PROG_XDP, reads_uninitialised, "bad")
    assert "!read_ok" in str(caught.value)


# Live capture on real veth pairs: every hook, every encapsulation, every mishap.

IN, OUT = 0, 1
HOUR_NS = 3_600_000_000_000
TC = "tcx" if program.kernel_version() >= (6, 6) else "clsact"


def watch(names, **options):
    return Watched(LiveSource(names, LiveOptions(ring_bytes=1 << 20, **options)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hook", "becomes"),
    [
        ("tc", {TC}),
        ("clsact", {"clsact"}),
        ("xdp", {"xdp native"}),
        ("xdp-generic", {"xdp generic"}),
    ],
)
def test_every_hook_sees_what_arrives(network, hook, becomes):
    net = network()
    with watch([net.interface("right")], hook=hook) as seen:
        assert {a.hook for a in seen.source.attachments} == becomes
        net.send(roce_frames(300))
    assert seen.column("psn") == list(range(300))
    assert set(seen.column("tap")) == {IN}
    assert set(seen.column("wire_bytes")) == {14 + 20 + 8 + 12 + 64 + 4}
    assert set(seen.column("captured_bytes")) == {122}  # whole
    loss = seen.source.loss()
    assert (loss.matched, loss.exported, loss.ring_full) == (300, 300, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact"])
def test_both_directions_are_taps_of_their_own(network, hook):
    net = network()
    with watch([net.interface("left")], hook=hook) as seen:
        net.send(roce_frames(50), "left")
        net.send([roce(psn) for psn in range(1000, 1030)], "right")
    assert [tap.name for tap in seen.source.registry.taps.items] == [
        net.interface("left") + " in",
        net.interface("left") + " out",
    ]
    assert seen.column("psn", IN) == list(range(1000, 1030))
    assert seen.column("psn", OUT) == list(range(50))
    assert [tap.frames for tap in seen.source.registry.taps.items] == [30, 50]
    assert [loss.exported for loss in seen.source.loss_by_tap()] == [30, 50]


def test_wall_time(network):
    net = network()
    with watch([net.interface("left")]) as seen:
        before = time.time_ns()
        net.send(roce_frames(20))
        after = time.time_ns()
    times = np.array(seen.column("time_ns"))
    # The pairing of the clocks is good to some microseconds.
    assert before - 200_000 <= times.min() <= times.max() <= after + 200_000
    assert np.all(np.diff(times) >= 0)
    assert seen.source.clock_steps == 0


def test_a_wall_clock_that_is_set_back_is_known_of_its_taps(network, monkeypatch):
    net, measure = network(), clock.measure
    with watch([net.interface("left")]) as seen:
        net.send(roce_frames(20))
        monkeypatch.setattr(clock, "measure", lambda: (measure()[0] - HOUR_NS, 100))
        until(lambda: seen.source.clock_steps)
        net.send(roce_frames(20))
    times = np.array(seen.column("time_ns"))
    assert times.max() - times.min() > HOUR_NS - 10 * 10**9
    assert [tap.clock_steps for tap in seen.source.registry.taps.items] == [1, 1]


def test_bytes_are_those_that_were_sent(network):
    net = network()
    sent = [roce(psn, payload_bytes=psn) for psn in range(1, 120)]
    with watch([net.interface("left")], snap_bytes=96) as seen:
        net.send(sent)
    assert seen.frames == [frame[:96] for frame in sent]


@pytest.mark.parametrize("snap_bytes", [64, 100, 256])
def test_snap_length(network, snap_bytes):
    net = network()
    sent = [roce(psn, payload_bytes=400) for psn in range(5)]
    with watch([net.interface("right")], snap_bytes=snap_bytes, hook="xdp") as seen:
        net.send(sent)
    kept = -(-snap_bytes // 8) * 8
    assert seen.frames == [frame[:kept] for frame in sent]


@pytest.mark.thorough
def test_two_namespaces_with_equal_ifindex(network):
    one, two = network(), network()
    with watch([one.interface("right"), two.interface("right")]) as seen:
        indices = [interface.ifindex for interface in seen.source.interfaces]
        assert indices[0] == indices[1]
        one.send(roce_frames(40))
        two.send([roce(psn) for psn in range(500, 525)])
    assert seen.column("psn", 0) == list(range(40))
    assert seen.column("psn", 2) == list(range(500, 525))


def test_nothing_counts_before_all_interfaces_have_their_probes(network, monkeypatch):
    """Traffic that runs already would be missing at the interfaces that come last."""
    net = network()
    attach = live.attach

    def attach_amid_traffic(*args):
        made = attach(*args)
        net.send([roce(psn) for psn in range(1000, 1010)])
        return made

    monkeypatch.setattr(live, "attach", attach_amid_traffic)
    with watch([net.interface("left"), net.interface("right")]) as seen:
        net.send(roce_frames(30))
    assert [seen.column("psn", tap) for tap in range(4)] == [[], [*range(30)], [*range(30)], []]
    assert [loss.exported for loss in seen.source.loss_by_tap()] == [0, 30, 30, 0]
    assert sorted(n for t in seen.tables for n in t.frame_number.tolist()) == [*range(1, 61)]


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "xdp", "xdp-generic"])
def test_jumbo_frames(network, hook):
    net = network(mtu=9000)
    with watch([net.interface("right")], hook=hook) as seen:
        net.send(roce_frames(20, payload_bytes=8192))
    assert seen.column("psn") == list(range(20))
    assert set(seen.column("wire_bytes")) == {14 + 20 + 8 + 12 + 8192 + 4}
    assert set(seen.column("payload_bytes")) == {8192}
    assert set(seen.column("captured_bytes")) == {128}


@pytest.mark.thorough
def test_without_tcx_and_frames_in_several_buffers(network, monkeypatch):
    """What kernels before 6.6 and 5.18 lack, taken away from this one."""
    create = bpf.create_link

    def refuse_tcx(program, ifindex, attach_type, flags=0):
        if attach_type in (bpf.ATTACH_TCX_INGRESS, bpf.ATTACH_TCX_EGRESS):
            raise OSError(errno.EINVAL, "as a kernel without tcx says")
        return create(program, ifindex, attach_type, flags)

    monkeypatch.setattr(bpf, "create_link", refuse_tcx)
    monkeypatch.setattr(program, "kernel_version", lambda: (5, 15))
    net = network()
    for hook, becomes in (("tc", "clsact"), ("xdp", "xdp native")):
        with watch([net.interface("right")], hook=hook) as seen:
            assert {a.hook for a in seen.source.attachments} == {becomes}
            net.send(roce_frames(50))
        assert seen.column("psn") == list(range(50))
        assert seen.source.loss().exported == 50
    assert "clsact" not in net.ip("-d", "link", "show", "right")
    # Jumbo frames take several buffers where XDP is native; there it becomes generic.
    jumbo = network(mtu=9000)
    with watch([jumbo.interface("right")], hook="xdp") as seen:
        assert {a.hook for a in seen.source.attachments} == {"xdp generic"}
        jumbo.send(roce_frames(20, payload_bytes=8192))
    assert seen.column("psn") == list(range(20))


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact", "xdp"])
def test_interface_down_and_up(network, hook):
    net = network()
    with watch([net.interface("right")], hook=hook) as seen:
        net.send([roce(1)])
        net.ip("link", "set", "right", "down")
        net.ip("link", "set", "right", "up")
        until(lambda: "LOWER_UP" in net.ip("link", "show", "left"))
        net.send([roce(2)])
        assert seen.source.gone() == []
    assert seen.column("psn") == [1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact", "xdp"])
def test_interface_is_deleted(network, hook):
    gone, stays = network(), network()
    with watch([gone.interface("right"), stays.interface("right")], hook=hook) as seen:
        gone.send([roce(1)])
        gone.ip("link", "del", "right")
        assert [interface.label for interface in seen.source.gone()] == [gone.interface("right")]
        stays.send([roce(2)])
    assert seen.column("psn") == [1, 2]
    assert seen.source.loss().exported == 2


def test_namespace_is_deleted(network):
    net = network()
    with watch([net.interface("right")], hook="clsact") as seen:
        net.send([roce(1)])
        net.ip("link", "del", "right")
        assert len(seen.source.gone()) == 1
    assert seen.column("psn") == [1]


@pytest.mark.parametrize("hook", ["tc", "xdp"])
def test_mtu_changes(network, hook):
    net = network()
    with watch([net.interface("right")], hook=hook) as seen:
        net.send([roce(1)])
        for interface in ("left", "right"):
            net.ip("link", "set", interface, "mtu", "9000")
        net.send([roce(2, payload_bytes=8000)])
        for interface in ("left", "right"):
            net.ip("link", "set", interface, "mtu", "1200")
        net.send([roce(3)])
    assert seen.column("psn") == [1, 2, 3]
    assert seen.column("payload_bytes") == [64, 8000, 64]


@pytest.mark.parametrize("first_ends", [True, False])
@pytest.mark.parametrize("hook", ["tc", "clsact"])
def test_the_end_of_a_capture_leaves_the_other_one(network, hook, first_ends):
    net = network()
    first, second = (watch([net.interface("left")], hook=hook) for _ in range(2))
    ends, stays = (first, second) if first_ends else (second, first)
    with ExitStack() as stack:
        stack.enter_context(first)
        stack.enter_context(second)
        net.send(roce_frames(50))
        ends.source.stop()
        attached = ends.source.attachments
        until(lambda: all(a.link < 0 and a.filter is None for a in attached))
        assert stays.source.gone() == []
        net.send([roce(psn) for psn in range(50, 100)])
    assert stays.column("psn") == list(range(100))
    assert ends.column("psn") == list(range(50))
    assert "clsact" not in net.run("tc", "qdisc", "show", "dev", "left")


def test_another_program_removes_the_probes(network):
    net = network()
    with watch([net.interface("left")], hook="clsact") as seen:
        net.run("tc", "filter", "del", "dev", "left", "egress")
        assert [interface.name for interface in seen.source.gone()] == ["left"]


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["xdp", "xdp-generic"])
def test_an_xdp_program_of_others_stays(network, hook):
    """Neither a capture at XDP, which is refused, nor one at tc disturbs it."""
    net = network()
    with watch([net.interface("left")], hook=hook) as first:
        for second in ("xdp", "xdp-generic"):
            with pytest.raises(CaptureError, match="already has an XDP program: use --hook tc"):
                with LiveSource([net.interface("left")], LiveOptions(hook=second)):
                    pass
        with watch([net.interface("left")], hook="tc") as shared:
            net.send([roce(3)], "right")
            until(lambda: first.source.loss().exported == 1)
        net.send([roce(4)], "right")
        until(lambda: first.source.loss().exported == 2)
    if hook == "xdp":
        assert shared.column("psn") == [3]
    assert first.column("psn") == [3, 4]


def test_a_small_ring_says_exactly_what_it_lost(network):
    net = network()
    source = LiveSource([net.interface("left")], LiveOptions(ring_bytes=4096))
    with source:
        net.send(roce_frames(5000))  # nobody reads meanwhile
        loss = source.loss()
        source.stop()
        packets = sum(len(table) for table in source.tables())
    assert packets == loss.exported > 0
    assert loss.ring_full > 0
    assert loss.exported + loss.ring_full == loss.matched == 5000
    assert source.loss() == loss


@pytest.mark.thorough
def test_order_over_cpus(network):
    """Two processors send at once; the tables are in order of time all the same."""
    net = network()
    source = LiveSource([net.interface("left")])
    tables = []
    with source:
        senders = []
        begin = time.monotonic() + 0.5
        for cpu in (0, 1):
            script = (
                "import os,socket,time;"
                f"os.sched_setaffinity(0,{{{cpu}}});"
                "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('left',0));"
                f"f=bytes.fromhex('{roce(cpu).hex()}');"
                f"time.sleep(max(0, {begin} - time.monotonic()));"
                "[s.send(f) for _ in range(20000)]"
            )
            senders.append(net.start("python3", "-c", script))
        for table in source.tables():
            tables.append(table)
            if all(sender.poll() is not None for sender in senders):
                source.stop()
        assert [sender.wait() for sender in senders] == [0, 0]
    by_cpu = source.loss_by_tap_and_cpu()["exported"].sum(axis=0)
    assert np.count_nonzero(by_cpu) >= 2
    times = np.concatenate([table.time_ns for table in tables])
    assert np.all(np.diff(times) >= 0)
    psns = np.concatenate([table.psn for table in tables])
    assert np.bincount(psns).tolist() == [20000, 20000]


def test_tables_come_in_order_of_time(network):
    net = network()
    source = LiveSource([net.interface("left"), net.interface("right")])
    with source:
        net.send(roce_frames(2000))
        source.stop()
        times = np.concatenate([table.time_ns for table in source.tables()])
    assert len(times) == 4000
    assert np.all(np.diff(times) >= 0)


@pytest.mark.thorough
def test_nothing_stays_attached(network):
    net = network()
    with watch([net.interface("left")], hook="tc"):
        pass
    with watch([net.interface("left")], hook="clsact"):
        assert "clsact" in net.run("tc", "qdisc", "show", "dev", "left")
    with watch([net.interface("left")], hook="xdp"):
        assert "prog/xdp" in net.ip("-d", "link", "show", "left")
    assert "clsact" not in net.run("tc", "qdisc", "show", "dev", "left")
    assert "prog/xdp" not in net.ip("-d", "link", "show", "left")


def test_a_clsact_of_others_stays(network):
    net = network()
    net.run("tc", "qdisc", "add", "dev", "left", "clsact")
    with watch([net.interface("left")], hook="clsact"):
        pass
    assert "clsact" in net.run("tc", "qdisc", "show", "dev", "left")
    assert net.run("tc", "filter", "show", "dev", "left", "ingress") == ""


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"snap_bytes": 32}, "64 to 256"),
        ({"snap_bytes": 300}, "64 to 256"),
        ({"ring_bytes": 0}, "--ring must be 4KiB to 1GiB"),
        ({"sample": 0}, "--sample must be 1 or more"),
        ({"udp_ports": (0,)}, "--udp-port must be 1"),
    ],
)
def test_impossible_options(options, what):
    with pytest.raises(UsageError, match=what):
        LiveSource(["any"], LiveOptions(**options))


def test_unknown_interface(live_capture):
    with pytest.raises(CaptureError, match="there is no interface nowhere0; there are: lo"):
        with LiveSource(["nowhere0"]):
            pass


def test_unknown_namespace(live_capture):
    with pytest.raises(CaptureError, match="cannot open network namespace nowhere"):
        with LiveSource(["nowhere:eth0"]):
            pass


def test_a_pipe_is_no_namespace_and_not_waited_for(live_capture, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaptureError, match="cannot enter network namespace"):
        with LiveSource([f"{tmp_path / 'pipe'}:eth0"]):
            pass


def test_interface_given_twice(network):
    net = network()
    with pytest.raises(UsageError, match="given twice"):
        with LiveSource([net.interface("left"), net.interface("left")]):
            pass


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact"])
@pytest.mark.parametrize("tpid", first(1, [0x8100, 0x88A8]))
def test_a_tag_in_metadata_goes_back_into_the_frame(network, hook, tpid):
    """Receiving takes the tag out of the frame; a bridge sends it on that way."""
    net = network()
    net.ip("link", "add", "uplink", "type", "veth", "peer", "name", "far")
    net.ip("link", "add", "bridge", "type", "bridge")
    for interface in ("right", "uplink"):
        net.ip("link", "set", interface, "master", "bridge")
    for interface in ("uplink", "far", "bridge"):
        net.ip("link", "set", interface, "addrgenmode", "none", "up")
    plain = [roce(psn, payload_bytes=psn) for psn in range(60)]
    sent = [frame[:12] + struct.pack(">HH", tpid, 3 << 13 | 100) + frame[12:] for frame in plain]
    with watch([net.interface("right"), net.interface("uplink")], hook=hook) as seen:
        net.send(sent)
    assert seen.column("psn", 0) == seen.column("psn", 3) == list(range(60))  # right in, uplink out
    assert sorted(seen.frames) == sorted([frame[:128] for frame in sent] * 2)
    assert set(seen.column("vlan")) == {3 << 13 | 100}
    assert seen.column("wire_bytes", 3) == [len(frame) for frame in sent]


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact", "xdp", "xdp-generic"])
def test_tags_in_the_frame(network, hook):
    net = network()
    tags = [(0x88A8, 5), (0x8100, 100)]
    sent = [
        ethernet(ipv4(udp(bth(1) + bytes(100))), tags=tags[1:]),
        ethernet(ipv6(udp(bth(2) + bytes(100))), 0x86DD, tags=tags),
    ]
    with watch([net.interface("right")], hook=hook) as seen:
        net.send(sent)
    assert seen.frames == [frame[:128] for frame in sent]
    assert seen.column("psn") == [1, 2]
    assert seen.column("wire_bytes") == [len(frame) for frame in sent]


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "clsact", "xdp", "xdp-generic"])
def test_every_encapsulation_on_a_wire(network, hook):
    net = network()
    sent = PLAIN | ENCAPSULATED
    with watch([net.interface("right")], hook=hook) as seen:
        net.send([*sent.values(), *OTHER.values(), *SHORT.values()])
    assert seen.frames == [
        *(frame[: 256 if name in LONG else 128] for name, frame in PLAIN.items()),
        *(frame[:256] for frame in ENCAPSULATED.values()),
    ]
    # Looking inside is the decoder's work.
    assert seen.column("psn") == [5] * (len(sent) - 1)
    contents = dict(seen.source.decoder.counters.contents())
    assert contents["UDP port 4971"] == 1  # MRC's, without an MRC packet


def test_ipv6_live(network):
    net = network()
    sent = [ethernet(ipv6(udp(bth(psn))), 0x86DD) for psn in range(100)]
    with watch([net.interface("right")]) as seen:
        net.send(sent)
    assert seen.column("psn") == list(range(100))
    assert set(seen.column("flow_label")) == {0x12345}
    assert set(seen.source.registry.endpoints.texts()) == {"fd00::1", "fd00::2"}


def test_filter_and_sample(network):
    net = network()
    with watch([net.interface("right")], filter="qp == 0x22", sample=4) as seen:
        net.send(roce_frames(400) + roce_frames(400, qp=0x22))
    loss = seen.source.loss()
    assert loss.matched == 800
    assert loss.filtered == 400
    assert 60 <= loss.exported <= 140
    assert loss.exported + loss.sampled_out == 400
    assert len(seen.column("psn")) == loss.exported
    assert set(seen.column("dest_qp")) == {0x22}


@pytest.mark.thorough
def test_frames_in_flows_out(live_capture, need_tool):
    """At the generator's full rate every PSN of every flow is accounted for."""
    need_tool("ethtool")
    frames = 256_000
    with Link() as link:
        source = LiveSource([f"{link.name}:right"], LiveOptions(hook="tc"))
        measuring = Measuring(window_ns=10**8, many_taps=False)
        with source:

            def send():
                link.send(frames)
                source.stop()

            sender = threading.Thread(target=send)
            sender.start()
            for table in source.tables():
                measuring.update(table, source.decoder.take_cm_messages())
            sender.join()
        summary = Summary(measuring, source.registry, "entropy")
        flows = summary.flows()
    loss = source.loss()
    assert loss.seen >= loss.matched == frames
    assert loss.exported + loss.ring_full == frames
    assert [tap.dropped for tap in source.registry.taps.items] == [loss.ring_full, 0]
    assert len(flows) == FLOWS
    assert sum(flow.packets for flow in flows) == loss.exported
    if not loss.ring_full:
        assert {flow.packets for flow in flows} == {frames // FLOWS}
        assert sum(flow.reordered_packets or 0 for flow in flows) == 0
        assert sum(flow.missing_packets or 0 for flow in flows) == 0


def test_the_time_that_packets_may_wait():
    source = LiveSource(["left"], LiveOptions(ring_bytes=1 << 20))
    record = 16 + 256  # header and the most bytes of a frame
    assert source.room_s((1 << 20) // record) == 1
    assert source.room_s(0) == float("inf")


def test_the_rings_of_all_cpus_share_their_memory():
    counts = (1, 2, 3, 4, 8, 32, 33, 64, 128, 256, 1024)
    sizes = {cpus: default_ring_bytes(cpus) / (1 << 20) for cpus in counts}
    assert sizes == {
        1: 64, 2: 32, 3: 16, 4: 16, 8: 16, 32: 16, 33: 8, 64: 8, 128: 4, 256: 2, 1024: 0.5
    }  # fmt: skip
    for cpus in range(1, 1025):
        ring = default_ring_bytes(cpus)
        assert ring.bit_count() == 1  # the kernel demands a power of two
        assert cpus * ring <= 512 << 20
        assert ring >= 16 << 20 or 2 * cpus * ring > 512 << 20
