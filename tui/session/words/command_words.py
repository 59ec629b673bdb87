"""The content of a session as filters and commands of other programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ....analyzer.pipeline.options import AnalyzeOptions
from ....analyzer.summary.options import PlaneBy
from ....analyzer.wire.ports import ROCE_UDP_PORT
from ....analyzer.wire.segments import UsidFormat
from ....report.words.human import queue_pair
from ..snapshots.snapshot import FlowKey


def wireshark_filter(key: FlowKey) -> str:
    """The display filter that shows a flow in Wireshark or tshark."""
    ip = "ipv6" if ":" in key.src else "ip"
    return (
        f"{ip}.src == {key.src} && {ip}.dst == {key.dst}"
        f" && infiniband.bth.destqp == {queue_pair(key.qp)}"
    )


def analyze_command(
    paths: Sequence[str], interfaces: Sequence[str], options: AnalyzeOptions, key: FlowKey | None
) -> str:
    """The command that reports a flow, or all flows; without files a command on interfaces."""
    parts = [options.filter or ""]
    if key is not None:
        parts.append(f"src == {key.src} and dst == {key.dst} and qp == {queue_pair(key.qp)}")
    words = ["rocescope", "analyze", *(paths or ("--live", *interfaces)), *reading_words(options)]
    words += ["--fabric", options.fabric.spec] if options.fabric and options.fabric.spec else []
    for pattern in options.job_logs:
        words += ["--nccl-log", pattern]
    keep = " and ".join(filter(None, parts))
    return shlex.join([*words, "--filter", keep] if keep else words)


def reading_words(options: AnalyzeOptions) -> list[str]:
    """Options for reading files, without the filter and without defaults."""
    words = ["--concat"] * options.concat
    if options.rings is not None:
        words += ["--tap", options.rings]
    else:
        for path, name in options.tap_names.items():
            words += ["--tap", f"{name}={path}"]
    for port in options.udp_ports:
        words += ["--udp-port", str(port)] if port != ROCE_UDP_PORT else []
    if options.plane_by != PlaneBy():
        words += ["--plane-by", str(options.plane_by)]
    if options.usid != UsidFormat():
        words += ["--usid", f"{options.usid.block_bits}:{options.usid.usid_bits}"]
    if options.flow_label != "auto":
        words += ["--flow-label", options.flow_label]
    for dscp in options.trimmed_dscps:
        words += ["--trimmed-dscp", str(dscp)]
    mirror = options.mirror
    if mirror is not None:
        if mirror.clock != "capture":
            words += ["--clock", mirror.clock]
        if mirror.format is not None:
            words += ["--mirror-format", mirror.format]
        if mirror.drop_duplicates_ns is not None:
            words += ["--drop-duplicates", f"{mirror.drop_duplicates_ns}ns"]
    return words
