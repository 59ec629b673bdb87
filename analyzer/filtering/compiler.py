"""A filter as a function from packet tables to masks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cached_property
from ipaddress import IPv4Network, ip_network
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Ints
from ..errors import UsageError
from ..results.flow import Owner
from ..wire.bth import opcode_name
from ..wire.packets import PacketTable
from ..wire.registry import IPV4_MAPPED, Registry
from ..wire.taps import Taps
from .fields import FIELDS, OF_JOBS, WIRESHARKS, Field, Kind, Mask
from .grammar import (
    OPERATORS,
    Comparison,
    Junction,
    Membership,
    Negation,
    Node,
    Presence,
    Text,
    names,
    parse,
)

# Ranks of packets: those of their flows, as a pass over the whole capture found them.

FlowName: TypeAlias = tuple[str, str, int]
"""Source address, destination address and destination queue pair."""

_QP_BITS = 24


class Ranks:
    """The ranks and the communicator of the packets of known flows; -1 where not known."""

    def __init__(self, owners: Mapping[FlowName, Owner]) -> None:
        self.owners = owners
        self.comms = sorted({owner.comm for owner in owners.values() if owner.comm is not None})
        """Communicators by their numbers in `columns`."""
        self._codes = {name: code for code, name in enumerate(self.comms)}

    def __bool__(self) -> bool:
        """Whether any rank is known."""
        return any(owner.ranks != (None, None) for owner in self.owners.values())

    def code(self, comm: str) -> int:
        """The number of a communicator in `columns`; -2 for one that no flow has."""
        return self._codes.get(comm, -2)

    def columns(self, table: PacketTable, registry: Registry) -> dict[str, Ints]:
        """int64[len(table)] each: `sender`, `receiver` and `comm`, for the packets of a batch."""
        hosts = len(registry.endpoints) + 1
        pair, pairs = np.unique(table.src.astype(np.int64) * hosts + table.dst, return_inverse=True)
        flow, flows = np.unique(pairs << _QP_BITS | table.dest_qp, return_inverse=True)
        ends = pair[flow >> _QP_BITS]
        text = registry.endpoints.text
        columns = self._of(
            (text(int(end // hosts)), text(int(end % hosts)), int(qp))
            for end, qp in zip(ends, flow & ((1 << _QP_BITS) - 1), strict=True)
        )
        return {name: column[flows] for name, column in columns.items()}

    def _of(self, names: Iterable[FlowName]) -> dict[str, Ints]:
        rows = [rank_numbers(self.owners.get(name), self._codes) for name in names]
        columns = np.array(rows, np.int64).reshape(-1, 3)
        return dict(zip(("sender", "receiver", "comm"), columns.T, strict=True))


def rank_numbers(owner: Owner | None, codes: Mapping[str, int]) -> tuple[int, int, int]:
    """Sending rank, receiving rank and number of the communicator; -1 where not known."""
    if owner is None:
        return -1, -1, -1
    sender, receiver = owner.ranks
    comm = -1 if owner.comm is None else codes.get(owner.comm, -1)
    return -1 if sender is None else sender, -1 if receiver is None else receiver, comm


LOGS = "--nccl-log, or with comments of rocescope capture,"
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_MASK64 = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True)
class _Rows:
    """The context of a test: packet table, tap names and ranks."""

    table: PacketTable
    registry: Registry
    ranks: Ranks | None

    @cached_property
    def of_job(self) -> dict[str, Ints]:
        """Columns of the ranks."""
        assert self.ranks is not None
        return self.ranks.columns(self.table, self.registry)


_Test: TypeAlias = Callable[[_Rows], Mask]
_Match: TypeAlias = Callable[[NDArray[Any], _Rows], Mask]


class Filter:
    """A compiled filter; `text` is what the user wrote. UsageError gives its mistake and the column
    on one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            node = parse(text)
            self._test = _compile(node)
            of_jobs = [n.text for n in names(node) if _field(n).kind in OF_JOBS]
        except RecursionError:
            raise UsageError("filter: nested too deeply") from None
        self.of_job = of_jobs[0] if of_jobs else None
        """A field of it that only `Ranks` give; None without one."""

    def mask(self, table: PacketTable, registry: Registry, ranks: Ranks | None = None) -> Mask:
        """bool[len(table)]: rows that pass the filter.

        UsageError for a filter with `of_job` without ranks.
        """
        if self.of_job is not None and ranks is None:
            raise UsageError(f"filter: {self.of_job} is known for captures with {LOGS} only")
        return self._test(_Rows(table, registry, ranks))


