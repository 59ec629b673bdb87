"""The link of each flow among captured parallel links: the input of seed recovery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from typing import NamedTuple

import numpy as np

from ...analyzer.capture.rings import natural
from ...analyzer.capture.source import open_capture
from ...analyzer.decode.decoder import Decoder
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...analyzer.wire.packets import IPV6, ROCE_V1, PacketTable
from ...analyzer.wire.registry import Registry
from ...kernels.kernel import Bools, Bytes, Int32s, Ints, UInt32s
from ..hashing.keys import PacketKeys, addresses

_BATCH_FRAMES = 1 << 16
_FIELDS = ("src", "dst", "sport", "dport", "flow_label", "dest_qp", "ipv6", "tap", "hops")
_TAP = _FIELDS.index("tap")
_UDP = 17


class Seen(NamedTuple):
    """Flows on parallel links; equally long columns, one row per flow."""

    links: tuple[str, ...]
    """Names of the taps in the given order, the next-hop order of the switch."""
    keys: PacketKeys
    link: Int32s
    """int32[n]: index into `links`; -1 for a flow on several links."""
    hop_limit: Bytes
    """uint8[n]: largest TTL or hop limit of its packets."""
    source: Ints
    """int64[n]: index into `names` of the source address."""
    destination: Ints
    names: tuple[str, ...]
    """Addresses as text."""

    def take(self, rows: Bools) -> Seen:
        """The flows selected by a mask."""
        return self._replace(
            keys=self.keys.take(rows),
            link=self.link[rows],
            hop_limit=self.hop_limit[rows],
            source=self.source[rows],
            destination=self.destination[rows],
        )


def read_taps(
    paths: Sequence[str],
    progress: Callable[[int, int | None], None] | None = None,
    tap_names: Mapping[str, str] | None = None,
    ethers: Mapping[int, str] | None = None,
) -> Seen:
    """The flows of captures, one capture per link. UnreadableInput if there are no flows,
    UsageError for fewer than two taps. progress: called with bytes read and total bytes.
    tap_names: names of taps by path, default those of the files. ethers: of `read_ethers`."""
    with ExitStack() as stack:
        registry = Registry(ethers=ethers or {})
        captures = [
            stack.enter_context(
                open_capture(
                    path,
                    registry.taps,
                    batch_frames=_BATCH_FRAMES,
                    tap_name=(tap_names or {}).get(path),
                )
            )
            for path in paths
        ]
        totals = [capture.total_bytes for capture in captures]
        total = None if None in totals else sum(t or 0 for t in totals)
        rows = []
        for capture in captures:
            decoder = Decoder(registry, udp_ports=(ROCE_UDP_PORT,))
            for frames in capture.batches():
                rows.append(_distinct(_columns(decoder.decode(frames))))
                if progress is not None:
                    progress(sum(c.bytes_read for c in captures), total)
        if len(registry.taps) < 2:
            raise UsageError("one link is not enough: give a capture of each parallel link")
        merged = np.concatenate([np.zeros((0, len(_FIELDS)), np.uint32), *rows])
        taps = list(range(len(registry.taps)))
        if registry.taps.show_links:  # one capture has no order of links: that of their names
            taps.sort(key=lambda tap: natural(registry.tap_names[tap]))
            merged[:, _TAP] = np.argsort(taps)[merged[:, _TAP]]
        merged = _distinct(merged)
        if not len(merged):
            raise UnreadableInput(f"no RoCE packet in {', '.join(paths)}")
        return _seen(merged, registry, [registry.tap_names[tap] for tap in taps])


def _columns(table: PacketTable) -> UInt32s:
    """uint32[n, fields] of the RoCEv2 packets."""
    ours = table.take((table.decode_flags & ROCE_V1) == 0)
    return np.stack(
        [
            ours.src,
            ours.dst,
            ours.udp_sport,
            ours.udp_dport,
            ours.flow_label,
            ours.dest_qp,
            (ours.decode_flags & IPV6) != 0,
            ours.tap,
            ours.hop_limit,
        ],
        axis=1,
    ).astype(np.uint32)


def _distinct(rows: UInt32s) -> UInt32s:
    """The different rows, sorted; of rows that differ only in hops, the row with the largest."""
    if not len(rows):
        return rows
    ordered = rows[np.lexsort(rows.T[::-1])]
    last = np.append((ordered[1:, :-1] != ordered[:-1, :-1]).any(1), True)
    distinct: UInt32s = ordered[last]
    return distinct


def _seen(rows: UInt32s, registry: Registry, links: Sequence[str]) -> Seen:
    """Flows from rows sorted by all fields but the last, so that taps of a flow are adjacent."""
    flow = rows[:, :-2]
    first = np.flatnonzero(np.append(True, (flow[1:] != flow[:-1]).any(1)))
    taps = np.diff(np.append(first, len(rows)))
    texts = registry.endpoints.texts()
    packed = addresses(texts)
    src, dst, sport, dport, label, qp, ipv6, tap, hops = rows[first].T
    return Seen(
        links=tuple(links),
        keys=PacketKeys(
            packed[src],
            packed[dst],
            ipv6.astype(np.bool_),
            np.full(len(first), _UDP, np.uint8),
            sport.astype(np.uint16),
            dport.astype(np.uint16),
            label.astype(np.uint32),
            qp.astype(np.uint32),
        ),
        link=np.where(taps == 1, tap, -1).astype(np.int32),
        hop_limit=hops.astype(np.uint8),
        source=src.astype(np.int64),
        destination=dst.astype(np.int64),
        names=tuple(texts),
    )


class Direction(NamedTuple):
    """The flows of one direction, through the same switch or switches."""

    name: str
    seen: Seen


def from_subnets(seen: Seen, subnets: Sequence[str]) -> Direction:
    """The flows whose source is in one of the subnets. UsageError if there are none."""
    try:
        networks = [ip_network(text, strict=False) for text in subnets]
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    chosen = [
        any(ip_address(name).version == n.version and ip_address(name) in n for n in networks)
        for name in seen.names
    ]
    rows = np.array(chosen, np.bool_)[seen.source]
    if not rows.any():
        raise UsageError(f"no flow comes from {', '.join(subnets)}")
    return Direction(f"from {', '.join(subnets)}", seen.take(rows))


def directions(seen: Seen) -> list[Direction]:
    """Both directions of the links; the direction with the larger hop limit (the switch is next
    to the senders) is first.

    Hosts on the two sides of the links send only across them, so flows determine the sides.
    UsageError if they do not.
    """
    side = _sides(seen)
    there = side[seen.source] == 0
    observed = []
    for rows in (there, ~there):
        if rows.any():
            part = seen.take(rows)
            observed.append((part.hop_limit.mean(), part))
    observed.sort(key=lambda pair: -pair[0])
    return [Direction(f"from {_listed(part)}", part) for _, part in observed]


def _listed(seen: Seen) -> str:
    sources = [seen.names[i] for i in np.unique(seen.source)]
    return ", ".join(sources[:4]) + (f" and {len(sources) - 4} more" if len(sources) > 4 else "")


def _sides(seen: Seen) -> Ints:
    """int64[names]: 0 or 1, the side of each address."""
    neighbours: dict[int, set[int]] = {}
    for a, b in set(zip(seen.source.tolist(), seen.destination.tolist(), strict=True)):
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    side = np.full(len(seen.names), -1, np.int64)
    for first in sorted(neighbours):
        if side[first] >= 0:
            continue
        group = _coloured(first, neighbours, side)
        _orient(group, side, seen)
    return side


def _coloured(first: int, neighbours: dict[int, set[int]], side: Ints) -> list[int]:
    side[first] = 0
    group = [first]
    for node in group:  # grows during the loop
        for other in sorted(neighbours[node]):
            if side[other] < 0:
                side[other] = 1 - side[node]
                group.append(other)
            elif side[other] == side[node]:
                raise UsageError(
                    "the flows do not show which hosts are on which side of the links: "
                    "select the senders of one switch with --from SUBNET"
                )
    return group


def _orient(group: list[int], side: Ints, seen: Seen) -> None:
    """Side 0 is the side of the senders with the larger hop limits, in all connected parts."""
    inside = np.isin(seen.source, group)
    means = [
        seen.hop_limit[inside & (side[seen.source] == which)].astype(np.float64) for which in (0, 1)
    ]
    near = [float(m.mean()) if len(m) else -1.0 for m in means]
    if near[1] > near[0]:
        side[group] = 1 - side[group]
