"""The options of a session as words of a command."""

from __future__ import annotations

from ..analyzer.analyze import AnalyzeOptions
from ..analyzer.decode.decoder import ROCE_UDP_PORT
from ..analyzer.decode.srv6 import UsidFormat
from ..analyzer.mrc_summary import PlaneBy


def reading_words(options: AnalyzeOptions) -> list[str]:
    """How files are read, the filter apart; nothing of what is so by default."""
    words = ["--concat"] * options.concat
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
