"""`rocescope generate`: traffic of a pattern as a pcap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_rate, parse_size
from ...report.whole_file import whole_file
from ..options.inputs import STANDARD_OUTPUT
from ..options.progress import ProgressAs
from ..options.steps import steps_shown

EXAMPLES = """\
Examples:
  rocescope generate permutation -o traffic.pcap --hosts 128 --qps 4
  rocescope generate all-to-all -o traffic.pcap --fabric fat-tree:k=4 --qps 2
  rocescope generate incast -o traffic.pcap --fan-in 8 --spray 16 --snaplen 0
  rocescope generate mrc -o mrc.pcap --loss 0.001 --fail-plane 2
"""
MRC_EXAMPLES = """\
Examples:
  rocescope generate mrc -o mrc.pcap --truth mrc.json --loss 0.001 --ce 0.01
  rocescope generate mrc -o mrc.pcap --fail-plane 2 --tap receiver --no-srv6
"""
_LONGEST_HEADERS = 14 + 40 + 8 + 12 + 16


def generate(
    pattern: Annotated[str, Parameter(name="PATTERN")],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    hosts: int | None = None,
    fabric: str | None = None,
    qps: int = 1,
    message_size: str = "1MiB",
    messages: int = 4,
    spray: int = 1,
    mtu: int = 4096,
    operation: str = "write",
    ipv6: Annotated[bool, Parameter(show_default=False)] = False,
    rate: str = "400G",
    rtt: str = "8us",
    flows: int = 100,
    fan_in: int | None = None,
    load: float = 0.5,
    snaplen: Annotated[int, Parameter(alias="-s")] = 128,
    mirror: str | None = None,
    seed: int = 1,
    progress: ProgressAs = "auto",
) -> int:
    """Generate RoCEv2 traffic of a pattern as a pcap.

    Parameters
    ----------
    pattern
        permutation, all-to-all, ring-allreduce, incast, random or trace-like.
    output
        The pcap to write, with nanosecond timestamps.
    hosts
        Number of hosts, default 16 or all hosts of --fabric; host n is 10.0.0.0 + n.
    fabric
        Fabric with the number and addresses of the hosts, see rocescope fabric.
    qps
        Queue pairs per pair of hosts; every message is split evenly over them.
    message_size
        Message size (trace-like: the median; ring-allreduce: the data of one host).
    messages
        Messages per pair of hosts (ring-allreduce: number of all-reduces).
    spray
        Number of UDP source ports that the packets of a queue pair use in turn.
    mtu
        Path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload.
    operation
        write or send.
    ipv6
        IPv6 in place of IPv4.
    rate
        Rate of the hosts' links.
    rtt
        Time from the last packet of a message to its ACK.
    flows
        Number of random pairs of hosts, for the patterns random and trace-like.
    fan_in
        Senders of incast, default all other hosts.
    load
        Mean load of trace-like, above 0 to 1.
    snaplen
        Bytes kept of every frame; 0 writes payload and invariant CRC too.
    mirror
        Encapsulate frames as a mirror or tunnel: gre, erspan1, erspan2, erspan3, vxlan or geneve,
        with options such as erspan3:session=7,src=10.9.0.1,dst=10.9.0.2,vlan=100.
    seed
        The same seed gives the same file.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    if operation not in ("write", "send"):
        raise UsageError(f"--operation must be write or send, not {operation!r}")
    if snaplen and not _LONGEST_HEADERS <= snaplen <= 65535:
        raise UsageError(f"--snaplen must be 0 or {_LONGEST_HEADERS} to 65535, not {snaplen}")
    if seed < 0:
        raise UsageError("--seed must be 0 or more")
    rate_bits_per_second = parse_rate(rate, "--rate")
    round_trip_ns = parse_duration(rtt, "--rtt")
    message_bytes = parse_size(message_size, "--message-size")

    from ...replay.fabrics.addressing import AddressPlan
    from ...replay.generate.from_pattern import generate as make
    from ...replay.generate.mirrored import mirrored
    from ...replay.generate.patterns.demands import Settings
    from ...replay.generate.pcap_writer import write_pcap
    from ...replay.generate.queue_pairs import Sending

    plan = AddressPlan(hosts if hosts is not None else 16)
    if fabric is not None:
        from ...replay.fabrics.parse import parse_fabric

        plan = parse_fabric(fabric).addresses
        if hosts is not None and hosts > plan.hosts:
            raise UsageError(f"--hosts {hosts} is more than the {plan.hosts} hosts of the fabric")
    pairs = make(
        pattern,
        Settings(
            hosts=plan.hosts if hosts is None else hosts,
            message_bytes=message_bytes,
            messages=messages,
            flows=flows,
            fan_in=fan_in,
            load=load,
            rate_bits_per_second=rate_bits_per_second,
        ),
        Sending(
            qps=qps,
            entropy_values=spray,
            path_mtu=mtu,
            rate_bits_per_second=rate_bits_per_second,
            round_trip_ns=round_trip_ns,
            ipv6=ipv6,
            write=operation == "write",
        ),
        seed,
    )
    with whole_file(output) as file, steps_shown(progress) as tell:

        def report(written: int) -> None:
            if tell is not None:
                tell("writing packets", written, pairs.total_packets)

        written = write_pcap(mirrored(file, mirror), pairs, plan, snaplen, report)
    if output != STANDARD_OUTPUT:
        print(
            f"rocescope: {output}: {written:,} packets of {len(pairs):,} queue pairs; "
            f"see rocescope analyze {output}",
            file=sys.stderr,
        )
    return 0


application = App(name="generate", help_epilogue=EXAMPLES)
application.default(generate)
application.command(
    "rocescope.commands.replay.generate_mrc:generate_mrc",
    name="mrc",
    help="Generate MRC traffic of hosts with several planes, with its ground truth.",
    help_epilogue=MRC_EXAMPLES,
)
"""`generate` with its subcommand mrc."""
