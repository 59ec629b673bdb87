"""Which hash, fields and seed a switch has, from the links its flows were seen on.

A hypothesis is a hash with its fields. Its seed is searched on two thirds of the flows
and has to foretell the others (held back). What is tried, until something fits: Linux
under every seed there is; every function that is linear in its seed, by elimination; an
unknown linear function, learnt from the flows. Other functions take long and are tried
when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ...version import VERSION
from ..hashing import MODELS, Group, HashModel, HashSettings, LinearHash, bind
from ..hashing.functions.linux import LinuxHash
from ..hashing.keys import PacketKeys, fields_matrix, parse_field_set
from ..hashing.seeding import SeedRange
from ..results.recover import Candidate, RecoverResult, SwitchRecovery
from .gf2 import AffineMap
from .search import Fit, fitting, search_any, search_linear, search_linux, search_masks
from .tapped import Direction, Seen

FIELD_SETS = ("5-tuple", "4-tuple", "3-tuple", "5-tuple+qpn", "5-tuple+flow-label")
LEAST_FLOWS = 4
ALL_SEEDS = SeedRange(0, 1 << 32)
_WIDE = 16
"""Linear hashes of more bits are not tried under all seeds unless asked for."""
_LEARNT_FIELDS = "src+dst+protocol+sport+dport+flow-label+qpn"
_LEAST_SPARE = 8
"""Flows that must confirm a learnt function beyond those that determine it."""
_SHOWN = 10
_PROBES = (0, 1, 0x9E3779B9, 0x7F4A7C15)

Tell = Callable[[str, int, int], None]
"""Told the hypothesis, the seeds tried and the seeds there are."""


class Wanted(NamedTuple):
    """What to look for."""

    hash: str | None = None
    """A model; None for all that can be searched in little time."""
    fields: str | None = None
    group: Group | None = None
    """None: equal cost over the links."""
    seeds: SeedRange = ALL_SEEDS


def recover(
    direction: Direction, wanted: Wanted, known: Sequence[Candidate], tell: Tell | None
) -> tuple[SwitchRecovery, list[str]]:
    """(what explains the choices over these links, the hypotheses tried).

    known: candidates of the other direction; their seeds are tried before all others.
    UsageError for a hash or fields that do not exist.
    """
    seen = direction.seen
    links = len(seen.links)
    group = wanted.group or Group(np.ones(links, np.int64))
    if len(group.weights) != links:
        raise UsageError(f"{len(group.weights)} weights for {links} links: give one per link")
    single = seen.link >= 0
    flows = seen.take(single)
    tried: list[str] = []
    candidates: list[Candidate] = []
    used = np.bincount(flows.link, minlength=links)
    if len(flows.link) >= LEAST_FLOWS and np.count_nonzero(used) > 1:
        for hypothesis in _hypotheses(flows, group, wanted, known):
            tried.append(_name(hypothesis.settings))
            found = _tested(hypothesis, flows, group, tell)
            if found is not None:
                candidates.append(found)
                if is_explained(found):
                    break
        if not candidates and wanted.hash is None:
            tried.append("an unknown linear function")
            learnt = _learnt(flows, group)
            candidates += [learnt] if learnt else []
    record = SwitchRecovery(
        direction=direction.name,
        links=list(seen.links),
        flows=len(flows.link),
        flows_on_several_links=int(np.count_nonzero(~single)),
        flows_per_link=used.tolist(),
        candidates=candidates,
        conclusion=_conclusion(candidates, flows, used),
    )
    return record, tried


class _Hypothesis(NamedTuple):
    settings: HashSettings
    seeds: SeedRange
    note: str = ""


def _hypotheses(
    flows: Seen, group: Group, wanted: Wanted, known: Sequence[Candidate]
) -> Iterator[_Hypothesis]:
    if wanted.hash is not None and wanted.hash not in MODELS:
        raise UsageError(f"there is no hash {wanted.hash!r}; there are {', '.join(MODELS)}")
    for candidate in known:
        settings = settings_of(candidate)
        if settings is not None and candidate.seed is not None:
            seed = SeedRange(candidate.seed, candidate.seed + 1)
            note = "only the seed of the other direction was tried"
            yield _Hypothesis(settings, seed, note)
    if wanted.hash in (None, "linux"):
        if wanted.fields is not None and wanted.hash == "linux":
            raise UsageError("Linux takes its fields from its policy; leave out --fields")
        for policy in (1, 0) if wanted.fields is None else ():
            yield _Hypothesis(HashSettings("linux", extra={"policy": policy}), wanted.seeds)
    sets: tuple[str, ...] = FIELD_SETS if wanted.fields is None else (wanted.fields,)
    for fields in sets:
        parse_field_set(fields)
    if not (flows.keys.flow_label != 0).any():
        sets = tuple(s for s in sets if s == wanted.fields or "flow-label" not in s)
    for name, model in MODELS.items():
        if name in ("linux", "random-oracle"):
            continue
        if wanted.hash is None and not _is_quick(model, group):
            continue
        if wanted.hash in (None, name):
            for fields in sets:
                for symmetric in (False, True):
                    settings = HashSettings(name, fields, symmetric=symmetric)
                    yield _Hypothesis(settings, wanted.seeds)


def _is_quick(model: HashModel, group: Group) -> bool:
    """Whether all seeds of a model can be tried in little time."""
    if model.linear is None:
        return False
    members = len(group.weights)
    permutes = members & (members - 1) == 0 and bool((group.weights == group.weights[0]).all())
    return permutes or bool(model.half) or model.bits <= _WIDE


def _name(settings: HashSettings) -> str:
    if settings.model == "linux":
        return f"linux policy {settings.extra['policy']}"
    alike = ", symmetric" if settings.symmetric else ""
    return f"{settings.model} of {settings.field_set}{alike}"


def _tested(
    hypothesis: _Hypothesis, flows: Seen, group: Group, tell: Tell | None
) -> Candidate | None:
    """What is left of a hypothesis; None when no seed fits or it cannot be searched."""
    settings = hypothesis.settings
    rows = _distinct(flows, settings)
    if rows is None:
        return None
    keys, link = flows.keys.take(rows), flows.link[rows]
    held_back = np.arange(len(rows)) % 3 == 2 if len(rows) >= 9 else np.zeros(len(rows), np.bool_)
    fit = _searched(hypothesis, keys.take(~held_back), link[~held_back], group, tell)
    if fit is None or not fit.number:
        return None
    seeds, count, validated = fit.seeds, fit.number, 0
    if held_back.any():
        right = fitting(keys.take(held_back), settings, group, link[held_back], seeds)
        best = int(right.sum(1).max())
        if best == len(right[0]):  # the held-back flows leave these
            every = right.all(1)
            seeds = seeds[every]
            # Of a solved hash all fitting seeds place alike.
            count = count if len(fit.seeds) < fit.number else int(every.sum())
        validated = best
    return Candidate(
        hash=settings.model,
        field_set="" if settings.model == "linux" else settings.field_set,
        parameters=_parameters(settings),
        seed=int(seeds[0]),
        seeds=[int(seed) for seed in seeds[:_SHOWN]],
        seeds_that_fit=count,
        seeds_searched=fit.searched,
        expected_by_chance=_expected(fit.searched, link, group),
        fitted_flows=int(np.count_nonzero(~held_back)),
        validated_flows=validated,
        held_back_flows=int(np.count_nonzero(held_back)),
        note=hypothesis.note,
    )


def _parameters(settings: HashSettings) -> dict[str, str]:
    parameters = {key: str(value) for key, value in settings.extra.items()}
    if settings.symmetric:
        parameters["symmetric"] = "yes"
    return parameters


def settings_of(candidate: Candidate) -> HashSettings | None:
    """The settings a candidate stands for, without its seed; None for a learnt function."""
    if candidate.hash not in MODELS:
        return None
    extra = {k: int(v) for k, v in candidate.parameters.items() if k == "policy"}
    settings = HashSettings(candidate.hash, extra=extra)
    if candidate.field_set:
        symmetric = candidate.parameters.get("symmetric") == "yes"
        settings = replace(settings, field_set=candidate.field_set, symmetric=symmetric)
    return settings


def _distinct(flows: Seen, settings: HashSettings) -> NDArray[np.int64] | None:
    """A row per key that the hash can tell apart; None when one key was seen on two links."""
    probes = bind(flows.keys, settings).values(_PROBES)
    _, first, number = np.unique(probes, axis=1, return_index=True, return_inverse=True)
    if (flows.link[first][number.reshape(-1)] != flows.link).any():
        return None
    rows: NDArray[np.int64] = np.sort(first)
    return rows


def _searched(
    hypothesis: _Hypothesis,
    keys: PacketKeys,
    link: NDArray[np.int32],
    group: Group,
    tell: Tell | None,
) -> Fit | None:
    settings, seeds = hypothesis.settings, hypothesis.seeds
    name = _name(settings)

    def report(done: int, total: int) -> None:
        if tell is not None:
            tell(name, done, total)

    bound = bind(keys, settings)
    if isinstance(bound, LinuxHash):
        return _searched_linux(settings, keys, link, group, seeds, report)
    if isinstance(bound, LinearHash):
        if bound.seed_permutes(group) and seeds == ALL_SEEDS:
            return search_linear(bound, group, link)
        if bound.bits <= _WIDE and seeds == ALL_SEEDS:
            return search_masks(settings, bound, keys, group, link, report)
    return search_any(settings, keys, group, link, seeds, report)


def _searched_linux(
    settings: HashSettings,
    keys: PacketKeys,
    link: NDArray[np.int32],
    group: Group,
    seeds: SeedRange,
    tell: Callable[[int, int], None],
) -> Fit:
    """Search on the address family with more flows, then sift by the other."""
    ipv6 = int(np.count_nonzero(keys.ipv6)) * 2 > keys.units
    here = keys.ipv6 == ipv6
    bound = LinuxHash(keys.take(here), settings)
    fit = search_linux(bound, group, link[here], seeds, tell)
    if here.all() or not len(fit.seeds):
        return fit
    right = fitting(keys.take(~here), settings, group, link[~here], fit.seeds).all(1)
    return Fit(fit.seeds[right], int(right.sum()), fit.searched)


def _expected(searched: int, link: NDArray[np.int32], group: Group) -> float:
    """Seeds that would fit all flows if the hash had nothing to do with them."""
    share = group.weights / group.weights.sum()
    return float(searched * np.exp(np.log(np.maximum(share[link], 1e-300)).sum()))


def _learnt(flows: Seen, group: Group) -> Candidate | None:
    """An unknown linear function of all fields, learnt from flows and tried on the others."""
    links = len(group.weights)
    if links & (links - 1) or (group.weights != group.weights[0]).any():
        return None
    data = fields_matrix(flows.keys, _LEARNT_FIELDS).data
    inputs = [int.from_bytes(row.tobytes(), "big") for row in data]
    learnt = AffineMap()
    foretold = 0
    for value, link in zip(inputs, flows.link.tolist(), strict=True):
        expected = learnt.output(value)
        foretold += expected is not None
        if not learnt.learn(value, link):
            return None
    if foretold < _LEAST_SPARE:
        return None
    return Candidate(
        hash="unknown linear function",
        field_set=_LEARNT_FIELDS,
        parameters={"rank": str(learnt.rank)},
        seed=None,
        seeds=[],
        seeds_that_fit=0,
        seeds_searched=0,
        expected_by_chance=float(links) ** -foretold,
        fitted_flows=learnt.rank,
        validated_flows=foretold,
        held_back_flows=foretold,
        note="every link bit is an XOR of header bits, so a CRC, XOR or Toeplitz hash",
    )


def is_explained(candidate: Candidate) -> bool:
    """Whether a candidate foretells all held-back flows, and not by chance."""
    return candidate.validated_flows == candidate.held_back_flows and _doubt(candidate) < 0.01


def _doubt(candidate: Candidate) -> float:
    """How many different placements of this kind fit by chance."""
    model = MODELS.get(candidate.hash)
    if model is None or model.linear is None:
        return candidate.expected_by_chance
    # Seeds of a linear hash that place alike fit or fail together.
    return candidate.expected_by_chance / candidate.seeds_that_fit


def _conclusion(candidates: Sequence[Candidate], flows: Seen, used: NDArray[np.int64]) -> str:
    """What it comes to, in one sentence."""
    if len(flows.link) < LEAST_FLOWS:
        return f"{len(flows.link)} flows are too few to tell anything"
    if np.count_nonzero(used) < 2:
        return "all flows took one link: nothing was chosen, or the other links were not captured"
    good = [c for c in candidates if c.validated_flows == c.held_back_flows]
    if not candidates:
        return (
            "nothing fits: no hash that was tried puts all flows on their links. The order of "
            "the files must be that of the next hops; weights and the hash can be given"
        )
    if not good:
        best = max(candidates, key=lambda c: c.validated_flows)
        return (
            f"nothing fits: the best, {best.hash}, foretells only {best.validated_flows} "
            f"of {best.held_back_flows} held-back flows"
        )
    best = next((c for c in good if is_explained(c)), good[0])
    held = f"it foretells {best.validated_flows} of {best.held_back_flows} held-back flows"
    if best.seed is None:
        return f"an unknown linear function fits; {held}"
    text = f"{_name(settings_of(best) or HashSettings())}, seed {best.seed}"
    if not is_explained(best):
        return (
            f"{text} fits, and so do {best.seeds_that_fit - 1:,} seeds more; with so few flows "
            "that can be chance: capture more flows"
        )
    if best.seeds_searched == 1:
        return f"{text}, found in the other direction; {held}"
    if best.seeds_that_fit == 1:
        return f"{text}, the only one of {best.seeds_searched:,} seeds that fits; {held}"
    return (
        f"{text}, or any of {best.seeds_that_fit:,} seeds of {best.seeds_searched:,} that give "
        f"the same placement; {held}"
    )


def parse_weights(text: str) -> Group:
    """`3,1,1,1` as a group. UsageError when these are no weights."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or not any(int(p) for p in parts):
        raise UsageError(f"--weights {text!r}: write one number per link, such as 3,1,1,1")
    return Group(np.array([int(part) for part in parts], np.int64))


def recover_all(
    found: Sequence[Direction], wanted: Wanted, sources: Sequence[str], tell: Tell | None
) -> RecoverResult:
    """The switches behind all directions; a seed found in one is tried first in the next."""
    switches: list[SwitchRecovery] = []
    tried: list[str] = []
    known: list[Candidate] = []
    for direction in found:
        record, names = recover(direction, wanted, known, tell)
        switches.append(record)
        tried += [name for name in names if name not in tried]
        known = [c for c in record.candidates if is_explained(c)]
    several = sum(switch.flows_on_several_links for switch in switches)
    warnings = []
    if several:
        warnings.append(
            f"{several:,} flows were seen on several links: sprayed, or moved while the capture "
            "ran; they are left out"
        )
    return RecoverResult(
        version=VERSION,
        sources=list(sources),
        switches=switches,
        tried=tried,
        warnings=warnings,
    )
