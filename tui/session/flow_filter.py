"""Filters over the columns of the flows: `late > 1% and src == 10.0.1.0/24`, or just `10.0.1`.

The syntax is that of the packet filter. A filter with flow fields only selects rows of the
table at once; a filter with packet fields needs another pass over the packets. A plain word is
searched in addresses and QPNs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from typing import TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.filtering import grammar
from ...analyzer.filtering.compiler import rank_numbers
from ...analyzer.filtering.fields import FIELDS
from ...analyzer.filtering.grammar import Node, parse
from ...analyzer.results.base import Fact, facts_of
from ...analyzer.results.flow import Flow
from ...analyzer.wire.bth import TRANSPORT_NAMES
from ...kernels.kernel import Array, Bools
from ...report.human import queue_pair
from .snapshot import MRC_FACTS, UNKNOWN, MrcFact, Snapshot, SourceState

Mask: TypeAlias = Bools

_NUMBER = re.compile(r"(0x[0-9a-fA-F]+)|(\d+(?:\.\d*)?)([kMG%]?)")
_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "%": 0.01}


@dataclass(frozen=True, slots=True)
class FlowField:
    """A number every flow has."""

    values: Callable[[Snapshot], Array]
    meaning: str
    of: Callable[[Snapshot], Array] | None = None
    """The base of a value in percent."""


def _count(name: str, meaning: str, of: str | None = None) -> FlowField:
    return FlowField(
        lambda s: getattr(s.flows, name),
        meaning,
        None if of is None else lambda s: getattr(s.flows, of),
    )


def _declared(fact: Fact) -> FlowField:
    return FlowField(
        lambda s: s.flows.counts_of(fact), fact.title or fact.meaning, lambda s: s.flows.arrivals
    )


def _of_mrc(fact: MrcFact) -> FlowField:
    def values(snapshot: Snapshot) -> Array:
        if snapshot.mrc is None:
            return np.full(len(snapshot.flows), UNKNOWN)
        column: Array = getattr(snapshot.mrc, fact.name)
        return column

    return FlowField(values, f"of MRC: {fact.meaning}")


FLOW_FIELDS: dict[str, FlowField] = {
    "qp": _count("qp", "destination QP"),
    "packets": _count("packets", "packets of the flow"),
    "bytes": _count("wire_bytes", "bytes on the wire"),
    "rate": _count("rate", "bits per second, as in rate > 10G"),
    "late": _count("late", "late packets, or their share: late > 1%", "arrivals"),
    "extent": _count("max_extent", "largest reordering extent, packets"),
    **{fact.key: _declared(fact) for fact in facts_of(Flow) if fact.key},
    "naks": _count("naks", "NAKs the flow caused"),
    "rnrs": _count("rnr_naks", "RNR NAKs the flow caused"),
    "cnps": _count("cnps", "CNPs that its sender received"),
    "ce": _count("ecn_marked", "packets marked CE", "packets"),
    "paths": FlowField(lambda s: s.paths["entropy"].seen(), "UDP source ports used"),
    "width": FlowField(lambda s: s.paths["entropy"].width, "spraying width"),
    **{fact.filter: _of_mrc(fact) for fact in MRC_FACTS},
}
_ADDRESSES = {"src": ("src",), "dst": ("dst",), "addr": ("src", "dst")}
_OF_JOBS = {name: field.of_job for name, field in FIELDS.items() if field.of_job}
"""Columns of the ranks of a field; -1 where not known."""
_OF_FLOWS = {*FLOW_FIELDS, *_ADDRESSES, *_OF_JOBS, "transport"}


def is_plain(text: str) -> bool:
    """Whether the filter is a plain word, not an expression."""
    if text in FIELDS or text.lower() in FLOW_FIELDS:
        return False
    return re.fullmatch(r"[\w.:/-]+", text) is not None


def needs_packets(text: str) -> bool:
    """Whether the filter needs packet fields. UsageError for an invalid filter."""
    if is_plain(text):
        return False
    names = {name.text.lower() for name in grammar.names(parse(text))}
    foreign = names - _OF_FLOWS
    if not foreign:
        return False
    known = {*_OF_FLOWS, *(field.lower() for field in FIELDS)}
    for name in sorted(foreign - known):
        if close := get_close_matches(name, known, n=1, cutoff=0.7):
            raise UsageError(f"filter: unknown field {name!r}; did you mean {close[0]}?")
    of_flows = sorted(name for name in names if name in FLOW_FIELDS and name not in FIELDS)
    if of_flows:
        raise UsageError(
            f"filter: {of_flows[0]} (of flows) and {min(foreign)} (of packets) cannot be combined"
        )
    return True


class FlowFilter:
    """Selects flows; `text` is the user's filter. UsageError for an invalid flow filter."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._node = None if not self.text or is_plain(self.text) else parse(self.text)
        if self._node is not None:
            self._check(self._node)

    def mask(self, snapshot: Snapshot) -> Mask:
        """Which flows pass: bool by flow index."""
        if not self.text:
            return np.ones(len(snapshot.flows), np.bool_)
        if self._node is None:
            return _search(self.text.lower(), snapshot)
        return _mask(self._node, snapshot)

    def _check(self, node: Node) -> None:
        """Parse the values without flows, so that mistakes are reported at once."""
        _mask(node, Snapshot(SourceState("", "")))


