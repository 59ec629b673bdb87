"""All dialects by name; in a folder without `asked.json` the last whose mark is there."""

from __future__ import annotations

from collections.abc import Mapping

from .dialect import Dialect
from .frr import FRR
from .linux import LINUX

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (LINUX, FRR)}
