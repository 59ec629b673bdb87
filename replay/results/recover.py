"""What `recover-seed` finds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import SCHEMA_VERSION, Record


class Candidate(Record, frozen=True, kw_only=True):
    """A hash function, field set and seed that explains the placements."""

    hash: str
    field_set: str
    parameters: dict[str, str]
    seed: Annotated[int | None, Meta(description="the smallest seed that fits; None: no seed")]
    seeds: Annotated[list[int], Meta(description="seeds that fit, the first ones")]
    seeds_that_fit: Annotated[int, Meta(description="of the seeds searched")]
    seeds_searched: int
    expected_by_chance: Annotated[
        float, Meta(description="seeds that would fit if the function were another one")
    ]
    fitted_flows: int
    validated_flows: Annotated[int, Meta(description="held-back flows it predicts")]
    held_back_flows: int
    note: str = ""


class SwitchRecovery(Record, frozen=True, kw_only=True):
    """The choices of one switch over the tapped links."""

    direction: Annotated[str, Meta(description="whose packets were looked at")]
    links: list[str]
    flows: Annotated[int, Meta(description="flows seen on exactly one of the links")]
    flows_on_several_links: Annotated[
        int, Meta(description="sprayed or moved while captured; not used")
    ]
    flows_per_link: list[int]
    candidates: list[Candidate]
    conclusion: str


class RecoverResult(Record, frozen=True, kw_only=True):
    """The result of `recover-seed`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    sources: list[str]
    switches: list[SwitchRecovery]
    tried: Annotated[list[str], Meta(description="hash functions and field sets tried")]
    warnings: list[str]