def _mask(node: Node, snapshot: Snapshot) -> Mask:
    match node:
        case grammar.Junction(conjunction, operands):
            masks = [_mask(operand, snapshot) for operand in operands]
            return ~_any([~mask for mask in masks]) if conjunction else _any(masks)
        case grammar.Negation(operand):
            return ~_mask(operand, snapshot)
        case grammar.Comparison(field, symbol, value):
            return _compared(field, symbol, value, snapshot)
        case grammar.Membership(field, ranges):
            return _any([_between(field, a, b, snapshot) for a, b in ranges])
        case grammar.Presence(field) if field.text.lower() in _OF_JOBS:
            return _any([column >= 0 for column in _of_job(field.text.lower(), snapshot)])
        case grammar.Presence(field):
            known = FLOW_FIELDS.get(field.text.lower())
            if known is None:
                raise UsageError(f"filter: compare {field.text} with something, as {field.text} ==")
            return np.asarray(known.values(snapshot) > 0)


def _any(masks: list[Mask]) -> Mask:
    result: Mask = np.logical_or.reduce(masks)
    return result


def _compared(field: grammar.Text, symbol: str, value: grammar.Text, snapshot: Snapshot) -> Mask:
    name = field.text.lower()
    if name in _ADDRESSES or name == "transport":
        if symbol not in ("==", "!="):
            raise UsageError(f"filter: {name} has no order; use ==, != or in {{...}}")
        hit = _equal(name, value, snapshot)
        return hit if symbol == "==" else ~hit
    if name in _OF_JOBS:
        columns = _of_job(name, snapshot)
        known = _any([column >= 0 for column in columns])
        if symbol == "!=":
            return np.asarray(known & ~_any(_tested(name, "==", value, columns, snapshot)))
        return _any(_tested(name, symbol, value, columns, snapshot))
    values, limit = _number(name, value, snapshot)
    return np.asarray(grammar.OPERATORS[symbol](values, limit) & _known(name, snapshot))


def _between(
    field: grammar.Text, low: grammar.Text, high: grammar.Text, snapshot: Snapshot
) -> Mask:
    name = field.text.lower()
    if name in _ADDRESSES or name == "transport":
        return _equal(name, low, snapshot)
    if name in _OF_JOBS:
        columns = _of_job(name, snapshot)
        if low is high:
            return _any(_tested(name, "==", low, columns, snapshot))
        above = _tested(name, ">=", low, columns, snapshot)
        below = _tested(name, "<=", high, columns, snapshot)
        return _any([a & b for a, b in zip(above, below, strict=True)])
    values, first = _number(name, low, snapshot)
    _, last = _number(name, high, snapshot)
    return np.asarray((values >= first) & (values <= last) & _known(name, snapshot))