def _compile(node: Node) -> _Test:
    match node:
        case Presence(name):
            return _present(_field(name))
        case Comparison(name, symbol, value):
            return _comparison(_field(name), symbol, value)
        case Membership(name, ranges):
            field = _field(name)
            return _any_value(field, _one_of([_range(field, low, high) for low, high in ranges]))
        case Negation(operand):
            inner = _compile(operand)
            return lambda rows: ~inner(rows)
        case Junction(conjunction, operands):
            tests = [_compile(operand) for operand in operands]
            ufunc = np.logical_and if conjunction else np.logical_or
            return lambda rows: ufunc.reduce([test(rows) for test in tests])


def _field(name: Text) -> Field:
    field = FIELDS.get(name.text) or FIELDS.get(name.text.lower())
    if field is None:
        where = f"{name.text!r} at column {name.column}"
        raise UsageError(f"filter: unknown field {where}; {_hint(name.text.lower())}")
    return field


def _hint(name: str) -> str:
    """What an unknown name may be: a slip, or a field of Wireshark that packets here have not."""
    group, _, last = name.rpartition(".")
    beside = [field.rpartition(".")[2] for field in FIELDS if field.rpartition(".")[0] == group]
    if group and (slip := get_close_matches(last, beside, n=1)):
        return f"did you mean {group}.{slip[0]}?"
    if group.partition(".")[0] in WIRESHARKS:
        return "Wireshark may have it, rocescope has not; docs/filter.md lists all fields"
    if close := get_close_matches(name, FIELDS, n=1, cutoff=0.65):
        return f"did you mean {close[0]}?"
    short = ", ".join(field for field in FIELDS if "." not in field)
    return f"valid are {short}, and Wireshark's names in docs/filter.md"


def _any_value(field: Field, matches: _Match) -> _Test:
    """Whether any of the field's values in a row matches."""

    def of_job(rows: _Rows) -> Mask:
        columns = [rows.of_job[name] for name in field.of_job]
        hits: Mask = np.logical_or.reduce([(c >= 0) & matches(c, rows) for c in columns])
        return hits

    def test(rows: _Rows) -> Mask:
        hits = [matches(values(rows.table), rows) for values in field.values]
        hit = hits[0] if len(hits) == 1 else np.logical_or.reduce(hits)
        return hit & field.present(rows.table)

    return of_job if field.of_job else test


def _present(field: Field) -> _Test:
    if not field.of_job:
        return lambda rows: field.present(rows.table)
    return lambda rows: np.logical_or.reduce([rows.of_job[name] >= 0 for name in field.of_job])


def _comparison(field: Field, symbol: str, value: Text) -> _Test:
    if symbol in ("==", "!="):
        equal = _any_value(field, _range(field, value, value))
        if symbol == "==":
            return equal
        # As in Wireshark 4: the field is present and none of its values is equal.
        present = _present(field)
        return lambda rows: present(rows) & ~equal(rows)
    compare = OPERATORS[symbol]
    limit = _ordered(field, value)
    return _any_value(field, lambda column, rows: compare(column, limit))


def _one_of(matches: list[_Match]) -> _Match:
    return lambda column, rows: np.logical_or.reduce([match(column, rows) for match in matches])


def _range(field: Field, low: Text, high: Text) -> _Match:
    """Values from `low` to `high`, both included."""
    if low is not high:
        first, last = _ordered(field, low), _ordered(field, high)
        if first > last:
            raise _wrong(f"the range {low.text}..{high.text} begins above its end", low)
        return lambda column, rows: (column >= first) & (column <= last)
    match field.kind:
        case Kind.ADDRESS:
            return _in_network(low)
        case Kind.OPCODE if not _NUMBER.fullmatch(low.text):
            table = _opcodes(low)
            return lambda column, rows: table[column]
        case Kind.NAMED:
            wanted = _named(field, low)
            return lambda column, rows: column == wanted
        case Kind.COMM:
            return _in_communicator(low.text)
        case Kind.TAP if not _NUMBER.fullmatch(low.text):
            return lambda column, rows: _tap_names(low, rows.registry.taps)[column]
    exact = _ordered(field, low)
    return lambda column, rows: column == exact


