"""Recovery of hash, fields and seed of a switch from the links of its flows.

A hypothesis is a hash with its fields. Its seed is searched with two thirds of the flows
and must predict the other flows (held back). The search tries in this order, until a
hypothesis fits: Linux with every seed; every function that is linear in its seed, by
elimination; an unknown linear function, learned from the flows. Other functions take long
and are tried only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
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
"""Linear hashes with more bits are tried with all seeds only on request."""
_LEARNT_FIELDS = "src+dst+protocol+sport+dport+flow-label+qpn"
_LEAST_SPARE = 8
"""Flows that must confirm a learned function, in addition to the flows that determine it."""
_SHOWN = 10
_PROBES = (0, 1, 0x9E3779B9, 0x7F4A7C15)

Tell = Callable[[str, int, int], None]
"""Called with the hypothesis, the seeds tried and the number of seeds."""


class Wanted(NamedTuple):
    """What to look for."""

    hash: str | None = None
    """A model; None for all models with a short search."""
    fields: str | None = None
    group: Group | None = None
    """None: equal cost over the links."""
    seeds: SeedRange = ALL_SEEDS


def recover(
    direction: Direction, wanted: Wanted, known: Sequence[Candidate], tell: Tell | None
) -> tuple[SwitchRecovery, list[str]]:
    """(the recovery for these links, the hypotheses tried).

    known: candidates of the other direction; their seeds are tried first.
    UsageError for an unknown hash or unknown fields.
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
            raise UsageError("--fields cannot be combined with linux: policy selects them")
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
    """Whether all seeds of a model can be tried in a short time."""
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
    """The candidate of a hypothesis; None if no seed fits or it cannot be searched."""
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
        if best == len(right[0]):  # seeds that also fit the held-back flows
            every = right.all(1)
            seeds = seeds[every]
            # All fitting seeds of a solved hash give the same placement.
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
    """The settings of a candidate, without its seed; None for a learned function."""
    if candidate.hash not in MODELS:
        return None
    extra = {k: int(v) for k, v in candidate.parameters.items() if k == "policy"}
    settings = HashSettings(candidate.hash, extra=extra)
    if candidate.field_set:
        symmetric = candidate.parameters.get("symmetric") == "yes"
        settings = replace(settings, field_set=candidate.field_set, symmetric=symmetric)
    return settings


def _distinct(flows: Seen, settings: HashSettings) -> Ints | None:
    """One row per key that the hash distinguishes; None if a key was captured on two links."""
    probes = bind(flows.keys, settings).values(_PROBES)
    _, first, number = np.unique(probes, axis=1, return_index=True, return_inverse=True)
    if (flows.link[first][number.reshape(-1)] != flows.link).any():
        return None
    rows: Ints = np.sort(first)
    return rows


def _searched(
    hypothesis: _Hypothesis, keys: PacketKeys, link: Int32s, group: Group, tell: Tell | None
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
    link: Int32s,
    group: Group,
    seeds: SeedRange,
    tell: Callable[[int, int], None],
) -> Fit:
    """Search with the address family with more flows, then check with the other."""
    ipv6 = int(np.count_nonzero(keys.ipv6)) * 2 > keys.units
    here = keys.ipv6 == ipv6
    bound = LinuxHash(keys.take(here), settings)
    fit = search_linux(bound, group, link[here], seeds, tell)
    if here.all() or not len(fit.seeds):
        return fit
    right = fitting(keys.take(~here), settings, group, link[~here], fit.seeds).all(1)
    return Fit(fit.seeds[right], int(right.sum()), fit.searched)


def _expected(searched: int, link: Int32s, group: Group) -> float:
    """Number of seeds that would fit all flows by chance."""
    share = group.weights / group.weights.sum()
    return float(searched * np.exp(np.log(np.maximum(share[link], 1e-300)).sum()))


