"""sFlow version 5: the sampled frames of a datagram, and the taps that saw them.

No length in the datagram is trusted: each is compared with the rest of the enclosing item, and the
walk never goes back. Source: sFlow Version 5 specification (sflow.org, 2004); XDR, RFC 4506: all
fields are words of four bytes.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, inlined, subkernel
from ..wire.packets import (
    I64,
    LINKTYPE_ETHERNET,
    LINKTYPE_IPV4,
    LINKTYPE_IPV6,
    U8,
    U16,
    U32,
    PacketTable,
)
from ..wire.registry import IPV4_MAPPED
from ..wire.taps import SampledFrames, Taps
from .headers import be32, be64
from .outcomes import BAD_SFLOW, TRUNCATED_TUNNEL
from .sessions import EGRESS, INGRESS, NO_DIRECTION

_VERSION = 5
_FLOW_SAMPLE, _EXPANDED_FLOW_SAMPLE = 1, 3
_RAW_HEADER = 1
_RAW_BYTES = 16
# Protocols of raw headers.
_ETHERNET, _IPV4, _IPV6 = 1, 11, 12

# The walk over a datagram, int64[N_FIELDS].
(
    AT,  # position of the next item
    CAPTURED,  # end of the captured bytes
    STOP,  # end of the datagram
    SAMPLES,  # remaining
    RECORDS,  # of the sample, remaining
    SAMPLE_STOP,
    AGENT_HIGH,
    AGENT_LOW,
    INTERFACE,  # index of the port whose frames are sampled
    DIRECTION,  # of the sampled frame there
    RATE,  # one frame in N is sampled
    HEADER,  # position of the sampled bytes of a frame
    HEADER_END,
    HEADER_STOP,  # end of the complete frame, without the FCS and tags
    HEADER_LINK,  # their link type
) = range(15)
N_FIELDS = 15

ENDED, NOT_SFLOW, SAMPLED = 0, -1000, 1


@subkernel
def open_datagram(data: U8, x: I64, at: Int, end: Int, stop: Int) -> Int:
    """Start with the datagram at `at`: ENDED, NOT_SFLOW, or minus an outcome.

    end: of the captured bytes; stop: of the datagram.
    """
    if end - at < 8:
        return -TRUNCATED_TUNNEL
    if be32(data, at) != _VERSION:
        return NOT_SFLOW
    kind = be32(data, at + 4)
    if kind != 1 and kind != 2:
        return NOT_SFLOW
    words = 4 if kind == 1 else 16
    if stop - at < 8 + words + 16:
        return -BAD_SFLOW
    if end - at < 8 + words + 16:
        return -TRUNCATED_TUNNEL
    if kind == 1:
        x[AGENT_HIGH] = 0
        x[AGENT_LOW] = IPV4_MAPPED | be32(data, at + 8)
    else:
        x[AGENT_HIGH] = np.int64(be64(data, at + 8))
        x[AGENT_LOW] = np.int64(be64(data, at + 16))
    at += 8 + words
    x[SAMPLES] = be32(data, at + 12)
    x[AT] = at + 16
    x[CAPTURED] = end
    x[STOP] = stop
    x[RECORDS] = 0
    x[SAMPLE_STOP] = at + 16
    return ENDED


@subkernel
def next_header(data: U8, x: I64) -> Int:
    """Find the next sampled frame: SAMPLED, ENDED, or minus an outcome.

    Every round advances by at least eight bytes, so it terminates.
    """
    while True:
        if x[RECORDS] == 0:
            x[AT] = x[SAMPLE_STOP]
            if x[SAMPLES] == 0:
                return ENDED
            x[SAMPLES] -= 1
            step = _open_sample(data, x)
            if step != SAMPLED:
                return step
            continue
        x[RECORDS] -= 1
        at = x[AT]
        if x[SAMPLE_STOP] - at < 8:
            return -BAD_SFLOW
        if x[CAPTURED] - at < 8:
            return -TRUNCATED_TUNNEL
        kind, length = be32(data, at), be32(data, at + 4)
        at += 8
        if length > x[SAMPLE_STOP] - at:
            return -BAD_SFLOW
        x[AT] = min(at + ((length + 3) & ~3), x[SAMPLE_STOP])
        if kind != _RAW_HEADER:
            continue
        if length < _RAW_BYTES:
            return -BAD_SFLOW
        if x[CAPTURED] - at < _RAW_BYTES:
            return -TRUNCATED_TUNNEL
        protocol, frame_bytes = be32(data, at), be32(data, at + 4)
        stripped, held = be32(data, at + 8), be32(data, at + 12)
        at += _RAW_BYTES
        if held > length - _RAW_BYTES:
            return -BAD_SFLOW
        x[HEADER] = at
        x[HEADER_END] = min(at + held, x[CAPTURED])
        x[HEADER_STOP] = at + max(frame_bytes - stripped, held)
        if protocol == _ETHERNET:
            x[HEADER_LINK] = LINKTYPE_ETHERNET
        elif protocol == _IPV4:
            x[HEADER_LINK] = LINKTYPE_IPV4
        elif protocol == _IPV6:
            x[HEADER_LINK] = LINKTYPE_IPV6
        else:
            continue
        return SAMPLED


@inlined
def _open_sample(data: U8, x: I64) -> Int:
    """Read the header of the sample at `AT`; SAMPLED if the walk continues after it."""
    at = x[AT]
    if x[STOP] - at < 8:
        return -BAD_SFLOW
    if x[CAPTURED] - at < 8:
        return -TRUNCATED_TUNNEL
    kind, length = be32(data, at), be32(data, at + 4)
    at += 8
    if length > x[STOP] - at:
        return -BAD_SFLOW
    x[SAMPLE_STOP] = at + length
    if kind != _FLOW_SAMPLE and kind != _EXPANDED_FLOW_SAMPLE:
        return SAMPLED  # no records: skipped
    head = 32 if kind == _FLOW_SAMPLE else 44
    if length < head:
        return -BAD_SFLOW
    if x[CAPTURED] - at < head:
        return -TRUNCATED_TUNNEL
    if kind == _FLOW_SAMPLE:
        source = be32(data, at + 4) & 0xFFFFFF
        x[RATE] = be32(data, at + 8)
        way_in, way_out = be32(data, at + 20), be32(data, at + 24)
    else:
        source = be32(data, at + 8)
        x[RATE] = be32(data, at + 12)
        way_in, way_out = be32(data, at + 28), be32(data, at + 36)
    x[INTERFACE] = source
    x[DIRECTION] = NO_DIRECTION
    if way_in == source:
        x[DIRECTION] = INGRESS
    elif way_out == source:
        x[DIRECTION] = EGRESS
    x[RECORDS] = be32(data, at + head - 4)
    x[AT] = at + head
    return SAMPLED


# Adds sFlow samples to the taps that saw them.


def note_samples(table: PacketTable, rate: U32, taps: Taps) -> None:
    """Add the sampled rows of a table to their taps; `rate` is 0 for rows without sampling."""
    sums = np.zeros((len(taps), 3), np.int64)
    _add_samples(table.tap, rate, table.wire_bytes, sums)
    for tap in np.flatnonzero(sums[:, 0]).tolist():
        more = SampledFrames(*sums[tap].tolist())
        taps[tap].sampled = (taps[tap].sampled or SampledFrames()) + more


@subkernel
def _add_samples(tap: U16, rate: U32, wire_bytes: U32, sums: I64) -> None:
    """Add up samples, their rates and rate times wire bytes, int64[taps, 3]."""
    for i in range(len(rate)):
        one_in = np.int64(rate[i])
        if one_in > 0:
            t = np.uint64(tap[i])
            sums[t, 0] += 1
            sums[t, 1] += one_in
            sums[t, 2] += one_in * np.int64(wire_bytes[i])
