"""`rocescope warm-up`: compile the kernels of a checkout ahead of use, on all cores."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from ..kernels.libraries import BUILT, PACKAGED, ROOMS
from .options.progress import ProgressAs, steps_shown
from .table import Parameter

Use: TypeAlias = Literal[
    "aggregate", "analyze", "check", "export", "live", "replay", "sweep", "tui"
]
USES: tuple[Use, ...] = get_args(Use)

_ANALYZER = tuple(room for room in ROOMS if room.partition(".")[0] == "analyzer")
_REPLAY = (*_ANALYZER, "replay")
_ROOMS: dict[Use, tuple[str, ...]] = {
    "aggregate": (*_REPLAY, "replay.aggregation"),
    "live": (*_ANALYZER, "probes"),
    "replay": _REPLAY,
    "sweep": _REPLAY,
    "tui": _REPLAY,
}
"""The rooms whose kernels a command needs; the others need those of the analyzer."""


def warm_up(
    *,
    for_: Annotated[list[Use] | None, Parameter(name="--for", negative="")] = None,
    progress: ProgressAs = "auto",
) -> int:
    """Compile the kernels of other commands, on all cores; a wheel has them compiled.

    Parameters
    ----------
    for_
        Compile only the kernels of this command; may be repeated.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    if PACKAGED:
        print("the kernels of this installation are compiled")
        return 0
    from ..kernels import build

    rooms = {room: None for use in for_ or USES for room in _ROOMS.get(use, _ANALYZER)}
    with steps_shown(progress) as tell:
        for room in rooms:

            def done(count: int, of: int, room: str = room) -> None:
                if tell is not None:
                    tell(f"compiling kernels of {room}", count, of)

            build.run(room, tell=done)
    print(f"compiled kernels are kept in {BUILT}")
    return 0
