"""A packet filter as a C expression, so that the kernel exports only matching packets.

The language is the analyzer's (analyzer/filtering). The kernel knows fields of the IP
header, the UDP ports and the BTH; other fields need the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.filtering import grammar
from ...analyzer.filtering.compiler import Filter
from ...analyzer.filtering.grammar import Node, parse
from ...analyzer.wire.packets import PacketTable
from ...analyzer.wire.registry import Registry

_IPV4, _ROCE_V1 = "(p)->ipv4", "!(p)->dport"
_IPV6 = f"(!{_IPV4} && !({_ROCE_V1}))"


@dataclass(frozen=True, slots=True)
class _Number:
    """A numeric field: C expressions of its values and of its presence in the packet."""

    values: tuple[str, ...]
    present: str = "1"


@dataclass(frozen=True, slots=True)
class _Address:
    """An address field: its offset in the IPv4 and the IPv6 header."""

    offsets: tuple[tuple[int, int], ...]
    present: str = "1"


def _bth(offset: int, mask: int, shift: int = 0) -> str:
    return f"(load32((p)->bth + {offset}) >> {shift} & {mask:#x})"


_SPORT, _DPORT = "(p)->sport", "(p)->dport"
_UDP = f"!({_ROCE_V1})"
_CLASS = f"({_IPV4} ? (p)->ip[1] : (load16((p)->ip) >> 4 & 0xff))"
_SRC, _DST = (12, 8), (16, 24)

_NUMBERS = {
    "udp.srcport": _Number((_SPORT,), _UDP),
    "udp.dstport": _Number((_DPORT,), _UDP),
    "udp.port": _Number((_SPORT, _DPORT), _UDP),
    "sport": _Number((_SPORT,), _UDP),
    "dport": _Number((_DPORT,), _UDP),
    "infiniband.bth.destqp": _Number((_bth(4, 0xFFFFFF),)),
    "qp": _Number((_bth(4, 0xFFFFFF),)),
    "infiniband.bth.psn": _Number((_bth(8, 0xFFFFFF),)),
    "psn": _Number((_bth(8, 0xFFFFFF),)),
    "infiniband.bth.p_key": _Number((_bth(0, 0xFFFF),)),
    "infiniband.bth.a": _Number((_bth(8, 1, 31),)),
    "infiniband.bth.se": _Number((_bth(0, 1, 23),)),
    "fecn": _Number((_bth(4, 1, 31),)),
    "becn": _Number((_bth(4, 1, 30),)),
    "dscp": _Number((f"({_CLASS} >> 2)",)),
    "ecn": _Number((f"({_CLASS} & 3)",)),
    "ip.dsfield.dscp": _Number((f"({_CLASS} >> 2)",), _IPV4),
    "ip.dsfield.ecn": _Number((f"({_CLASS} & 3)",), _IPV4),
    "ipv6.tclass.dscp": _Number((f"({_CLASS} >> 2)",), _IPV6),
    "ipv6.tclass.ecn": _Number((f"({_CLASS} & 3)",), _IPV6),
    "ipv6.flow": _Number(("(load32((p)->ip) & 0xfffff)",), _IPV6),
    "ipv6": _Number((_IPV6,), _IPV6),
}
_FLAGS = ("fecn", "becn", "ipv6")
_ADDRESSES = {
    "src": _Address((_SRC,)),
    "dst": _Address((_DST,)),
    "addr": _Address((_SRC, _DST)),
    "ip.src": _Address((_SRC,), _IPV4),
    "ip.dst": _Address((_DST,), _IPV4),
    "ip.addr": _Address((_SRC, _DST), _IPV4),
    "ipv6.src": _Address((_SRC,), _IPV6),
    "ipv6.dst": _Address((_DST,), _IPV6),
    "ipv6.addr": _Address((_SRC, _DST), _IPV6),
}
_OPCODE_FIELDS = ("infiniband.bth.opcode", "opcode", "transport", "cnp")
"""Fields that depend on the opcode only: they become a set of opcodes."""


def c_condition(text: str) -> str:
    """The C expression over `p` of a filter; UsageError for fields unknown to the kernel."""
    Filter(text)  # reports errors of the filter
    return _condition(parse(text))


def _condition(node: Node) -> str:
    match node:
        case (
            grammar.Presence(field) | grammar.Comparison(field, _, _) | grammar.Membership(field, _)
        ) if field.text.lower() in _OPCODE_FIELDS:
            return _opcode_set(node)
        case grammar.Presence(field):
            return _present(field)
        case grammar.Comparison(field, operator, value):
            return _comparison(field, operator, value)
        case grammar.Membership(field, ranges):
            tests = [_between(field, low, high) for low, high in ranges]
            return f"({' || '.join(tests)})"
        case grammar.Negation(operand):
            return f"!{_condition(operand)}"
        case grammar.Junction(conjunction, operands):
            joined = (" && " if conjunction else " || ").join(map(_condition, operands))
            return f"({joined})"


def _present(field: grammar.Text) -> str:
    name = field.text.lower()
    if name in _FLAGS:
        return f"({_NUMBERS[name].values[0]} != 0)"
    if name in _NUMBERS:
        return f"({_NUMBERS[name].present})"
    if name in _ADDRESSES:
        return f"({_ADDRESSES[name].present})"
    raise _not_in_kernel(field)


def _comparison(field: grammar.Text, operator: str, value: grammar.Text) -> str:
    if operator == "==":
        return _between(field, value, value)
    if operator == "!=":
        return f"({_present_of(field)} && !{_between(field, value, value)})"
    number = _NUMBERS.get(field.text.lower())
    if number is None:
        raise _not_in_kernel(field)
    tests = [f"{expression} {operator} {_value(value)}" for expression in number.values]
    return f"({number.present} && ({' || '.join(tests)}))"


def _present_of(field: grammar.Text) -> str:
    name = field.text.lower()
    known = _NUMBERS.get(name) or _ADDRESSES.get(name)
    if known is None:
        raise _not_in_kernel(field)
    return known.present


def _between(field: grammar.Text, low: grammar.Text, high: grammar.Text) -> str:
    name = field.text.lower()
    if name in _ADDRESSES:
        return _in_network(_ADDRESSES[name], low)
    number = _NUMBERS.get(name)
    if number is None:
        raise _not_in_kernel(field)
    first, last = _value(low), _value(high)
    tests = [
        f"{expression} == {first}"
        if first == last
        else f"({expression} >= {first} && {expression} <= {last})"
        for expression in number.values
    ]
    return f"({number.present} && ({' || '.join(tests)}))"


def _value(text: grammar.Text) -> int:
    word = text.text.lower()
    if word in ("true", "false"):
        return int(word == "true")
    return int(word, 16) if word.startswith("0x") else int(word)


def _in_network(address: _Address, value: grammar.Text) -> str:
    network = ip_network(value.text, strict=False)
    is_ipv4 = isinstance(network, IPv4Network)
    words = 1 if is_ipv4 else 4
    tests = []
    for offsets in address.offsets:
        offset = offsets[0] if is_ipv4 else offsets[1]
        parts = []
        for word in range(words):
            shift = 32 * (words - 1 - word)
            mask = int(network.netmask) >> shift & 0xFFFFFFFF
            wanted = int(network.network_address) >> shift & 0xFFFFFFFF
            if mask:
                parts.append(f"(load32((p)->ip + {offset + 4 * word}) & {mask:#x}) == {wanted:#x}")
        tests.append(f"({' && '.join(parts) or '1'})")
    version = _IPV4 if is_ipv4 else f"!{_IPV4}"
    return f"({version} && ({address.present}) && ({' || '.join(tests)}))"


def _opcode_set(node: Node) -> str:
    """The set of the 256 opcodes that pass, evaluated by the analyzer, as an expression."""
    table = PacketTable.zeros(256)
    table.opcode[:] = np.arange(256)
    passing = Filter(_written(node)).mask(table, Registry())
    words = np.packbits(passing, bitorder="little").view("<u8")
    tests = [
        f"((p)->bth[0] >> 6 == {index} && ({int(word):#x}ull >> ((p)->bth[0] & 63) & 1))"
        for index, word in enumerate(words)
        if word
    ]
    return f"({' || '.join(tests) or '0'})"


def _written(node: Node) -> str:
    """The text of a test of one field."""
    match node:
        case grammar.Presence(field):
            return field.text
        case grammar.Comparison(field, operator, value):
            return f'{field.text} {operator} "{value.text}"'
        case grammar.Membership(field, ranges):
            items = [
                f'"{low.text}"' if low is high else f'"{low.text}".."{high.text}"'
                for low, high in ranges
            ]
            return f"{field.text} in {{{', '.join(items)}}}"
    raise AssertionError(f"{node} is not a test of one field")


def _not_in_kernel(field: grammar.Text) -> UsageError:
    known = sorted({*_NUMBERS, *_ADDRESSES, *_OPCODE_FIELDS})
    return UsageError(
        f"filter: the kernel has no {field.text} (column {field.column}): capture without and"
        f" filter in analyze; it knows {', '.join(known)}"
    )
