"""`rocescope generate`: synthetic traffic as a pcap."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ..analyzer.errors import UsageError
from ..analyzer.wire.bth import ROCE_UDP_PORT
from ..analyzer.words import parse_duration, parse_rate, parse_size
from ..report.whole_file import whole_file
from .options.progress import ProgressAs, steps_shown
from .options.taps import STANDARD_OUTPUT

EXAMPLES = """\
Examples:
  rocescope generate permutation -o traffic.pcap --hosts 128 --qps 4
  rocescope generate all-to-all -o traffic.pcap --fabric fat-tree:k=4 --qps 2
  rocescope generate incast -o traffic.pcap --fan-in 8 --spray 16 --snaplen 0
  rocescope generate mrc -o mrc.pcap --loss 0.001 --fail-plane 2
  rocescope generate job:kind=ddp,ranks=4,steps=10 -o run/ \\
      --fault slow-gpu:rank=2,from=4,factor=1.35
"""
MRC_EXAMPLES = """\
Examples:
  rocescope generate mrc -o mrc.pcap --truth mrc.json --loss 0.001 --ce 0.01
  rocescope generate mrc -o mrc.pcap --fail-plane 2 --tap receiver --no-srv6
"""
_LONGEST_HEADERS = 14 + 40 + 8 + 12 + 16
_JOB = "job:"
_FABRIC_OF_JOBS = "leaf-spine:leaves=2,spines=2,hosts={hosts},rate=1G,uplink_rate=2G,delay=1us"


def generate(
    pattern: Annotated[str, Parameter(name="PATTERN")],
    /,
    *more: Annotated[str, Parameter(name="JOB")],
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
    fault: list[str] | None = None,
    taps: str | None = None,
    strategy: str | None = None,
    ecn: str | None = None,
    timeout: str | None = None,
    seed: int = 1,
    progress: ProgressAs = "auto",
) -> int:
    """Generate RoCEv2 traffic of a pattern or of training jobs as a pcap.

    Parameters
    ----------
    pattern
        permutation, all-to-all, ring-allreduce, incast, random or trace-like; or a training job,
        job:kind=ddp,ranks=4,steps=10, with kind ddp, fsdp, pipeline or moe.
    more
        Further training jobs.
    output
        The pcap to write, with nanosecond timestamps. Of jobs: a folder with a pcap per tap and
        truth.json, or a file.pcap of all taps beside file.truth.json.
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
    fault
        Of jobs: slow-gpu:rank=2,from=4,factor=1.35, late-launch:rank=1,delay=5ms, hang:rank=3,
        slow-nic:rank=1,factor=0.3, congested-link:link=leaf1>spine1,from=3 or
        loss:link=leaf1-spine1,chance=1%. May be repeated.
    taps
        Of jobs: a switch for all its links to other switches, uplinks of all leaves, hosts, or
        links, joined by +. Default leaf1.
    strategy
        Of jobs: load balancing, see rocescope replay. Default ecmp.
    ecn
        Of jobs: queue above which switches mark packets; hosts then send by DCQCN. Default none.
    timeout
        Of jobs: time after which a packet is retransmitted. Default 67ms.
    seed
        The same seed gives the same file.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    if pattern.startswith(_JOB):
        unfit = [message_size, messages, spray, mtu, operation, rate, rtt, flows, load, qps, ipv6]
        if unfit != ["1MiB", 4, 1, 4096, "write", "400G", "8us", 100, 0.5, 1, False] or any(
            value is not None for value in (hosts, fan_in, mirror)
        ):
            raise UsageError(
                "a training job can only be combined with --output, --fabric, --fault, --taps, "
                "--strategy, --ecn, --timeout, --snaplen and --seed; ranks, qps and sizes are keys "
                "of the job"
            )
        return _generate_jobs(
            (pattern, *more),
            output,
            fabric,
            fault or [],
            taps or "leaf1",
            strategy or "ecmp",
            ecn,
            timeout or "67ms",
            snaplen,
            seed,
        )
    if more:
        raise UsageError(f"there is one pattern, or several of {_JOB}...; not {' '.join(more)}")
    for value, option in (
        (fault, "fault"),
        (taps, "taps"),
        (strategy, "strategy"),
        (ecn, "ecn"),
        (timeout, "timeout"),
    ):
        if value is not None:
            raise UsageError(f"--{option} is for training jobs, such as {_JOB}kind=ddp")
    if operation not in ("write", "send"):
        raise UsageError(f"--operation must be write or send, not {operation!r}")
    if snaplen and not _LONGEST_HEADERS <= snaplen <= 65535:
        raise UsageError(f"--snaplen must be 0 or {_LONGEST_HEADERS} to 65535, not {snaplen}")
    if seed < 0:
        raise UsageError("--seed must be 0 or more")
    rate_bits_per_second = parse_rate(rate, "--rate")
    round_trip_ns = parse_duration(rtt, "--rtt")
    message_bytes = parse_size(message_size, "--message-size")

    from ..replay.fabrics.fabric import AddressPlan
    from ..replay.generate.craft import mirrored
    from ..replay.generate.from_pattern import generate as make
    from ..replay.generate.patterns import Settings
    from ..replay.generate.pcap_writer import write_pcap
    from ..replay.generate.queue_pairs import Sending

    plan = AddressPlan(hosts if hosts is not None else 16)
    if fabric is not None:
        from ..replay.fabrics.parse import parse_fabric

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


