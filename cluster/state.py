"""The state of the measures as a file, without pickle: a table of classes, values and arrays.

A file names classes by their number in `_CLASSES`; no other class is made, and no code runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
import numpy as np
import zstandard

from ..analyzer.decode.control import CmMessage
from ..analyzer.measures.congestion import CongestionArrays, CongestionMeasure
from ..analyzer.measures.counters import Counters
from ..analyzer.measures.hops.clocks import SampledTimes
from ..analyzer.measures.hops.measure import HopMeasure
from ..analyzer.measures.hops.state import Passing
from ..analyzer.measures.measuring import Measuring, PacketClock
from ..analyzer.measures.messages import MessageArrays, MessageStatistics
from ..analyzer.measures.mrc import EntropyValues, MrcMeasure
from ..analyzer.measures.mrc import State as MrcState
from ..analyzer.measures.path_table import LaneRecords, PathLanes, PathTable
from ..analyzer.measures.series import Activity, Idle, IdleArrays, Totals
from ..analyzer.measures.spraying import PathUsage
from ..analyzer.measures.troubles import TroubleArrays, Troubles
from ..analyzer.results.captures import Ended
from ..analyzer.statistics.density import Densities, DensityArrays
from ..analyzer.statistics.histogram import HistogramPool, Histograms
from ..analyzer.statistics.per_flow import CodeArrays, CodeCounts, PerFlow
from ..analyzer.statistics.windows import WindowedSums
from ..analyzer.track.pairing import CmPairs, _Request
from ..analyzer.track.state import State
from ..analyzer.track.tracker import FlowTracker
from .split import Outline
from .work import damaged

_CLASSES: tuple[type[Any], ...] = (
    Activity, CmMessage, CmPairs, CodeArrays, CodeCounts, CongestionArrays, CongestionMeasure,
    Counters, Densities, DensityArrays, Ended, EntropyValues, FlowTracker, HistogramPool,
    Histograms, HopMeasure, Idle, IdleArrays, LaneRecords, Measuring, MessageArrays,
    MessageStatistics, MrcMeasure, MrcState, Outline, PacketClock, Passing, PathLanes, PathTable,
    PathUsage, SampledTimes, State, Totals, TroubleArrays, Troubles, WindowedSums, _Request,
)  # fmt: skip
_NUMBER = {kind: number for number, kind in enumerate(_CLASSES)}
_PIECE = 1 << 22
_LARGEST_HEADER = 1 << 28


def write_state(file: BinaryIO, value: object) -> None:
    """Write a value of these classes, Python's plain types and arrays; TypeError for others."""
    arrays: list[Any] = []
    tree = _described(value, arrays, {})
    header = msgspec.msgpack.encode((tree, [_form(array) for array in arrays]))
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for array in arrays:
            rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for start in range(0, len(rest), _PIECE):
                out.write(rest[start : start + _PIECE])


def read_state(file: BinaryIO, name: str) -> Any:
    """The value of a file that `write_state` wrote; UnreadableInput if it is damaged."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as source:
            size = int.from_bytes(_read(source, 8), "little")
            if size > _LARGEST_HEADER:
                raise damaged(name)
            tree, forms = msgspec.msgpack.decode(_read(source, size))
            arrays = []
            for form in forms:
                array = np.empty(form["shape"], _dtype(form["dtype"]))
                rest = array.reshape(-1).view(np.uint8).data
                while rest.nbytes:
                    count = source.readinto(rest[:_PIECE])
                    if not count:
                        raise damaged(name)
                    rest = rest[count:]
                arrays.append(array)
            if source.read(1):  # reads the checksum, too
                raise damaged(name)
        return _built(tree, arrays, {})
    except (zstandard.ZstdError, msgspec.DecodeError, EOFError, LookupError, TypeError, ValueError):
        raise damaged(name) from None


def _read(source: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.read(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _form(array: Any) -> dict[str, Any]:
    return {"dtype": _dtype_text(array.dtype), "shape": list(array.shape)}


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return dtype.str
    fields = []
    for name in dtype.names:
        base, shape = dtype[name].base, dtype[name].shape
        fields.append([name, base.str, list(shape)])
    text = {"fields": fields, "align": dtype.isalignedstruct}
    if _dtype(text) != dtype:
        raise TypeError(f"no description of {dtype}")
    return text


def _dtype(text: Any) -> np.dtype[Any]:
    if isinstance(text, str):
        return np.dtype(text)
    fields = [(name, base, tuple(shape)) for name, base, shape in text["fields"]]
    return np.dtype(fields, align=text["align"])


def _described(value: Any, arrays: list[Any], known: dict[int, int]) -> Any:
    """A tree of [kind, ...]; an object or array that appears again is ["again", number]."""
    if value is None or type(value) in (bool, float, str):
        return value
    if type(value) is int:
        return value if abs(value) < 1 << 63 else ["int", str(value)]
    if isinstance(value, np.generic):
        return ["number", value.dtype.str, value.item()]
    if id(value) in known:
        return ["again", known[id(value)]]

    def inside(item: Any) -> Any:
        return _described(item, arrays, known)

    if isinstance(value, list | tuple | set | frozenset | dict) and type(value) in _CONTAINERS:
        items = list(value.items()) if isinstance(value, dict) else list(value)
        return [type(value).__name__, [inside(item) for item in items]]
    if isinstance(value, np.ndarray):
        known[id(value)] = len(known)
        arrays.append(value)
        return ["array", known[id(value)], len(arrays) - 1]
    if type(value) not in _NUMBER:
        raise TypeError(f"no place for {type(value)} in a file")
    number = _NUMBER[type(value)]
    if isinstance(value, tuple):
        return ["named", number, [inside(item) for item in value]]
    known[id(value)] = own = len(known)
    if isinstance(value, PerFlow):
        attributes = value.saved()
    else:
        attributes = {name: getattr(value, name) for name in _names(value)}
    return ["object", own, number, {name: inside(item) for name, item in attributes.items()}]


_CONTAINERS: dict[type[Any], Callable[[Any], Any]] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset, dict: dict,
}  # fmt: skip
_BY_NAME = {kind.__name__: make for kind, make in _CONTAINERS.items()}


def _names(value: Any) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(value, "__dict__", {}), *slots]


def _built(tree: Any, arrays: list[Any], known: dict[int, Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind == "int":
        return int(rest[0])
    if kind == "number":
        return np.dtype(rest[0]).type(rest[1])
    if kind == "again":
        return known[rest[0]]
    if kind == "array":
        known[rest[0]] = arrays[rest[1]]
        return arrays[rest[1]]
    if kind in _BY_NAME:
        return _BY_NAME[kind]([_built(item, arrays, known) for item in rest[0]])
    if kind == "named":
        made = _CLASSES[rest[0]]
        return made(*(_built(item, arrays, known) for item in rest[1]))
    own, number, fields = rest
    made = _CLASSES[number]
    if issubclass(made, msgspec.Struct):
        return made(**{name: _built(item, arrays, known) for name, item in fields.items()})
    built: Any = object.__new__(made)
    known[own] = built
    for name, item in fields.items():
        object.__setattr__(built, name, _built(item, arrays, known))
    if isinstance(built, PerFlow):
        built.restore()
    return built