def _of_job(name: str, snapshot: Snapshot) -> list[Array]:
    """The columns of a field of ranks, or of the communicator's number."""
    numbers = np.full((len(snapshot.flows), 3), -1, np.int64)
    codes = _comms(snapshot)
    for flow, owner in snapshot.owners.items():
        numbers[flow] = rank_numbers(owner, codes)
    columns = dict(zip(("sender", "receiver", "comm"), numbers.T, strict=True))
    return [columns[column] for column in _OF_JOBS[name]]


def _comms(snapshot: Snapshot) -> dict[str, int]:
    names = sorted({owner.comm for owner in snapshot.owners.values() if owner.comm})
    return {name: code for code, name in enumerate(names)}


def _tested(
    name: str, symbol: str, value: grammar.Text, columns: list[Array], snapshot: Snapshot
) -> list[Mask]:
    if name == "comm":
        if symbol != "==":
            raise UsageError("filter: comm has no order; use ==, != or in {...}")
        wanted = _comms(snapshot).get(value.text, -2)
    elif not (value.text.isascii() and value.text.isdigit()):
        raise UsageError(f"filter: {name} takes a number, not {value.text!r}")
    else:
        wanted = int(value.text)
    return [(c >= 0) & grammar.OPERATORS[symbol](c, wanted) for c in columns]


def _known(name: str, snapshot: Snapshot) -> Mask:
    return np.asarray(FLOW_FIELDS[name].values(snapshot) >= 0)


def _number(name: str, value: grammar.Text, snapshot: Snapshot) -> tuple[Array, float]:
    """The values to compare (shares if `value` is in percent), and the number."""
    match = _NUMBER.fullmatch(value.text)
    if not match:
        raise UsageError(f"filter: {name} takes a number (10, 5k, 1%, 0x11), not {value.text!r}")
    values = FLOW_FIELDS[name].values(snapshot)
    if match[1]:
        return values, int(match[1], 16)
    if match[3] == "%":
        of = FLOW_FIELDS[name].of
        if of is None:
            raise UsageError(f"filter: {name} is not a share: remove the %")
        values = values / np.maximum(of(snapshot), 1)
    return values, float(match[2]) * _SCALES[match[3]]


def _equal(name: str, value: grammar.Text, snapshot: Snapshot) -> Mask:
    flows = snapshot.flows
    if name == "transport":
        wanted = value.text.upper()
        if wanted not in TRANSPORT_NAMES:
            raise UsageError(f"filter: transport is one of {', '.join(TRANSPORT_NAMES[:6])}")
        return np.asarray(flows.transport == TRANSPORT_NAMES.index(wanted))
    try:
        network = ip_network(value.text, strict=False)
    except ValueError:
        raise UsageError(f"filter: {value.text!r} is not an address or a network") from None
    known = map(ip_address, snapshot.addresses)
    inside = np.array([a.version == network.version and a in network for a in known], np.bool_)
    hits = [inside[getattr(flows, column)] for column in _ADDRESSES[name]]
    return _any(hits)


def _search(word: str, snapshot: Snapshot) -> Mask:
    flows = snapshot.flows
    hit = np.array([word in text for text in snapshot.addresses], np.bool_)
    mask: Mask = np.zeros(len(flows), np.bool_)
    if len(hit):
        mask = hit[flows.src] | hit[flows.dst]
    numbers, where = np.unique(flows.qp, return_inverse=True)
    named = np.array([word in queue_pair(int(n)) for n in numbers], np.bool_)
    return mask | named[where] if len(named) else mask
