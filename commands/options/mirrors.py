"""Options for mirrors that overwrite packet headers, common to `analyze` and `check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration

if TYPE_CHECKING:
    from ...analyzer.decode.mirrors.restore import MirrorOptions


def mirror_options(
    clock: Literal["capture", "hardware"],
    mirror_format: Literal["lumina"] | None,
    drop_duplicates: str | None,
    switch_counters: Path | None,
) -> MirrorOptions | None:
    """How to restore mirrored packets; None if packets are used as captured."""
    if switch_counters is not None and mirror_format is None:
        raise UsageError("--switch-counters needs --mirror-format lumina")
    if clock == "capture" and mirror_format is None and drop_duplicates is None:
        return None
    if clock == "hardware" and mirror_format is not None:
        raise UsageError("--clock hardware cannot be combined with --mirror-format lumina")
    from ...analyzer.decode.mirrors.restore import MirrorOptions
    from ...analyzer.decode.mirrors.switch_counters import read_switch_counters

    within = drop_duplicates and parse_duration(drop_duplicates, "--drop-duplicates")
    counters = None if switch_counters is None else read_switch_counters(switch_counters)
    return MirrorOptions(clock, mirror_format, within or None, counters)
