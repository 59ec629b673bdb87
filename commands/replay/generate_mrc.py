"""`rocescope generate mrc`: MRC traffic as a pcap, with its ground truth."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_rate, parse_size
from ...analyzer.wire.ports import ROCE_UDP_PORT
from ...report.whole_file import whole_file
from ..options.inputs import STANDARD_OUTPUT

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

    from ...replay.generate.mirrored import mirrored
    from ...replay.generate.mrc.frames import Format
    from ...replay.generate.mrc.pair import Settings
    from ...replay.generate.mrc.traffic import Traffic
    from ...replay.generate.pcap_writer import file_header

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
