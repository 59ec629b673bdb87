"""Live capture: RoCE packets of interfaces as frame batches.

A session of the terminal UI restarts when its packet filter changes. To attach the probes
again would need privileges that `begin` has given up for the whole process, so `LiveProbes` stay
attached while their readers change.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Self, TypeVar

import numpy as np

from ..analyzer.capture.pcapng_writer import Blocks, interface_description, section_header
from ..analyzer.decode.decoder import Decoder
from ..analyzer.decode.merge import merge_tables
from ..analyzer.errors import CaptureError, UsageError
from ..analyzer.results.flow import Owner
from ..analyzer.track.tracker import FlowTracker
from ..analyzer.wire.bth import ROCE_UDP_PORT
from ..analyzer.wire.packets import I64, LINKTYPE_ETHERNET, FrameBatch, PacketTable
from ..analyzer.wire.registry import MOST_ADDRESSES, Endpoints, Registry
from ..analyzer.wire.taps import Tap
from ..kernels.kernel import Records
from ..version import VERSION
from . import bpf
from .hooks.attach import Attachment, Hook, attach, directions_of, privileges_of
from .hooks.interfaces import Interface, find_interfaces
from .hooks.others import OthersBefore
from .owners.watch import OwnerWatch, watch_owners
from .program.compile import find_bcc
from .program.filter import c_condition
from .program.program import Compiled, ProgramOptions, kernel_version, strongly_ordered
from .rights import allow, become_unprivileged
from .rings import (
    INBOUND,
    LARGEST_RECORD,
    LOSS,
    OUTBOUND,
    WIDE_SNAP,
    Drain,
    Loss,
    PacketBlocks,
    Rings,
    Wakeups,
    count_taps,
    total,
)

# Context managers that release everything when their opening fails.


class Opened:
    """A context manager; `_open` puts what must be released on `_stack`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @abstractmethod
    def _open(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


# Requirements of live capture on this machine and process.

OLDEST_KERNEL = (5, 15) if strongly_ordered() else (5, 18)
"""From 5.18 on atomic additions in BPF are ordered on arm64 too."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
CAP_SYS_ADMIN = 21


def effective_capabilities() -> int:
    """Bit mask of this process's effective capabilities."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return 0


def missing_capabilities(namespaces: bool = False) -> list[str]:
    """Capabilities that live capture needs and this process lacks.

    CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON; other network `namespaces`
    need it.
    """
    held = effective_capabilities()
    is_admin = bool(held >> CAP_SYS_ADMIN & 1)
    missing = [
        name
        for name, bit in CAPABILITIES.items()
        if not held >> bit & 1 and not (is_admin and name != "CAP_NET_ADMIN")
    ]
    if namespaces and not is_admin:
        missing.append("CAP_SYS_ADMIN")
    return missing


def check(namespaces: Iterable[str | None] = ()) -> None:
    """CaptureError with the remedy if live capture cannot work here."""
    version = kernel_version()
    if version < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise CaptureError(
            f"live capture needs Linux {oldest} or later, this is {os.uname().release};"
            " capture with tcpdump -s 128 and analyze the file"
        )
    missing = missing_capabilities(any(namespaces))
    if missing:
        raise CaptureError(
            f"live capture needs {', '.join(missing)}: run with sudo, or give the process"
            " these capabilities (setcap, systemd AmbientCapabilities)"
        )
    try:
        os.close(bpf.create_map(bpf.MAP_RINGBUF, 0, 0, bpf.page_bytes(), name="rocescope_test"))
    except OSError as error:
        raise CaptureError(_no_ring(error)) from None


def _no_ring(error: OSError) -> str:
    match error.errno:
        case errno.ENOSYS:
            return "this kernel has no BPF (CONFIG_BPF_SYSCALL): capture with tcpdump"
        case errno.EPERM:
            return (
                "bpf(2) is refused despite the capabilities: a container's seccomp"
                " profile or kernel lockdown forbids it; run on the host or with --privileged"
            )
        case errno.EINVAL:
            return "this kernel has no BPF ring buffer: Linux 5.8 or later is needed"
        case errno.ENOMEM:
            return "no memory for BPF maps: raise the memory limit of this control group"
    return f"the BPF ring buffer does not work here: {(error.strerror or '').lower()}"


POLL_S = 0.02
"""Poll interval. Rings wake the reader before they fill; fewer, larger batches cost less."""
_T = TypeVar("_T")
_MIB = 1 << 20
_FEW_RINGS_BYTES, _ALL_RINGS_BYTES = 64 * _MIB, 512 * _MIB
_DEFAULT_RING, _SMALLEST_RING = 16 * _MIB, 4096
_SETTLE_S = 0.5
_STATE_LOSSES_EVERY_S = 1.0
_MOST_TRIES = 100


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Options of the capture."""

    hook: Hook = "tc"
    namespace: str | None = None
    """Network namespace of interfaces that do not name their own."""
    snap_bytes: int = 128
    """Bytes kept of each frame (rounded up to a multiple of 8); encapsulated frames and small
    RC WRITE ONLYs keep 256."""
    ring_bytes: int | None = None
    """Size of each CPU's ring (rounded up to a power of two); None: `default_ring_bytes`."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    mirror: bool = True
    """Also search GRE, ERSPAN, VXLAN, Geneve and MPLS for RoCE."""
    filter: str | None = None
    """Packets to export, as a filter of the analyzer."""
    sample: int = 1
    """Keep one packet in N of each flow."""
    check_icrc: bool = False


class LiveSource(Opened):
    """Live capture on some interfaces; a context manager.

    `registry` has one tap per interface and direction. Enter it, then iterate either
    `frames()` or `tables()` in one thread; `stop()` may be called from any other
    thread or a signal handler, and ends the iteration after all captured frames. `loss()`
    is exact then.

    to_blocks: iterate `blocks()` instead; frames are not decoded.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        options: LiveOptions | None = None,
        *,
        registry: Registry | None = None,
        to_blocks: bool = False,
    ) -> None:
        self.options = _checked(options or LiveOptions())
        self.registry = registry or Registry()
        self.attachments: list[Attachment] = []
        self.interfaces: list[Interface] = []
        self.others = OthersBefore(())
        """Programs of others that run before the probes."""
        self.first_tap = len(self.registry.taps)
        """The first tap of this source; the others follow."""
        self.snapped_frames = 0
        """Truncated frames in `tables()`."""
        self._to_blocks = to_blocks
        self._blocks: PacketBlocks | None = None
        self._gone: list[Interface] = []
        self._names = list(interfaces)
        super().__init__()
        self.ends: float | None = None
        """When to stop, in seconds of time.monotonic()."""
        self._stopping, self._paused = threading.Event(), threading.Event()
        self._wakeups: Wakeups | None = None
        self._rings: Rings | None = None
        self._before = np.zeros((), LOSS)

    def check(self) -> None:
        """CaptureError or UsageError if the host, privileges or interfaces do not allow it."""
        if not self._names:
            raise UsageError("name the interfaces to capture on")
        namespaces = [self.options.namespace, *(n.rpartition(":")[0] for n in self._names)]
        check(namespaces)
        find_bcc()
        self.interfaces = find_interfaces(self._names, self.options.namespace)

    def _open(self) -> None:
        options = self.options
        self.check()
        condition = c_condition(options.filter) if options.filter else "1"
        self._directions = [
            (interface, direction)
            for interface in self.interfaces
            for direction in directions_of(options.hook)
        ]
        for interface, direction in self._directions:
            self.registry.taps.add(_tap(interface, direction, options))
        self._tap_frames = np.zeros(len(self.registry.taps), np.int64)
        self.decoder = Decoder(  # an interface is one link, whatever addresses its frames have
            self.registry,
            udp_ports=options.udp_ports,
            check_icrc=options.check_icrc,
            by_link=False,
        )
        self._cpus = bpf.online_cpus()
        rings = self._create_rings()
        self._drain = Drain(rings.rings)
        self._wakeups = Wakeups(rings.maps.bell)
        self._stack.callback(self._close_wakeups)
        if self._to_blocks:
            directions = [INBOUND if way == "in" else OUTBOUND for _, way in self._directions]
            self._blocks = PacketBlocks([r.words for r in rings.rings], self.first_tap, directions)
        else:
            self._drain.warm_up(self.decoder)
        self._attach(self._compile(rings, condition))
        self._begin(rings)

    @property
    def _ring_bytes(self) -> int:
        return self.options.ring_bytes or default_ring_bytes(len(self._cpus))

    def _create_rings(self) -> Rings:
        size = self._ring_bytes
        try:
            rings = Rings(self._cpus, size, self.first_tap + len(self._directions))
        except OSError as error:
            if error.errno not in (errno.ENOMEM, errno.E2BIG, errno.EINVAL):
                raise
            raise CaptureError(
                f"no memory for {len(self._cpus)} rings of {size >> 10} KiB: give a smaller --ring"
            ) from None
        self._stack.callback(rings.close)
        self._rings = rings
        return rings

    def _compile(self, rings: Rings, condition: str) -> Compiled:
        options = self.options
        program = ProgramOptions(
            snap_bytes=options.snap_bytes,
            udp_ports=options.udp_ports,
            mirror=options.mirror,
            condition=condition,
            sample=options.sample,
        )
        return Compiled(program, rings.maps)

    def _attach(self, compiled: Compiled) -> None:
        self._stack.callback(self._detach)
        for number, (interface, direction) in enumerate(self._directions):
            tap = self.first_tap + number
            self.attachments.append(attach(compiled, interface, direction, self.options.hook, tap))
            self._drain.skip()  # the rings would fill
        self.others = OthersBefore(self.attachments)
        self._stack.callback(self.others.close)

    def _begin(self, rings: Rings) -> None:
        """Count from here on: before, only some of the taps saw packets, which looks like loss at
        the others, or like flows that move to other links."""
        for _ in range(_MOST_TRIES):
            self._before = rings.loss()
            self._drain.skip()
            if (rings.loss()["exported"] == self._before["exported"]).all():
                break  # no packet came between the counters and the rings

    def _detach(self) -> None:
        self._gone = self.gone()
        for attachment in reversed(self.attachments):  # in reverse order of creation
            attachment.close()

    def pause(self) -> None:
        """End the iteration but keep the probes; after `resume` a new iteration continues."""
        self._paused.set()
        if self._wakeups is not None:
            self._wakeups.stop()

    def resume(self) -> None:
        """Allow a new iteration after `pause`; packets since then are in the rings."""
        self._paused.clear()
        if self._wakeups is not None and not self._stopping.is_set():
            self._wakeups.resume()

    def _close_wakeups(self) -> None:
        wakeups, self._wakeups = self._wakeups, None
        if wakeups is not None:
            wakeups.close()

    def stop(self) -> None:
        """End the capture: detach, pass on the contents of the rings, end the iteration."""
        self._stopping.set()
        if self._wakeups is not None:
            self._wakeups.stop()

    def polls(self, poll_s: float = POLL_S) -> Iterator[list[FrameBatch]]:
        """Frames since the last poll, one batch per CPU with frames, each in order of time.

        No frame of a later poll is older. The batches are in the rings and are valid until
        the next poll. An empty list means that the poll interval has passed.
        """
        return self._polled(self._gather, poll_s)

    def blocks(self, poll_s: float = POLL_S, limit: int | None = None) -> Iterator[Blocks]:
        """The same as packet blocks of a pcapng, at most `limit` of them, in order of time.

        The source must have been created with `to_blocks`.
        """
        if self._blocks is None:
            raise ValueError("this source was created without to_blocks")
        return self._polled(self._lay_out(self._blocks, limit), poll_s)

    def _polled(self, take: Callable[[bool], _T], poll_s: float) -> Iterator[_T]:
        """Results of `take` until `stop`, then the rest of the rings."""
        stated = time.monotonic()
        while not self._stopping.is_set():
            taken = take(False)
            if not self._to_blocks and time.monotonic() - stated > _STATE_LOSSES_EVERY_S:
                self.state_losses()
                stated = time.monotonic()
            yield taken
            self._drain.release()
            if self._paused.is_set():
                return
            if not self._drain.more:
                self._wait(poll_s)
        self._detach()
        # Programs may still run after they are detached.
        deadline = time.monotonic() + _SETTLE_S
        while True:
            before = self._drain.frames
            taken = take(True)
            came = self._drain.frames > before
            if came:
                yield taken
            self._drain.release()
            done = self._drain.frames == self.loss().exported
            if done or time.monotonic() > deadline:
                self.state_losses()
                return
            if not came:
                time.sleep(0.001)

    def _wait(self, seconds: float) -> None:
        if self.ends is not None:
            left = self.ends - time.monotonic()
            if left <= 0:
                self.stop()
            seconds = min(seconds, max(left, 0))
        if self._wakeups is not None:
            self._wakeups.wait(seconds)

    def _lay_out(self, blocks: PacketBlocks, limit: int | None) -> Callable[[bool], Blocks]:
        blocks.left = limit

        def lay_out(everything: bool) -> Blocks:
            laid_out = self._drain.lay_out(blocks, everything)
            if laid_out is not blocks.none:
                self._count(laid_out.frames)
            return laid_out

        return lay_out

    def _gather(self, everything: bool) -> list[FrameBatch]:
        batches = self._drain.gather(everything)
        if batches:
            self._tap_frames[:] = 0
            for batch in batches:
                count_taps(batch.tap, self._tap_frames)
            self._count(self._tap_frames[self.first_tap :])
        return batches

    def _count(self, frames: I64) -> None:
        for tap, number in enumerate(frames.tolist(), self.first_tap):
            self.registry.taps[tap].frames += number
            self.registry.taps[tap].clock_steps = self._drain.clock.set_back

    def state_losses(self) -> None:
        """Set the losses of the taps, as in a capture file."""
        own_taps = self.registry.taps.items[self.first_tap :][
            : len(self._directions)
        ]  # mirror sessions follow
        for tap, loss in zip(own_taps, self.loss_by_tap(), strict=True):
            tap.dropped = loss.ring_full

    def finish(self) -> None:
        """Detach and discard the rest of the rings: `loss()` is final then."""
        self.stop()
        blocks = self._blocks
        for _ in self._polled(self._gather if blocks is None else self._lay_out(blocks, None), 0):
            pass
        if blocks is None and self._rings is not None:
            self._rings.forget()

    def frames(self, poll_s: float = POLL_S) -> Iterator[FrameBatch]:
        """The batches of all polls, CPU by CPU; each is valid until the next one."""
        for batches in self.polls(poll_s):
            yield from batches

    def tables(self, poll_s: float = POLL_S) -> Iterator[PacketTable]:
        """Packet tables in order of time; an empty one after `poll_s` without packets."""
        for batches in self.polls(poll_s):
            for batch in batches:
                self.snapped_frames += int(np.count_nonzero(batch.captured < batch.wire))
            tables = [self.decoder.decode(batch) for batch in batches]
            yield from (
                merge_tables([iter([table]) for table in tables])
                if tables
                else [PacketTable.empty(0)]
            )

    def loss(self) -> Loss:
        """Counts of all frames so far."""
        return total(self.loss_by_tap_and_cpu())

    def head(self, *comments: str) -> Callable[[Sequence[str]], bytes]:
        """Makes the beginning of a capture file from further comments; after the attachment."""
        application, system = f"rocescope {VERSION}", " ".join(os.uname()[:3:2])
        taps = b"".join(map(interface_description, self.registry.taps.items[self.first_tap :]))
        return lambda more: section_header(application, system, [*comments, *more]) + taps

    def loss_by_tap(self) -> list[Loss]:
        """The same for each tap of this source, in the order of `taps`."""
        return [total(row) for row in self.loss_by_tap_and_cpu()]

    def loss_by_tap_and_cpu(self) -> Records:
        """LOSS[taps, cpus]; after the capture the final counters."""
        if self._rings is None:
            return np.zeros((0, 0), LOSS)
        loss = self._rings.loss()
        for name in LOSS.names or ():
            loss[name] -= self._before[name]
        return loss[self.first_tap :][: len(self._directions)]

    def room_s(self, packets_per_second: float) -> float:
        """Seconds that this many RoCE packets may wait without loss, whatever their size, also if
        all come to one ring."""
        largest = self._ring_bytes // LARGEST_RECORD
        return largest / packets_per_second if packets_per_second else inf

    def gone(self) -> list[Interface]:
        """Interfaces that have disappeared, or from which another program took the probes."""
        missing = self._gone + [a.interface for a in self.attachments if a.gone()]
        return [interface for interface in self.interfaces if interface in missing]

    def privileges(self) -> tuple[str, ...]:
        """Capabilities that are still needed after everything is attached."""
        return privileges_of(self.attachments)

    @property
    def clock_steps(self) -> int:
        """Number of steps of the wall clock during the capture."""
        return self._drain.clock.steps


def default_ring_bytes(cpus: int) -> int:
    """64 MiB for all CPUs, at least 16 MiB for each; less if all together would exceed 512 MiB."""
    share = max(_FEW_RINGS_BYTES // cpus, min(_DEFAULT_RING, _ALL_RINGS_BYTES // cpus))
    return 1 << (share.bit_length() - 1)


def _checked(options: LiveOptions) -> LiveOptions:
    """The options, with sizes rounded up for the kernel; UsageError for invalid ones."""
    snap = -(-options.snap_bytes // 8) * 8
    if not 64 <= snap <= WIDE_SNAP:
        raise UsageError(
            f"a snap length of {options.snap_bytes} is not possible: 64 to {WIDE_SNAP}"
        )
    ring = options.ring_bytes
    if ring is not None:
        if not 0 < ring <= 1 << 30:
            raise UsageError("--ring must be 4KiB to 1GiB")
        ring = max(1 << (ring - 1).bit_length(), bpf.page_bytes(), _SMALLEST_RING)
    if options.sample < 1 or options.sample >= 1 << 32:
        raise UsageError("--sample must be 1 or more")
    if not options.udp_ports or not all(0 < port < 65536 for port in options.udp_ports):
        raise UsageError("--udp-port must be 1 to 65535")
    return replace(options, snap_bytes=snap, ring_bytes=ring)


def _tap(interface: Interface, direction: str, options: LiveOptions) -> Tap:
    return Tap(
        f"{interface.label} {direction}",
        LINKTYPE_ETHERNET,
        snap_length=max(options.snap_bytes, WIDE_SNAP),
        speed_bits_per_second=interface.speed_bits_per_second,
        filter=options.filter,
    )


_UPDATE_EVERY_S = 1.0
_SHARE_OF_TIME = 20
"""Minimum interval between updates of owners, in multiples of the duration of an update."""


class LiveProbes:
    """A live source and the probes for owners of queue pairs, attached once."""

    def __init__(self, interfaces: Sequence[str], options: LiveOptions) -> None:
        self.registry = Registry(Endpoints(most=MOST_ADDRESSES))
        self.source = LiveSource(interfaces, options, registry=self.registry)
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self._watch: OwnerWatch | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._begun = self._ended = False
        self._readers = 0
        self._due = 0.0

    @property
    def ended(self) -> bool:
        """Whether the probes were removed."""
        return self._ended

    def warnings(self) -> tuple[str, ...]:
        """Programs of others before the probes, and limits of the information on owners."""
        unknown = [f"owners of queue pairs may be unknown: {reason}" for reason in self.reasons]
        return (*self.source.others.lines(), *unknown)

    def begin(self, drop: bool = False) -> None:
        """Attach everything; later calls do nothing. Errors as of `LiveSource`.

        drop: then become an unprivileged user, with the privileges that reading needs.
        """
        with self._lock:
            if self._ended:
                raise CaptureError("the probes were removed: start rocescope live again")
            if self._begun:
                return
            try:
                self.source.check()
                # Before the probes: it takes a second, and the rings would overflow.
                self._watch = watch_owners(self.source.interfaces, self._stack, self.reasons)
                allow()
                self._stack.enter_context(self.source)
            except BaseException:
                self._stack.close()
                raise
            self._begun = True
        if drop:
            become_unprivileged(self.source.privileges())

    def owners(self, tracker: FlowTracker) -> dict[int, Owner] | None:
        """Current owners by flow index; None if the last update is too recent.

        Pairs connections in the tracker by the queue pairs: the caller must hold its lock.
        """
        began = time.monotonic()
        if self._watch is None:
            return None
        owners: dict[int, Owner] = {}
        try:
            if began < self._due:
                self._watch.listen()
                return None
            self._watch.update()
            if len(self._watch.queue_pairs):
                owners = self._watch.owners(tracker, self.registry.endpoints)
        except Exception as error:  # ends the updates of owners, not the capture
            self._watch = None
            self.reasons.append(f"{type(error).__name__}: {error}")
        took = time.monotonic() - began
        self._due = began + max(_UPDATE_EVERY_S, _SHARE_OF_TIME * took)
        return owners

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around every iteration over the source."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._ended and not self._readers:
                    self._stack.close()

    def end(self) -> None:
        """Detach permanently; the reader still gets the rest of the rings."""
        with self._lock:
            self._ended = True
            self.source.stop()
            if not self._readers:
                self._stack.close()
