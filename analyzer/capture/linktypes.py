"""Names of link types, for messages about captures that cannot be decoded."""

from __future__ import annotations

from ..wire.frames import LINKTYPE_RAW, SUPPORTED_LINK_TYPES

LINKTYPE_ERF = 197
LINKTYPE_INFINIBAND = 247

# The common ones of https://www.tcpdump.org/linktypes.html.
NAMES: dict[int, str] = {
    0: "NULL",
    1: "ETHERNET",
    6: "IEEE802_5",
    8: "SLIP",
    9: "PPP",
    10: "FDDI",
    50: "PPP_HDLC",
    51: "PPP_ETHER",
    101: "RAW",
    104: "C_HDLC",
    105: "IEEE802_11",
    107: "FRELAY",
    108: "LOOP",
    113: "LINUX_SLL",
    117: "PFLOG",
    119: "IEEE802_11_PRISM",
    122: "IP_OVER_FC",
    127: "IEEE802_11_RADIOTAP",
    140: "MTP2",
    143: "DOCSIS",
    147: "USER0",
    163: "IEEE802_11_AVS",
    187: "BLUETOOTH_HCI_H4",
    189: "USB_LINUX",
    192: "PPI",
    195: "IEEE802_15_4_WITHFCS",
    197: "ERF",
    201: "BLUETOOTH_HCI_H4_WITH_PHDR",
    220: "USB_LINUX_MMAPPED",
    224: "FC_2",
    225: "FC_2_WITH_FRAME_DELIMS",
    226: "IPNET",
    227: "CAN_SOCKETCAN",
    228: "IPV4",
    229: "IPV6",
    230: "IEEE802_15_4_NOFCS",
    231: "DBUS",
    239: "NFLOG",
    240: "NETANALYZER",
    247: "INFINIBAND",
    248: "SCTP",
    249: "USBPCAP",
    252: "WIRESHARK_UPPER_PDU",
    253: "NETLINK",
    256: "BLUETOOTH_LE_LL_WITH_PHDR",
    258: "PKTAP",
    271: "VSOCK",
    272: "NORDIC_BLE",
    274: "ETHERNET_MPACKET",
    276: "LINUX_SLL2",
}

# Values of DLT_RAW that some systems write instead of LINKTYPE_RAW.
_ALIASES = {12: LINKTYPE_RAW, 14: LINKTYPE_RAW}


def canonical(link_type: int) -> int:
    """`link_type` with platform dependent values replaced by the LINKTYPE_ value."""
    return _ALIASES.get(link_type, link_type)


def supported(link_type: int) -> bool:
    """Whether the decoder supports this (canonical) link type."""
    return link_type in SUPPORTED_LINK_TYPES


def label(link_type: int) -> str:
    """Name and number: "LINKTYPE_IEEE802_11 (105)"."""
    return f"LINKTYPE_{NAMES.get(link_type, 'unknown')} ({link_type})"


def why_unsupported(link_type: int) -> str:
    """Why frames of this link type cannot be analysed, with a remedy."""
    if link_type in (LINKTYPE_ERF, LINKTYPE_INFINIBAND):
        return (
            f"link type {label(link_type)} is a native InfiniBand capture, not RoCE over Ethernet:"
            " capture on the Ethernet port of the NIC or switch instead"
        )
    known = ", ".join(label(t) for t in sorted(SUPPORTED_LINK_TYPES))
    return f"link type {label(link_type)} is not supported: capture with one of {known}"
