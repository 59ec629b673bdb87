"""`rocescope agent`: what this host's RoCE traffic does, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import CaptureError, UsageError, require
from ..analyzer.pipeline.threads import give_back_large_arrays
from ..analyzer.words import parse_duration, parse_size
from .options.capturing import Hook, Told, ended_by_signals, say
from .options.reading import SELECTION, Selection
from .table import Parameter

if TYPE_CHECKING:
    from ..agent.readings import Readings
    from ..probes.counters.counters import CounterOptions, CounterSource

_LISTEN = "127.0.0.1:9791"
_MOST_FLOWS = 32_768
_RING_BYTES, _ALL_RINGS_BYTES = 8 << 20, 64 << 20
_NO_RECORDING = "nothing is recorded: --record needs probes, and there are none"


def agent(
    *interfaces: Annotated[str, Parameter(required=True, name="IFACE")],
    listen: str = _LISTEN,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    client_ca: Path | None = None,
    without_tls: Annotated[bool, Parameter(show_default=False)] = False,
    source: Literal["auto", "packets", "queue-pairs"] = "auto",
    interval: str = "5s",
    peers: int = 256,
    max_flows: int | None = None,
    record: Path | None = None,
    keep: str = "10GB",
    hook: Hook = "tc",
    netns: str | None = None,
    selection: Annotated[Selection, Parameter(name="*")] = SELECTION,
) -> int:
    """Export measures of this host's RoCE traffic to Prometheus.

    Parameters
    ----------
    interfaces
        Interfaces, or NETNS:IFACE in another network namespace.
    listen
        Address and port of the endpoint. Addresses other than loopback need TLS.
    tls_certificate
        Certificate of the endpoint, as PEM.
    tls_key
        Private key of --tls-certificate, as PEM.
    client_ca
        Answer only clients with a certificate of this authority, as PEM.
    without_tls
        Allow --listen addresses other than loopback without TLS.
    source
        packets: eBPF probes count packets; queue-pairs: no probes, only the kernel's table of queue
        pairs and adapter counters; auto: both, or queue-pairs if probes are not possible.
    interval
        Read the counters at this interval.
    peers
        Number of peers with their own time series per interface and direction, at most 256; the
        others are counted as "other".
    max_flows
        Maximum number of flows times UDP source ports on each CPU; default 32768, or less so that
        all tables fit in 256 MiB.
    record
        Record the packet headers from 30 s before to 30 s after every new critical finding in this
        folder.
    keep
        Maximum size of all recordings in the folder of --record, earlier runs included.
    hook
        tc sees both directions; xdp sees only received packets, at the highest rates.
    netns
        Network namespace of the interfaces: a name of `ip netns`, a path, or pid:N.
    """
    from ..agent.server import Listening, Server, parse_address

    require("prometheus_client")
    give_back_large_arrays()
    if not 0 <= peers <= 256:
        raise UsageError("--peers must be 0 to 256")
    seconds = parse_duration(interval, "--interval") / 1e9
    if seconds < 0.1:
        raise UsageError("--interval must be 100ms or more")
    if seconds > 30:
        raise UsageError("--interval must be 30s or less: findings are of the last minute")
    keep_bytes = parse_size(keep, "--keep")
    if record is not None and source == "queue-pairs":
        raise UsageError("--record needs probes and cannot be combined with --source queue-pairs")
    host, port = parse_address(listen)
    listening = Listening(host, port, tls_certificate, tls_key, client_ca, without_tls)
    from ..agent.adapters import Adapters
    from ..agent.agent import Agent
    from ..agent.readings import Readings
    from ..agent.recorder import Recorder
    from ..probes import bpf
    from ..probes.counters.counters import CounterOptions, default_max_flows
    from ..probes.live import LiveOptions, LiveSource
    from ..probes.rights import become_unprivileged

    cpus = bpf.possible_cpus()
    options = CounterOptions(
        hook=hook,
        namespace=netns,
        max_flows=default_max_flows(cpus, _MOST_FLOWS) if max_flows is None else max_flows,
        udp_ports=selection.udp_ports,
        filter=selection.filter,
    )
    with ExitStack() as stack:
        server = Server(listening)
        stack.callback(server.close)
        counters = _counters(stack, interfaces, options, source)
        recorder = None
        needed = counters.privileges() if counters is not None else ()
        if record is not None and counters is not None:
            # A second XDP program on an interface is refused.
            live = LiveOptions(
                hook="tc" if hook.startswith("xdp") else hook,
                namespace=netns,
                ring_bytes=_ring_bytes(cpus),
                udp_ports=selection.udp_ports,
                filter=selection.filter,
            )
            ring = LiveSource(interfaces, live, to_blocks=True)
            recorder = Recorder(ring, record, keep_bytes)
            stack.callback(recorder.close)
            needed += ring.privileges()
        become_unprivileged(needed)
        if recorder is not None:
            recorder.start()
        unrecorded = record is not None and recorder is None
        readings = Readings(
            interfaces,
            counters,
            Adapters(),
            peers,
            recorder,
            notes=[_NO_RECORDING] if unrecorded else [],
            namespace=netns,
        )
        running = Agent(readings, seconds, recorder.record if recorder is not None else None)
        notes = Told()
        with ended_by_signals(running):
            server.start(running.answer)
            say(f"metrics at {server.url}/metrics; Ctrl-C ends it")
            notes.say(_lines(counters, readings))
            running.run(lambda: notes.say(_lines(counters, readings)))
    return 0


def _ring_bytes(cpus: int) -> int:
    """Of each processor: 8 MiB, less where all rings would exceed 64 MiB; a power of two."""
    return min(_RING_BYTES, 1 << (_ALL_RINGS_BYTES // cpus).bit_length() - 1)


def _counters(
    stack: ExitStack, interfaces: Sequence[str], options: CounterOptions, source: str
) -> CounterSource | None:
    """Attached counters; None if there are none, and the adapters are asked alone."""
    from ..agent.adapters import Adapters
    from ..agent.findings import placed
    from ..probes.counters.counters import CounterSource

    if source == "queue-pairs":
        return None
    counters = CounterSource(interfaces, options)
    try:
        stack.enter_context(counters)
    except CaptureError as error:
        named = [placed(text, options.namespace) for text in interfaces]
        # Unknown adapters may be there.
        if source == "packets" or all(Adapters().of_interface(*port) == [] for port in named):
            raise
        say(f"no probes: {error}; queue pairs and counters of adapters only")
        return None
    return counters


def _lines(counters: CounterSource | None, readings: Readings) -> list[str]:
    """What the user should know of, each said once."""
    lines = [f"{blind.interface}: {blind.sentence}" for blind in readings.state.blind]
    lines += readings.trouble()
    return lines if counters is None else [*lines, *counters.others.lines()]
