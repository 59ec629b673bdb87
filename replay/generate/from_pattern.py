"""Traffic of a pattern as packets."""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...kernels.kernel import Bytes, Int, Ints, NamedTuple, inlined, kernel
from ..fabrics.fabric import MAX_HOSTS, AddressPlan
from ..hashing.keys import PacketKeys
from ..traffic.traffic import Traffic, WindowCells, Windows
from .patterns import Settings, pattern
from .queue_pairs import AETH, RETH, START_NS, QueuePairs, Sending, packets_in_order, queue_pairs

# Numbers in frames and in records of a pcap, for kernels.


@inlined
def put(frame: Bytes, at: Int, size: Int, value: Int) -> None:
    """`value` in network byte order."""
    for i in range(size):
        frame[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@inlined
def put_word(out: Bytes, at: Int, value: Int) -> None:
    """Four bytes in the byte order of the file."""
    for i in range(4):
        out[at + i] = np.uint8((value >> (8 * i)) & 0xFF)


@inlined
def put_checksum(frame: Bytes, at: Int) -> None:
    """The checksum of the IPv4 header at this byte, which has no options."""
    put(frame, at + 10, 2, 0)
    total = np.int64(0)
    for i in range(at, at + 20, 2):
        total += np.int64(frame[i]) << 8 | np.int64(frame[i + 1])
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    put(frame, at + 10, 2, total ^ 0xFFFF)


MAX_PAIRS = 1 << 24
MAX_PACKETS = 10**12


def generate(
    name: str, settings: Settings, sending: Sending | None = None, seed: int = 1
) -> QueuePairs:
    """The queue pairs of a pattern; the same arguments give the same queue pairs.

    UsageError names an unknown pattern or an invalid value.
    """
    if not 2 <= settings.hosts <= MAX_HOSTS:
        raise UsageError(f"--hosts must be 2 to {MAX_HOSTS:,}, not {settings.hosts:,}")
    if settings.message_bytes < 1 or settings.messages < 1 or settings.flows < 1:
        raise UsageError("--message-size, --messages and --flows must be 1 or more")
    if settings.flows > MAX_PAIRS:
        raise UsageError(f"--flows must be at most {MAX_PAIRS:,}, not {settings.flows:,}")
    sending = sending or Sending()
    rng = np.random.default_rng(seed)
    demand = pattern(name)(settings, rng)
    if len(demand.src) * sending.qps > MAX_PAIRS:
        raise UsageError(
            f"{name}: {len(demand.src) * sending.qps:,} queue pairs exceed the "
            f"maximum of {MAX_PAIRS:,}; use fewer hosts, flows or QPs"
        )
    pairs = queue_pairs(demand, sending, rng)
    packets = float((pairs.messages.astype(np.float64) * (pairs.packets + 1)).sum())
    if packets > MAX_PACKETS:
        raise UsageError(
            f"{name}: {packets:.3g} packets exceed the maximum of {MAX_PACKETS:,}; "
            "use fewer or smaller messages"
        )
    return pairs


class _Units(NamedTuple):
    """Equally long columns, one row per unit: the entropy values of a pair, then its ACKs."""

    pair: Ints
    entropy_value: Ints
    """-1 for the ACKs."""
    packets: Ints
    wire_bytes: Ints
    first_ns: Ints
    last_ns: Ints


def offered_traffic(pairs: QueuePairs, plan: AddressPlan, window_ns: int | None = None) -> Traffic:
    """The packets of the queue pairs, data and ACKs, exactly as `write_pcap` writes them.

    Host i of the pattern is host i of the plan. window_ns: also bytes per window, which needs
    a pass over all packets.
    """
    units = _units(pairs)
    pair, is_ack = units.pair, units.entropy_value < 0
    src = np.where(is_ack, pairs.dst[pair], pairs.src[pair])
    dst = np.where(is_ack, pairs.src[pair], pairs.dst[pair])
    shift = np.where(is_ack, 0, units.entropy_value * pairs.stride[pair])
    return Traffic(
        keys=keys_of(
            pairs.sending,
            plan,
            src,
            dst,
            pairs.port[pair] + shift,
            np.where(is_ack, pairs.src_qp[pair], pairs.dst_qp[pair]),
        ),
        src_host=src.astype(np.int32),
        dst_host=dst.astype(np.int32),
        flow=(2 * pair + is_ack).astype(np.int32),
        packets=units.packets,
        wire_bytes=units.wire_bytes,
        first_ns=START_NS + units.first_ns,
        last_ns=START_NS + units.last_ns,
        windows=None if window_ns is None else _windows(pairs, window_ns),
        has_data=~is_ack,
    )


def keys_of(
    sending: Sending, plan: AddressPlan, src: Ints, dst: Ints, port: Ints, dest_qp: Ints
) -> PacketKeys:
    """The headers of units from one host to another; port: its low bits."""
    n, hosts = len(src), int(max(src.max(), dst.max())) + 1
    address = plan.packed(np.arange(hosts), sending.ipv6)
    return PacketKeys(
        src=address[src],
        dst=address[dst],
        ipv6=np.full(n, sending.ipv6, np.bool_),
        protocol=np.full(n, 17, np.uint8),
        sport=(0xC000 | port & 0x3FFF).astype(np.uint16),
        dport=np.full(n, ROCE_UDP_PORT, np.uint16),
        flow_label=np.zeros(n, np.uint32),
        dest_qp=dest_qp.astype(np.uint32),
    )


def _windows(pairs: QueuePairs, window_ns: int) -> Windows:
    """Bytes per unit and window, from every single packet."""
    sending, cells = pairs.sending, WindowCells(window_ns)
    values = np.minimum(sending.entropy_values, pairs.messages * pairs.packets)
    first = np.cumsum(values + 1) - (values + 1)
    rest = pairs.message_bytes - (pairs.packets - 1) * sending.path_mtu
    last_bytes = rest + (-rest & 3)
    for packets in packets_in_order(pairs):
        pair, is_ack = packets.pair, packets.is_ack
        position = packets.number % pairs.packets[pair]
        is_last = position == pairs.packets[pair] - 1
        size = sending.headers + np.where(is_last, last_bytes[pair], sending.path_mtu)
        size += np.where((position == 0) & sending.write, RETH, 0)
        cells.add(
            first[pair] + np.where(is_ack, values[pair], packets.number % sending.entropy_values),
            START_NS + packets.time_ns,
            np.where(is_ack, sending.headers + AETH, size),
        )
    return cells.windows()


def _units(pairs: QueuePairs) -> _Units:
    values = np.minimum(pairs.sending.entropy_values, pairs.messages * pairs.packets)
    rows = int(values.sum()) + len(pairs)
    sending = pairs.sending
    units = _Units(*(np.zeros(rows, np.int64) for _ in _Units._fields))
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(values + 1)])
    _fill(
        first,
        pairs.messages,
        pairs.message_bytes,
        pairs.packets,
        pairs.start_ns,
        pairs.interval_ns,
        pairs.period_ns,
        np.array(
            [
                sending.entropy_values,
                sending.path_mtu,
                sending.headers,
                RETH if sending.write else 0,
                sending.headers + AETH,
                sending.round_trip_ns,
            ],
            np.int64,
        ),
        units,
    )
    return units