def _learnt(flows: Seen, group: Group) -> Candidate | None:
    """An unknown linear function of all fields, learned from flows and tested with the others."""
    links = len(group.weights)
    if links & (links - 1) or (group.weights != group.weights[0]).any():
        return None
    data = fields_matrix(flows.keys, _LEARNT_FIELDS).data
    inputs = [int.from_bytes(row.tobytes(), "big") for row in data]
    learnt = AffineMap()
    predicted = 0
    for value, link in zip(inputs, flows.link.tolist(), strict=True):
        expected = learnt.output(value)
        predicted += expected is not None
        if not learnt.learn(value, link):
            return None
    if predicted < _LEAST_SPARE:
        return None
    return Candidate(
        hash="unknown linear function",
        field_set=_LEARNT_FIELDS,
        parameters={"rank": str(learnt.rank)},
        seed=None,
        seeds=[],
        seeds_that_fit=0,
        seeds_searched=0,
        expected_by_chance=float(links) ** -predicted,
        fitted_flows=learnt.rank,
        validated_flows=predicted,
        held_back_flows=predicted,
        note="every link bit is an XOR of header bits, so a CRC, XOR or Toeplitz hash",
    )


def is_explained(candidate: Candidate) -> bool:
    """Whether a candidate predicts all held-back flows, and not by chance."""
    return candidate.validated_flows == candidate.held_back_flows and _doubt(candidate) < 0.01


def _doubt(candidate: Candidate) -> float:
    """Expected number of different placements that fit by chance."""
    model = MODELS.get(candidate.hash)
    if model is None or model.linear is None:
        return candidate.expected_by_chance
    # Seeds of a linear hash with the same placement fit or fail together.
    return candidate.expected_by_chance / candidate.seeds_that_fit


def _conclusion(candidates: Sequence[Candidate], flows: Seen, used: Ints) -> str:
    """The conclusion in one sentence."""
    if len(flows.link) < LEAST_FLOWS:
        return f"{len(flows.link)} flows are too few to identify a hash"
    if np.count_nonzero(used) < 2:
        return "all flows took one link: the switch had no choice, or other links were not captured"
    good = [c for c in candidates if c.validated_flows == c.held_back_flows]
    if not candidates:
        return (
            "no hash fits all flows: the files must be in next-hop order; try --weights and --hash"
        )
    if not good:
        best = max(candidates, key=lambda c: c.validated_flows)
        return (
            f"no hash fits: the best, {best.hash}, predicts only {best.validated_flows} "
            f"of {best.held_back_flows} held-back flows"
        )
    best = next((c for c in good if is_explained(c)), good[0])
    held = f"it predicts {best.validated_flows} of {best.held_back_flows} held-back flows"
    if best.seed is None:
        return f"an unknown linear function fits; {held}"
    text = f"{_name(settings_of(best) or HashSettings())}, seed {best.seed}"
    if not is_explained(best):
        return (
            f"{text} fits, and {best.seeds_that_fit - 1:,} other seeds fit too: with few flows "
            "that can be chance: capture more flows"
        )
    if best.seeds_searched == 1:
        return f"{text}, found in the other direction; {held}"
    if best.seeds_that_fit == 1:
        return f"{text}, the only seed of {best.seeds_searched:,} that fits; {held}"
    return (
        f"{text}, or any of {best.seeds_that_fit:,} seeds of {best.seeds_searched:,} that give "
        f"the same placement; {held}"
    )


def parse_weights(text: str) -> Group:
    """`3,1,1,1` as a group. UsageError for invalid weights."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or not any(int(p) for p in parts):
        raise UsageError(f"--weights {text!r}: write one number per link, such as 3,1,1,1")
    return Group(np.array([int(part) for part in parts], np.int64))


def recover_all(
    found: Sequence[Direction], wanted: Wanted, sources: Sequence[str], tell: Tell | None
) -> RecoverResult:
    """The switches of all directions; a seed found in one direction is tried first in the next."""
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
            f"{several:,} flows were captured on several links and are not used: "
            "they are sprayed, or moved during the capture"
        )
    return RecoverResult(
        version=VERSION,
        sources=list(sources),
        switches=switches,
        tried=tried,
        warnings=warnings,
    )