def _ordered(field: Field, value: Text) -> int:
    """The value as the number in its column."""
    match field.kind:
        case Kind.NUMBER | Kind.OPCODE | Kind.TAP | Kind.RANK:
            return _number(field, value)
        case Kind.FLAG:
            return _boolean(field, value)
        case Kind.TIME:
            return _nanoseconds(value)
    raise _wrong(f"{field.name} has no order; use ==, != or in {{...}}", value)


def _number(field: Field, value: Text) -> int:
    if value.text.lower() in ("true", "false") and field.bits == 1:
        return int(value.text.lower() == "true")
    if not _NUMBER.fullmatch(value.text):
        raise _wrong(f"{field.name} takes a number, not {value.text!r}", value)
    number = int(value.text, 0) if value.text[:2].lower() == "0x" else int(value.text)
    limit = (1 << field.bits) - 1
    if number > limit:
        raise _wrong(f"{value.text} does not fit {field.name} (0 to {limit})", value)
    return number


def _boolean(field: Field, value: Text) -> int:
    truth = {"1": 1, "true": 1, "0": 0, "false": 0}.get(value.text.lower())
    if truth is None:
        raise _wrong(f"{field.name} is true or false, not {value.text!r}", value)
    return truth


def _nanoseconds(value: Text) -> int:
    try:
        return int(Decimal(value.text) * 10**9)
    except (InvalidOperation, ValueError, OverflowError):
        raise _wrong(f"{value.text!r} is not a time in seconds since 1970", value) from None


def _named(field: Field, value: Text) -> int:
    names = {name.lower(): number for number, name in enumerate(field.names)}
    if value.text.lower() not in names:
        raise _wrong(f"{field.name} is one of {', '.join(field.names)}", value)
    return names[value.text.lower()]


def _opcodes(value: Text) -> Mask:
    """bool[256]: opcodes of a name: exact (RC_ACK), of any transport (ACK), or a family (READ)."""
    wanted = value.text.upper()
    names = [opcode_name(opcode) for opcode in range(256)]
    operations = [name.partition("_")[2] for name in names]
    pairs = list(zip(names, operations, strict=True))
    hits = [wanted in pair for pair in pairs]
    if not any(hits):
        hits = [any(name.startswith(f"{wanted}_") for name in pair) for pair in pairs]
    if not any(hits):
        known = {text for text in (*names, *operations) if text and not text.startswith("0x")}
        close = get_close_matches(wanted, sorted(known), n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else ", such as WRITE_FIRST or RC_ACK"
        raise _wrong(f"{value.text!r} is not an opcode{hint}", value)
    return np.array(hits, np.bool_)


def _in_communicator(name: str) -> _Match:
    def matches(column: NDArray[Any], rows: _Rows) -> Mask:
        assert rows.ranks is not None
        return np.asarray(column == rows.ranks.code(name))

    return matches


def _tap_names(value: Text, taps: Taps) -> Mask:
    """bool[taps]: taps with this name. Taps may appear while a capture is read."""
    return np.array([taps[index].name == value.text for index in range(len(taps))], np.bool_)


def _in_network(value: Text) -> _Match:
    try:
        network = ip_network(value.text, strict=False)
    except ValueError:
        raise _wrong(f"{value.text!r} is not an address or a network", value) from None
    address, mask = int(network.network_address), int(network.netmask)
    if isinstance(network, IPv4Network):  # endpoints store IPv4 as ::ffff:a.b.c.d
        address |= IPV4_MAPPED
        mask |= ((1 << 96) - 1) << 32
    high, high_mask = np.uint64(address >> 64), np.uint64(mask >> 64)
    low, low_mask = np.uint64(address & _MASK64), np.uint64(mask & _MASK64)

    def matches(column: NDArray[Any], rows: _Rows) -> Mask:
        arrays, count = rows.registry.endpoints.arrays, len(rows.registry.endpoints)
        inside = (arrays.high[:count] & high_mask) == high
        inside &= (arrays.low[:count] & low_mask) == low
        hits: Mask = inside[column]
        return hits

    return matches


def _wrong(what: str, value: Text) -> UsageError:
    return UsageError(f"filter: {what} (column {value.column})")