@kernel
def _fill(
    first: Ints,
    messages: Ints,
    message_bytes: Ints,
    packets: Ints,
    start_ns: Ints,
    interval_ns: Ints,
    period_ns: Ints,
    settings: Ints,
    units: _Units,
) -> None:
    """Sum up the packets of every entropy value without a pass over all packets."""
    path_mtu, headers, reth = settings[1], settings[2], settings[3]
    for pair in range(len(messages)):
        values = first[pair + 1] - first[pair] - 1
        cycle = settings[0]
        count, total = packets[pair], messages[pair] * packets[pair]
        for value in range(values):
            row = first[pair] + value
            units.pair[row] = pair
            units.entropy_value[row] = value
            units.packets[row] = (total - value + cycle - 1) // cycle
            units.wire_bytes[row] = units.packets[row] * (headers + path_mtu)
            last = value + (units.packets[row] - 1) * cycle
            units.first_ns[row] = (
                start_ns[pair]
                + value // count * period_ns[pair]
                + value % count * interval_ns[pair]
            )
            units.last_ns[row] = (
                start_ns[pair] + last // count * period_ns[pair] + last % count * interval_ns[pair]
            )
        rest = message_bytes[pair] - (count - 1) * path_mtu
        short = path_mtu - (rest + (-rest & 3))  # bytes missing in the last packet, after padding
        for message in range(messages[pair]):
            begin = first[pair]
            units.wire_bytes[begin + message * count % cycle] += reth
            units.wire_bytes[begin + (message * count + count - 1) % cycle] -= short
        row = first[pair + 1] - 1
        units.pair[row] = pair
        units.entropy_value[row] = -1
        units.packets[row] = messages[pair]
        units.wire_bytes[row] = messages[pair] * settings[4]
        units.first_ns[row] = start_ns[pair] + (count - 1) * interval_ns[pair] + settings[5]
        units.last_ns[row] = units.first_ns[row] + (messages[pair] - 1) * period_ns[pair]
