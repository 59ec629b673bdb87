"""ECMP hash models: Linux exactly, and the documented functions of switch ASICs.

bound = bind(keys, HashSettings("crc16-ccitt", "5-tuple+qpn"))
members = bound.choose(range(10_000), equal_cost(16))   # uint16[10000, n]
"""

from .bound import BoundHash
from .linear import LinearHash
from .models import MODELS, HashModel, bind
from .reduction import PackedGroups, choose_by_unit, choose_one_group, pack_groups
from .settings import Group, HashSettings, Knob, equal_cost

__all__ = [
    "MODELS",
    "BoundHash",
    "Group",
    "HashModel",
    "HashSettings",
    "Knob",
    "LinearHash",
    "PackedGroups",
    "bind",
    "choose_by_unit",
    "choose_one_group",
    "equal_cost",
    "pack_groups",
]