def _generate_jobs(
    jobs: tuple[str, ...],
    output: Path,
    fabric: str | None,
    faults: list[str],
    taps: str,
    strategy: str,
    ecn: str | None,
    timeout: str,
    snap: int,
    seed: int,
) -> int:
    """Captures of training jobs, with their truth."""
    from ..replay.fabrics.parse import parse_fabric
    from ..replay.training.faults import PS, parse_faults, parse_taps
    from ..replay.training.jobs import parse_plan
    from ..replay.training.run import Settings, hosts_needed
    from ..replay.training.truth import make

    if not 54 <= snap <= 65535:
        raise UsageError(f"--snaplen of training jobs must be 54 to 65535, not {snap}")
    if seed < 0:
        raise UsageError("--seed must be 0 or more")
    for text in jobs:
        if not text.startswith(_JOB):
            raise UsageError(f"{text!r} is not a training job: {_JOB}kind=ddp,...")
    plans = [parse_plan(text, number) for number, text in enumerate(jobs)]
    default = _FABRIC_OF_JOBS.format(hosts=-(-hosts_needed(plans) // 2))
    network = parse_fabric(fabric or default)
    settings = Settings(
        network,
        seed,
        strategy,
        parse_duration(timeout, "--timeout") * PS,
        None if ecn is None else parse_size(ecn, "--ecn"),
    )
    made = make(
        plans,
        settings,
        lambda hosts: parse_faults(faults, plans, hosts, network),
        lambda hosts: parse_taps(taps, network, hosts),
    )
    config = {
        "jobs": list(jobs),
        "faults": faults,
        "taps": taps,
        "fabric": network.name,
        "strategy": strategy,
        "seed": seed,
    }
    truth = {"config": config, **made.truth}
    captures = {output / f"{name}.pcap": seen for name, seen in made.captures().items()}
    beside = output / "truth.json"
    if output.suffix == ".pcap":
        captures, beside = {output: made.at_all_taps()}, output.with_suffix(".truth.json")
    else:
        output.mkdir(parents=True, exist_ok=True)
    for path, seen in captures.items():
        with whole_file(path) as file:
            file.writelines(made.pcap(seen, snap))
    with whole_file(beside) as file:
        file.write(json.dumps(truth, indent=1).encode() + b"\n")
    packets = sum(len(seen.time_ns) for seen in captures.values())
    print(
        f"rocescope: {output}: {packets:,} packets of {len(plans)} jobs at {len(made.views)} taps; "
        f"see rocescope analyze {output if output.suffix else output / '*.pcap'}",
        file=sys.stderr,
    )
    return 0


application = App(name="generate", help_epilogue=EXAMPLES)
application.default(generate)
application.command(
    "rocescope.commands.generate:generate_mrc",
    name="mrc",
    help="Generate MRC traffic of hosts with several planes, with its ground truth.",
    help_epilogue=MRC_EXAMPLES,
)
"""`generate` with its subcommand mrc."""


# `rocescope generate mrc`: MRC traffic as a pcap, with its ground truth.

_SHORTEST_SNAP = 14 + 40 + 40 + 8 + 12 + 36
_MAX_PACKETS = 5_000_000
"""All frames stay in memory until they are sorted by time."""


def generate_mrc(
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    truth: Path | None = None,
    hosts: int = 2,
    qps: int = 1,
    planes: int = 4,
    evs: int = 64,
    messages: int = 4,
    message_size: str = "1MiB",
    mtu: int = 4096,
    rate: str = "400G",
    rtt: str = "10us",
    loss: float = 0.0,
    trim: float = 0.0,
    ce: float = 0.0,
    always_skip: int = 0,
    fail_plane: int | None = None,
    tap: Literal["sender", "receiver"] = "sender",
    no_srv6: Annotated[bool, Parameter(show_default=False)] = False,
    no_timestamps: Annotated[bool, Parameter(show_default=False)] = False,
    ipv4: Annotated[bool, Parameter(show_default=False)] = False,
    entropy_order: Literal["flow-label-high", "udp-port-high"] = "flow-label-high",
    udp_port: int = ROCE_UDP_PORT,
    snaplen: Annotated[int, Parameter(alias="-s")] = 160,
    mirror: str | None = None,
    seed: int = 1,
) -> int:
    """Generate MRC traffic of hosts with several planes as a pcap.

    Parameters
    ----------
    output
        The pcap to write, with nanosecond timestamps.
    truth
        Also write the ground truth to this file, as JSON.
    hosts
        Number of hosts; each host writes to the next.
    qps
        Queue pairs of each host.
    planes
        Planes, which are the ports of every host.
    evs
        Entropy values in use per queue pair, a multiple of the planes.
    messages
        Messages per queue pair.
    message_size
        Message size, such as 64KiB.
    mtu
        Path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload.
    rate
        Rate of a host over all planes.
    rtt
        Round-trip time without queueing.
    loss
        Share of the packets that the network drops, 0 to 0.2.
    trim
        Share of the packets that switches trim, 0 to 0.2.
    ce
        Share of the packets that switches mark CE (congestion experienced), 0 to 1.
    always_skip
        Number of entropy values of each queue pair that its receiver declares bad.
    fail_plane
        This plane of host 0, counted from 1, is down in the middle half of the traffic.
    tap
        Where the capture is taken.
    no_srv6
        Omit the outer IPv6 header with uSIDs (SRv6).
    no_timestamps
        Omit the TSETH.
    ipv4
        IPv4 in place of IPv6; entropy values then have no flow label.
    entropy_order
        Half of the entropy value that holds the flow label in SACKs and NACKs.
    udp_port
        UDP destination port of the packets, 4791 or 4971.
    snaplen
        Bytes kept of every frame; 0 writes payload and invariant CRC too.
    mirror
        Encapsulate frames as a mirror or tunnel, see rocescope generate.
    seed
        The same seed gives the same file.
    """
    for share, option in ((loss, "--loss"), (trim, "--trim")):
        if not 0 <= share <= 0.2:
            raise UsageError(f"{option} must be 0 to 0.2, not {share}")
    if not 0 <= ce <= 1:
        raise UsageError(f"--ce must be 0 to 1, not {ce}")
    if not 2 <= hosts <= 1024 or not 1 <= qps <= 256 or messages < 1:
        raise UsageError("--hosts must be 2 to 1024, --qps 1 to 256, --messages 1 or more")
    if not 1 <= planes <= 16 or evs % planes or not planes <= evs <= 8192:
        raise UsageError("--planes must be 1 to 16, --evs a multiple of --planes and at most 8192")
    if fail_plane is not None and not (1 <= fail_plane <= planes and planes > 1):
        raise UsageError(f"--fail-plane must be 1 to {planes} and needs two or more --planes")
    if not 0 <= always_skip <= evs // 8:
        raise UsageError(f"--always-skip must be 0 to {evs // 8}, an eighth of --evs")
    if mtu not in (256, 512, 1024, 2048, 4096):
        raise UsageError(f"--mtu must be 256, 512, 1024, 2048 or 4096, not {mtu}")
    if snaplen and not _SHORTEST_SNAP <= snaplen <= 65535:
        raise UsageError(f"--snaplen must be 0 or {_SHORTEST_SNAP} to 65535, not {snaplen}")
    if not 0 < udp_port < 65536 or seed < 0:
        raise UsageError("--udp-port must be 1 to 65535 and --seed 0 or more")
    message_bytes = parse_size(message_size, "--message-size")
    if hosts * qps * messages * -(-message_bytes // mtu) > _MAX_PACKETS:
        raise UsageError(
            f"the traffic has more than {_MAX_PACKETS:,} packets: use fewer or smaller messages"
        )

    from ..replay.generate.craft import mirrored
    from ..replay.generate.mrc import Format, Settings, Traffic
    from ..replay.generate.pcap_writer import file_header

    traffic = Traffic(
        Settings(
            hosts=hosts,
            qps=qps,
            planes=planes,
            evs=evs,
            messages=messages,
            message_bytes=message_bytes,
            path_mtu=mtu,
            rate_bits_per_second=parse_rate(rate, "--rate"),
            round_trip_ns=parse_duration(rtt, "--rtt"),
            loss=loss,
            trim=trim,
            ce=ce,
            always_skip=always_skip,
            failed_plane=fail_plane,
            at_receiver=tap == "receiver",
            seed=seed,
        ),
        Format(
            ipv6=not ipv4,
            srv6=not no_srv6,
            timestamps=not no_timestamps,
            label_high=entropy_order == "flow-label-high",
            port=udp_port,
            snap=snaplen,
        ),
    )
    written = 0
    with whole_file(output) as target:
        file = mirrored(target, mirror)
        file.write(file_header(snaplen))
        for time_ns, data, wire in traffic.captured():
            seconds, rest = divmod(time_ns, 1_000_000_000)
            file.write(struct.pack("<IIII", seconds, rest, len(data), wire) + data)
            written += 1
    if truth is not None:
        with whole_file(truth) as file:
            file.write(json.dumps(traffic.truth(), indent=1).encode() + b"\n")
    if output != STANDARD_OUTPUT:
        print(
            f"rocescope: {output}: {written:,} packets of {hosts * qps:,} queue pairs; "
            f"see rocescope analyze {output}",
            file=sys.stderr,
        )
    return 0
