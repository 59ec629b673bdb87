"""The report of `recover-seed` ends with the command that uses its result."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.switch_hashing import switch_hashing
from rocescope.replay.results import Candidate, RecoverResult, SwitchRecovery
from rocescope.replay.seeds.recover import settings_of
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.sweep import fill_recovery, strategy_words


def candidate(**changes: object) -> Candidate:
    values: dict[str, object] = {
        "hash": "linux", "field_set": "", "parameters": {"policy": "1"}, "seed": 305_419_896,
        "seeds": [305_419_896], "seeds_that_fit": 1, "seeds_searched": 65_536,
        "hypotheses": 2, "expected_by_chance": 1e-20, "fitted_flows": 32, "validated_flows": 16,
        "held_back_flows": 16,
    }  # fmt: skip
    return Candidate(**(values | changes))  # type: ignore[arg-type]


def printed(*switches: list[Candidate], asked_of: str | None = None) -> str:
    found = [
        SwitchRecovery(
            direction="from H1", links=["a", "b"], flows=48, flows_on_several_links=0,
            flows_per_link=[24, 24], candidates=candidates, flows_needed={}, conclusion="found",
        )
        for candidates in switches
    ]  # fmt: skip
    result = RecoverResult(version="0", sources=[], switches=found, tried=[], warnings=[])
    stream = io.StringIO()
    fill_recovery(page_on(stream, "never"), result, asked_of=asked_of)
    return stream.getvalue()


def test_one_command_for_both_directions_of_a_switch() -> None:
    text = printed([candidate()], [candidate()])
    line = "rocescope replay FILE... --fabric FABRIC -s "
    words = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
    assert text.count(line) == 1 and f"  {line}{words}\n" in text


def test_the_command_after_asking_a_switch_has_no_placeholder() -> None:
    text = printed([candidate()], asked_of="my fabric.yaml")
    line = "  rocescope replay --pattern permutation --fabric 'my fabric.yaml' -s ecmp:hash=linux,"
    assert line in text and "FILE" not in text and "FABRIC" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hash": "crc32", "field_set": "src+udp[13:3]", "parameters": {}, "seed": 7},
        {"hash": "crc32", "field_set": "4-tuple", "parameters": {"symmetric": "yes"}, "seed": 7},
    ],
    ids=["linux", "bytes of UDP", "symmetric"],
)
def test_the_line_for_the_fabric_file_is_read_back(
    changes: dict[str, object], tmp_path: Path
) -> None:
    found = candidate(**changes)
    text = printed([found], [found])
    (line,) = (line for line in text.splitlines() if line.startswith("  hash: "))
    file = tmp_path / "fabric.yaml"
    file.write_text(f"fabric: leaf-spine:leaves=2\nnodes:\n  leaf1:\n  {line}\n")
    own, other = parse_fabric(str(file)).hash_settings[:2]
    assert other is None and own is not None and own.seed_recovered
    told = settings_of(found)
    assert told is not None and own == replace(told, seed=found.seed or 0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hash": "crc32", "field_set": "5-tuple", "parameters": {}, "seed": 7},
        {"hash": "crc32", "field_set": "4-tuple", "parameters": {"symmetric": "yes"}, "seed": 7},
    ],
    ids=["linux", "crc32", "symmetric"],
)
def test_the_strategy_has_the_seed_on_every_switch(changes: dict[str, object]) -> None:
    found = candidate(**changes)
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
    name, _, options = strategy_words(found).partition(":")
    assert parse_strategy(f"{name}:{options}").name == "ecmp"
    parsed = dict(one.split("=", 1) for one in options.split(","))
    hashing = switch_hashing(fabric, parsed, "ecmp")
    assert {settings.seed for settings in hashing.settings} == {found.seed}
    assert {settings.model for settings in hashing.settings} == {found.hash}


def test_no_command_without_a_seed() -> None:
    assert "rocescope replay" not in printed([candidate(seed=None, seeds=[], seeds_that_fit=0)])
