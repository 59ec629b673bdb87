"""Hash settings of the switches of a fabric, with changes of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options
from ...analyzer.words import choices
from ...kernels.kernel import NamedTuple
from ..hashing.keys import parse_field_set
from ..hashing.models import MODELS
from ..hashing.seeded import PerSwitch, switch_seeds
from ..hashing.settings import HashSettings
from ..results import SeedOrigin, SwitchHash
from .fabric import Fabric

OPTIONS = (
    "hash", "fields", "seed", "per-switch", "symmetric", "seed-use", "rotate", "offset", "reduction"
)  # fmt: skip
_HIGHEST = {"seed": 0xFFFF_FFFF, "rotate": 31, "offset": 31}


class SwitchHashing(NamedTuple):
    """The settings of every switch, with seeds."""

    settings: list[HashSettings]
    parameters: dict[str, str]
    """The chosen settings, for the report."""
    seed_from: list[SeedOrigin]
    """Where the seed of every switch comes from."""


def switch_hashing(fabric: Fabric, options: Mapping[str, str], where: str) -> SwitchHashing:
    """Settings per switch: settings of the fabric, overridden by `options` (keys of OPTIONS and
    settings of the hash model).

    A switch without settings in the fabric has the default hash. A switch without a known seed, in
    the fabric or in `options`, has the one that `seeding` derives from 0, different on each switch.
    UsageError, starting with `where`, for unknown options.
    """
    options = Options(options, where)
    model = _model(fabric, options, where)
    per_switch = options.word("per-switch", "different", "equal")
    changes = _changes(options, model, where)
    given = [_with(known, options, changes) for known in fabric.hash_settings]
    seed = _number(options, "seed", where)
    rows = switch_seeds(np.array([seed], np.uint64), len(given), _checked(per_switch))
    derived = np.broadcast_to(rows.reshape(1, -1), (1, len(given)))[0].tolist()
    if "seed" in options or "per-switch" in options:
        origins: list[SeedOrigin] = ["option"] * len(given)
    else:
        origins = ["fabric" if hash_known(known) else "default" for known in fabric.hash_settings]
    seed_words = {"seed": str(seed), "per-switch": per_switch}
    if "fabric" in origins:
        seed_words = {"seed": "of the fabric"}
    settings = [
        kept if origin == "fabric" else replace(kept, seed=int(number))
        for kept, origin, number in zip(given, origins, derived, strict=True)
    ]
    return SwitchHashing(settings, {**_names(settings), **seed_words, **_told(options)}, origins)


def hash_known(settings: HashSettings | None) -> bool:
    """Whether the choices of a switch can be computed; seed 0 of Linux is a secret random seed."""
    return settings is not None and (settings.model != "linux" or settings.seed != 0)


def hash_records(fabric: Fabric, hashing: SwitchHashing) -> tuple[SwitchHash, ...]:
    """The hash of every switch, for the report; empty if the fabric sets none."""
    if not any(known is not None for known in fabric.hash_settings):
        return ()
    return tuple(
        SwitchHash(
            switch=fabric.nodes.names[i],
            hash=settings.model,
            fields=fields_of(settings),
            seed=settings.seed,
            seed_from=hashing.seed_from[i],
        )
        for i, settings in enumerate(hashing.settings)
    )


def _checked(text: str) -> PerSwitch:
    return "equal" if text == "equal" else "different"


def _model(fabric: Fabric, options: Mapping[str, str], where: str) -> str:
    name = options.get("hash")
    if name is None:
        known = next((known for known in fabric.hash_settings if known is not None), None)
        return known.model if known else HashSettings().model
    if name not in MODELS:
        raise UsageError(f"{where}: there is no hash {name!r}; {choices(name, MODELS)}")
    return name


def _with(
    known: HashSettings | None, options: Mapping[str, str], changes: Mapping[str, Any]
) -> HashSettings:
    """The settings of a switch with changes; another hash starts from defaults."""
    base = HashSettings() if known is None else known
    if "hash" in options and base.model != changes["model"]:
        base = HashSettings(seed=base.seed)
    extra = {**base.extra, **changes.get("extra", {})}
    return replace(base, **{**changes, "extra": extra})


def _changes(options: Options, model: str, where: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "hash" in options:
        changes["model"] = model
    if "fields" in options:
        parse_field_set(options["fields"])
        if model == "linux":
            raise UsageError(
                f"{where}: Linux takes its fields from policy=0..3 (and fields of policy 3), "
                "not from fields="
            )
        changes["field_set"] = options["fields"]
    for key in ("rotate", "offset"):
        if key in options:
            changes[key] = _number(options, key, where)
    if "symmetric" in options:
        changes["symmetric"] = options.switched_on("symmetric")
    for key, name in (("seed-use", "seed_use"), ("reduction", "reduction")):
        if key in options:
            changes[name] = options[key]
    knobs = {knob.name for knob in MODELS[model].knobs}
    extra = {key: value for key, value in options.items() if key not in OPTIONS}
    for key in extra:
        if key not in knobs:
            known = choices(key, (*OPTIONS, *sorted(knobs)), "use")
            raise UsageError(f"{where}: there is no option {key!r} with hash {model}; {known}")
    if extra:
        changes["extra"] = extra
    return changes


def _number(options: Mapping[str, str], key: str, where: str) -> int:
    text = options.get(key, "0")
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= _HIGHEST[key]:
        raise UsageError(f"{where}: {key}={text}: use a whole number from 0 to {_HIGHEST[key]:#x}")
    return value


def _names(settings: list[HashSettings]) -> dict[str, str]:
    models = sorted({known.model for known in settings})
    sets = sorted({fields_of(known) for known in settings})
    return {"hash": ", ".join(models), "fields": ", ".join(sets)}


def fields_of(settings: HashSettings) -> str:
    """The field set in words; for Linux its policy."""
    if settings.model == "linux":
        return f"policy {settings.extra.get('policy', 1)}"
    return settings.field_set


def _told(options: Mapping[str, str]) -> dict[str, str]:
    left_out = ("hash", "fields", "seed", "per-switch")
    return {key: value for key, value in options.items() if key not in left_out}
