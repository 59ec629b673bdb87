"""Outcomes and notes of frames.

Every frame has exactly one outcome, so the outcomes of a tap add up to its
frames. Notes are counted separately.
"""

from __future__ import annotations

from typing import Final

# Outcomes.
ROCE = 0
OTHER_ETHERTYPE = 1
OTHER_PROTOCOL = 2
OTHER_UDP_PORT = 3
PAUSE = 4
LATER_FRAGMENT = 5
UNKNOWN_LINK_TYPE = 6
TRUNCATED_LINK = 7
TRUNCATED_PAUSE = 8
TRUNCATED_IP = 9
TRUNCATED_UDP = 10
TRUNCATED_BTH = 11
BAD_VLAN = 12
BAD_IP_HEADER = 13
BAD_LENGTH = 14
TRUNCATED_TUNNEL = 15
BAD_GRE = 16
BAD_ERSPAN = 17
BAD_GENEVE = 18
BAD_MPLS = 19
BAD_TIMESTAMP = 20
BAD_SFLOW = 21
TOO_DEEP = 22
CARRIER = 23  # a mirror's frame, replaced by its inner frame
UET = 24
N_OUTCOMES = 25

UNDECODABLE: Final = {
    UNKNOWN_LINK_TYPE: "unknown link type",
    TRUNCATED_LINK: "truncated in the link header",
    TRUNCATED_PAUSE: "truncated in a pause frame",
    TRUNCATED_IP: "truncated in the IP header",
    TRUNCATED_UDP: "truncated in the UDP header",
    TRUNCATED_BTH: "truncated before the end of the BTH",
    BAD_VLAN: "more than four VLAN tags",
    BAD_IP_HEADER: "bad IP header",
    BAD_LENGTH: "IP or UDP length too short for a BTH",
    TRUNCATED_TUNNEL: "truncated in a header around the mirrored frame",
    BAD_GRE: "GRE with source routes",
    BAD_ERSPAN: "bad ERSPAN header",
    BAD_GENEVE: "Geneve options longer than the packet",
    BAD_MPLS: "bad MPLS stack",
    BAD_TIMESTAMP: "timestamp header of an unknown kind",
    BAD_SFLOW: "sFlow lengths that contradict each other",
    TOO_DEEP: "more than eight encapsulations",
}
"""Outcomes of undecodable frames, with the reason."""

# Notes. The first four are the values of `icrc_state`.
ICRC_UNCHECKED_NOTE = 0
ICRC_OK_NOTE = 1
ICRC_BAD_NOTE = 2
ICRC_TRUNCATED_NOTE = 3
VLAN_TAGGED = 4
FIRST_FRAGMENTS = 5
LENGTH_MISMATCHES = 6
UNKNOWN_OPCODES = 7
SNAPPED_HEADERS = 8
ROCE_V1_PACKETS = 9
GENERAL_SERVICES = 10  # UD packets to queue pair 1: management datagrams
MRC_PACKETS = 11  # rows with an opcode of MRC
ENCAPSULATED = 12  # frames encapsulated in mirrors or tunnels
INNER_FRAMES = 13  # frames found inside mirrored ones, counted at their tap
UNSIZED_PACKETS = 14  # rows with 0 as their IP length
SMALL_WRITES = 15  # rows of a size that NCCL's clear-to-send has, see grants.py
N_NOTES = 16
