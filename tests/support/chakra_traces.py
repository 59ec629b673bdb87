"""Chakra execution traces, written field by field after et_def.proto."""

from __future__ import annotations

from pathlib import Path

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def _attribute(name: str, value: int | str) -> bytes:
    held = _bytes(29, value.encode()) if isinstance(value, str) else _number(9, value)
    return _bytes(10, _bytes(1, name.encode()) + held)


def node(
    id: int, type: int, after: list[int], us: int = 0, packed: bool = True, **attributes: int | str
) -> bytes:
    """One node; packed: how its data dependencies are written."""
    deps = (
        _bytes(5, b"".join(map(varint, after)))
        if packed
        else b"".join(_number(5, one) for one in after)
    )
    parts = _number(1, id) + _bytes(2, b"node") + _number(3, type) + deps + _number(7, us)
    return parts + b"".join(_attribute(name, value) for name, value in attributes.items())


def written(folder: Path, traces: list[list[bytes]]) -> str:
    """The prefix of the files of these traces, one per rank."""
    for rank, nodes in enumerate(traces):
        messages = [_bytes(1, b"0.0.4"), *nodes]
        data = b"".join(varint(len(one)) + one for one in messages)
        (folder / f"trace.{rank}.et").write_bytes(data)
    return str(folder / "trace")
