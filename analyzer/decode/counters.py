"""Counters of frames other than RoCE and of frames that could not be decoded."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import NamedTuple
from ..results.captures import Pause
from ..words import noun
from . import outcomes
from .control import N_CLASSES, N_FIELDS, UetArrays, no_packets, pauses_of
from .sessions import KIND_NAMES, N_KINDS

ETHERTYPE_NAMES: Final = {
    0x0000: "802.3 LLC",
    0x0806: "ARP",
    0x22F3: "TRILL",
    0x6558: "Ethernet bridging",
    0x8035: "RARP",
    0x8808: "MAC control",
    0x8809: "slow protocols (LACP)",
    0x8847: "MPLS",
    0x8848: "MPLS multicast",
    0x8863: "PPPoE discovery",
    0x8864: "PPPoE session",
    0x888E: "802.1X",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
    0x88E7: "provider backbone bridging (802.1ah)",
    0x88F7: "PTP",
    0x8902: "connectivity fault management (802.1ag)",
    0x8903: "FabricPath",
    0x8906: "FCoE",
    0x8909: "Cisco metadata (CMD)",
    0x8914: "FIP",
    0x8915: "RoCEv1 without BTH",
    0x8926: "VN-Tag",
    0x892F: "HSR",
    0x893F: "E-tag (802.1BR)",
    0x894F: "NSH",
    0xF1C1: "R-tag (802.1CB)",
}
UDP_PORT_NAMES: Final = {
    1701: "L2TP",
    2152: "GTP-U",
    4341: "LISP",
    4754: "GRE",
    4790: "VXLAN-GPE",
    6080: "GUE",
    6635: "MPLS",
    6636: "MPLS in DTLS",
}
"""Tunnels, named if their frames are of another kind than those that are decoded."""
LIKE_ROCE = "like RoCE"
PROTOCOL_NAMES: Final = {
    1: "ICMP",
    2: "IGMP",
    4: "IPv4 in IP",
    6: "TCP",
    17: "UDP",
    41: "IPv6 in IP",
    47: "GRE",
    50: "ESP",
    51: "AH",
    58: "ICMPv6",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    115: "L2TP",
    132: "SCTP",
}


class CounterArrays(NamedTuple):
    """The counters as the decoding kernel fills them, all int64."""

    outcomes: NDArray[np.int64]
    """int64[taps, N_OUTCOMES]: frames by outcome."""
    notes: NDArray[np.int64]
    """int64[taps, N_NOTES]"""
    ethertypes: NDArray[np.int64]
    """int64[65536]: frames that are neither IP nor RoCE; 802.3 lengths count at 0."""
    protocols: NDArray[np.int64]
    """int64[256]: IP packets that are not UDP."""
    udp_ports: NDArray[np.int64]
    """int64[65536]: UDP datagrams other than RoCE, by destination port."""
    roce_like: NDArray[np.int64]
    """int64[65536]: of these, datagrams that begin with a plausible BTH."""
    pause: NDArray[np.int64]
    """int64[taps, 9, N_FIELDS], see control.py."""
    rates: NDArray[np.int64]
    """int64[taps]: link rate, bit/s, 0 when unknown."""
    tunnels: NDArray[np.int64]
    """int64[N_KINDS]: frames by their encapsulations, see sessions.py."""
    uet: UetArrays


class DecodeCounters:
    """Exact counts over all frames of a decoder, per tap where a tap is given."""

    def __init__(self) -> None:
        self.arrays = CounterArrays(
            np.zeros((0, outcomes.N_OUTCOMES), np.int64),
            np.zeros((0, outcomes.N_NOTES), np.int64),
            np.zeros(65536, np.int64),
            np.zeros(256, np.int64),
            np.zeros(65536, np.int64),
            np.zeros(65536, np.int64),
            np.zeros((0, N_CLASSES, N_FIELDS), np.int64),
            np.zeros(0, np.int64),
            np.zeros(N_KINDS, np.int64),
            no_packets(),
        )
        """The arrays for the kernel."""

    def set_rates(self, rates: NDArray[np.int64]) -> None:
        """Grow to len(rates) taps and store their link rates (bit/s, 0 when unknown)."""
        self.make_room(len(rates))
        if not np.array_equal(rates, self.arrays.rates):  # kernels keep the same tuple
            self.arrays = self.arrays._replace(rates=rates)

    def make_room(self, taps: int) -> None:
        """Grow to this many taps."""
        a = self.arrays
        more = taps - len(a.outcomes)
        if more > 0:
            self.arrays = a._replace(
                outcomes=_with_zeros(a.outcomes, more),
                notes=_with_zeros(a.notes, more),
                pause=_with_zeros(a.pause, more),
                rates=_with_zeros(a.rates, more),
            )

    def move_roce(self, packets: NDArray[np.int64]) -> None:
        """Count rows at other taps than they were: int64[taps], the sum is 0."""
        self.make_room(len(packets))
        self.arrays.outcomes[: len(packets), outcomes.ROCE] += packets

    def _outcome(self, kind: int, tap: int | None = None) -> int:
        column = self.arrays.outcomes[:, kind]
        return int(column.sum() if tap is None else column[tap])

    def noted(self, kind: int, tap: int | None = None) -> int:
        """Rows or frames with a property of `outcomes`, such as LENGTH_MISMATCHES."""
        column = self.arrays.notes[:, kind]
        return int(column.sum() if tap is None else column[tap])

    def frames(self, tap: int | None = None) -> int:
        """Frames of one tap or of all; frames inside a mirror's frames count at their own tap."""
        a = self.arrays.outcomes
        return int(a.sum() - self.inner_frames() if tap is None else a[tap].sum())

    def carriers(self) -> int:
        """Frames of mirrors, which carry frames of other taps."""
        return self._outcome(outcomes.CARRIER)

    def inner_frames(self) -> int:
        """Frames found inside frames of mirrors."""
        return self.noted(outcomes.INNER_FRAMES)

    def tunnels(self) -> dict[str, int]:
        """Frames by encapsulation; a frame may have several."""
        counts = self.arrays.tunnels
        return {name: int(counts[kind]) for kind, name in KIND_NAMES.items() if counts[kind]}

    def encapsulated(self) -> int:
        """Frames encapsulated in mirrors or tunnels."""
        return self.noted(outcomes.ENCAPSULATED)

    def roce_packets(self, tap: int | None = None) -> int:
        """Frames that became rows of the packet table."""
        return self._outcome(outcomes.ROCE, tap)

    def later_fragments(self) -> int:
        """Later IP fragments of UDP datagrams: without transport header, hence unknown ports."""
        return self._outcome(outcomes.LATER_FRAGMENT)

    def fragmented_packets(self, tap: int) -> int:
        """First IP fragments of RoCE packets."""
        return self.noted(outcomes.FIRST_FRAGMENTS, tap)

    def pause_frames(self) -> int:
        """PFC and global pause frames."""
        return self._outcome(outcomes.PAUSE)

    def undecodable(self, tap: int | None = None) -> dict[str, int]:
        """Frames that could not be decoded up to the BTH, by reason; only reasons that occur."""
        counts = {text: self._outcome(kind, tap) for kind, text in outcomes.UNDECODABLE.items()}
        return {text: n for text, n in counts.items() if n}

    def oddities(self) -> list[str]:
        """Sentences about packets that may be RoCE on another port, or lack their length."""
        a = self.arrays
        lines = []
        for port in np.flatnonzero(2 * a.roce_like > a.udp_ports).tolist():
            count = int(a.roce_like[port])
            verb = "looks" if count == 1 else "look"
            lines.append(
                f"{count} {noun(count, 'datagram')} to UDP port {port} {verb} {LIKE_ROCE}:"
                f" --udp-port {port} reads this port"
            )
        if unsized := self.noted(outcomes.UNSIZED_PACKETS):
            lines.append(
                f"{unsized} {noun(unsized, 'packet')} with 0 as IP length, as captured before"
                " segmentation: the length of the frame is used"
            )
        return lines

    def general_services_packets(self) -> int:
        """UD rows to queue pair 1."""
        return self.noted(outcomes.GENERAL_SERVICES)

    def mrc_packets(self) -> int:
        """Rows with an opcode of MRC."""
        return self.noted(outcomes.MRC_PACKETS)

    def small_writes(self) -> int:
        """Rows of a size that NCCL's clear-to-send has."""
        return self.noted(outcomes.SMALL_WRITES)

    def icrc(self, tap: int | None = None) -> dict[str, int]:
        """Rows by ICRC state: `unchecked`, `ok`, `bad`, `truncated`."""
        kinds = {
            "unchecked": outcomes.ICRC_UNCHECKED_NOTE,
            "ok": outcomes.ICRC_OK_NOTE,
            "bad": outcomes.ICRC_BAD_NOTE,
            "truncated": outcomes.ICRC_TRUNCATED_NOTE,
        }
        return {name: self.noted(kind, tap) for name, kind in kinds.items()}

    def pause(self, tap: int) -> list[Pause]:
        """Pause frames of one tap per priority, if any."""
        return pauses_of(self.arrays.pause[tap], int(self.arrays.rates[tap]))

    def contents(self) -> list[tuple[str, int]]:
        """Frames by content, most frequent first: [("ARP", 3), ("UDP port 4789", 1)].

        Counts add up to `frames()`, with the frames in a mirror's frames in place of those.
        """
        a = self.arrays
        counts = [("RoCE", self.roce_packets()), ("pause (PFC, 802.3x)", self.pause_frames())]
        counts.append(("later IP fragment", self.later_fragments()))
        counts.append(("Ultra Ethernet", self._outcome(outcomes.UET, None)))
        for value in np.flatnonzero(a.ethertypes):
            name = ETHERTYPE_NAMES.get(int(value), f"EtherType 0x{int(value):04x}")
            counts.append((name, int(a.ethertypes[value])))
        for value in np.flatnonzero(a.protocols):
            name = PROTOCOL_NAMES.get(int(value), f"IP protocol {int(value)}")
            counts.append((name, int(a.protocols[value])))
        for value in np.flatnonzero(a.udp_ports):
            tunnel = UDP_PORT_NAMES.get(int(value))
            name = f"UDP port {int(value)}" + (f" ({tunnel})" if tunnel else "")
            counts.append((name, int(a.udp_ports[value])))
        counts += self.undecodable().items()
        return sorted(((name, n) for name, n in counts if n), key=lambda item: (-item[1], item[0]))


def _with_zeros(array: NDArray[np.int64], more: int) -> NDArray[np.int64]:
    """The array extended by this many rows of zeros (`np.pad` takes ten times as long)."""
    return np.concatenate((array, np.zeros((more, *array.shape[1:]), array.dtype)))
