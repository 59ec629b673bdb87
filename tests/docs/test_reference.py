"""The reference pages name every option and every filter field."""

from __future__ import annotations

import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import get_args

import pytest
from fabric_walking import hops
from pyarrow import parquet

from rocescope import cli
from rocescope.analyzer.diagnosis import finding, known
from rocescope.analyzer.diagnosis import finding as deaths
from rocescope.analyzer.diagnosis.finders import captures, delays, hosts, losses, marks, moves
from rocescope.analyzer.filtering.compiler import Filter
from rocescope.analyzer.filtering.fields import FIELDS
from rocescope.analyzer.measures.conformance.rules import REASONS
from rocescope.analyzer.measures.conformance.rules import RULES as CONFORMANCE_RULES
from rocescope.analyzer.measures.spraying import expected_fim
from rocescope.analyzer.results.diagnosis import Kind
from rocescope.commands.analyze import analyze
from rocescope.commands.capture import capture
from rocescope.commands.check import check
from rocescope.commands.export import export
from rocescope.commands.fabric import fabric
from rocescope.commands.generate import generate
from rocescope.commands.plain_words import options_of
from rocescope.commands.table import COMMANDS
from rocescope.commands.tui import live, tui
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.specs import generated
from rocescope.replay.fabrics.mapping import RULES
from rocescope.replay.fabrics.parse import KINDS, parse_fabric
from rocescope.replay.generate.patterns import PATTERNS
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.strategies.registry import PACKET_STRATEGIES, STRATEGIES, parse_strategy

# The reference pages name every option and every filter field.


@pytest.mark.parametrize("command", [analyze, capture, check, tui, live, export, fabric, generate])
def test_every_option_is_in_the_reference(checkout: Path, command: FunctionType) -> None:
    page = (checkout / "docs" / "cli.md").read_text()
    section = page.partition(f"## {command.__name__}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`--([a-z0-9-]+)`", section))
    options = {name for name, _ in options_of(command) if name.startswith("--")}
    assert named == {name.removeprefix("--") for name in options}


def test_every_field_is_in_the_reference(checkout: Path) -> None:
    page = (checkout / "docs" / "filter.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(field.name, field.meaning) for field in FIELDS.values()]


def test_examples_compile(checkout: Path) -> None:
    page = (checkout / "docs" / "filter.md").read_text()
    examples = re.findall(r"```\n(.+?)```", page, re.DOTALL)[0].splitlines()
    assert len(examples) == 3
    for example in examples:
        Filter(example)


# What docs/fabrics.md shows works.


def test_specs(checkout: Path) -> None:
    page = (checkout / "docs" / "fabrics.md").read_text()
    specs = re.findall(r"^\| `((?:leaf-spine|fat-tree|rail):\S+)`", page, re.MULTILINE)
    specs += re.findall(r"^(leaf-spine:\S+)", page, re.MULTILINE)
    assert len(specs) == 7
    for spec in specs:
        assert parse_fabric(spec).hosts
    assert set(re.findall(r"^\| `([a-z-]+):\S*=", page, re.MULTILINE)) == set(KINDS)


def test_the_yaml_example(checkout: Path, tmp_path: Path) -> None:
    page = (checkout / "docs" / "fabrics.md").read_text()
    (example,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    file = tmp_path / "lab.yaml"
    file.write_text(example)
    fabric = parse_fabric(str(file))
    assert hops(fabric, "leaf2", "host1") == [("spine2", 1), ("spine1", 3)]
    assert hops(fabric, "leaf1", "host2") == [("spine1", 1)]


def test_patterns_and_rules_are_named(checkout: Path) -> None:
    page = (checkout / "docs" / "fabrics.md").read_text()
    for name in (*PATTERNS, *RULES):
        assert f"\n| `{name}` |" in page


# The page on conformance names every rule as the code states it, and every reason.


def test_rules_and_reasons(checkout: Path) -> None:
    page = (checkout / "docs" / "conformance.md").read_text()
    for rule in CONFORMANCE_RULES:
        cells = (f"`{rule.id}`", rule.side, rule.title, rule.needs, rule.source, rule.certainty)
        assert f"| {' | '.join(cells)} |" in page
    for reason in REASONS:
        assert f"- {reason}\n" in page


# The table of the example in docs/replay.md is what the commands give.

ROW = re.compile(r"\| `(leaf-spine:[^`]+)` \| `([^`]+)` \|(.+)\|")


@pytest.mark.thorough
def test_the_example_has_the_numbers_that_come_out(checkout: Path) -> None:
    rows = ROW.findall((checkout / "docs" / "replay.md").read_text())
    assert len(rows) == 4
    for spec, pattern, cells in rows:
        flows, ecmp, chance, static, assign = (cell.strip() for cell in cells.split("|"))
        fabric = parse_fabric(spec)
        traffic = generated(pattern, fabric, None)
        layer = sweep_result(
            traffic, fabric, {}, SeedRange(0, 10_000), "different", "fim-flows", None, []
        ).layers[0]
        found = layer.distribution
        low, high = found.quantiles["p5"], found.quantiles["p95"]
        assert layer.layer == "leaf-spine"
        assert ecmp == f"{found.mean:.1f} ({low:.0f} to {high:.0f})"
        leaves = 2 if "leaves=2" in spec else 4
        exact = expected_fim(int(flows) // leaves, layer.links // leaves)
        assert chance == f"{exact:.1f}"
        assert found.mean == pytest.approx(exact, abs=0.4)
        both = replay(traffic, fabric, [parse_strategy("static"), parse_strategy("assign")], [])
        for one, cell in zip(both.strategies, (static, assign), strict=True):
            up = next(record for record in one.layers if record.layer == "leaf-spine")
            assert cell == f"{up.fim_flows_percent:.1f}" and flows == str(up.flows)


def test_every_strategy_is_on_the_page(checkout: Path) -> None:
    page = (checkout / "docs" / "replay.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)`.*? \| (\w+) \|", page, re.MULTILINE))
    assert {name for name, decides in rows.items() if decides == "flows"} == set(STRATEGIES)
    by_packet = {name for name, decides in rows.items() if decides in ("switch", "host")}
    assert by_packet == set(PACKET_STRATEGIES)


# The page of the diagnosis defines every kind, with the thresholds of the code.

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
SECTIONS = {
    title: " ".join(text.split())
    for title, text in re.findall(r"^### (\S+)\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def test_every_kind_has_its_section_in_the_order_of_the_schema():
    assert list(SECTIONS) == list(get_args(Kind))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_a_next_step(kind):
    assert "Next:" in SECTIONS[kind]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("loss", losses.LATE_SHARE, "25 %"),
        ("loss", losses.RARE, "0.3 %"),
        ("blackhole", losses.TOTAL_PACKETS, "3 packets in a row"),
        ("rate-limit", losses.OVERFLOW_NS / 1e6, "0.5 ms"),
        ("rate-limit", losses.LIMITED_WINDOWS, "8 windows"),
        ("queueing", delays.QUEUE_NS / 1e6, "0.2 ms"),
        ("incast", losses.INCAST_SOURCES, "three sources"),
        ("rehash", moves.LEAST_FLOWS, "three flows"),
        ("rehash", moves.TOGETHER_NS / 1e6, "100 ms"),
        ("reordering", delays.SLOW_PATH_SHARE, "80 %"),
        ("duplication", marks.TWICE, "40 %"),
        ("stalled", deaths.ROUNDS, "three rewinds"),
        ("stalled", deaths.SILENCE_NS / 1e9, "half a second"),
        ("timeout-recovery", finding.WORTH_A_WARNING, "1 %"),
        ("retry-storm", hosts.ROUNDS, "four times in a row"),
        ("dscp-mismatch", hosts.AGREEMENT, "75 %"),
        ("pause", delays.PAUSE_WORTH_A_WARNING, "1 %"),
        ("pause", delays.PAUSE_STORM, "50 %"),
        ("mark-without-cnp", marks.ENOUGH_MARKS, "ten marked"),
        ("clock", captures.OFFSET_NS / 1e6, "1 ms"),
        ("delay-step", delays.LEAST_STEP_NS / 1e6, "0.1 ms"),
        ("delay-step", delays.STEP_WINDOWS, "8 windows"),
    ],
)
def test_thresholds_are_those_of_the_code(kind, value, words):
    numbers = {"half": 0.5, "three": 3, "four": 4, "ten": 10}
    first = words.split()[0]
    stated = numbers.get(first) if first in numbers else float(first)
    assert value == pytest.approx(stated / 100 if words.endswith("%") else stated)
    assert words in SECTIONS[kind]


def test_words_on_time():
    text = " ".join(PAGE.split())
    assert finding.EXPECTED == 5 and "five more hits" in text
    assert finding.PAUSES == 2 and "more than twice as long as the longest pause" in text
    assert finding.ONSET == 3 and "three times the mean time between two hits" in text
    assert known.AFTERMATH_NS == 5e9 and "up to 5 s after the end of its cause" in text
    assert finding.MOST_OF_THE_TIME == 0.5 and "more than 50 %" in text


# The format page describes the records as they are declared.


def test_field_tables_are_up_to_date(checkout: Path) -> None:
    generator = runpy.run_path(str(checkout / "docs" / "generate.py"))
    written = (checkout / "docs" / "formats.md").read_text()
    assert written == generator["page"](), "run `make docs`"


def test_the_columns_are_those_of_an_exported_file(
    checkout: Path, data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "packets.parquet"
    assert cli.run(["export", str(data / "c40_rc_oddities_ipv4.atB.pcap"), "-o", str(file)]) == 0
    page = (checkout / "docs" / "formats.md").read_text().partition("## Columns of the packet")[2]
    written = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert written == [(field.name, str(field.type)) for field in parquet.read_schema(file)]


# The man page says what the help says.


def test_the_man_page_is_up_to_date(checkout: Path) -> None:
    page = runpy.run_path(str(checkout / "docs" / "man.py"))["page"]()
    assert (checkout / "docs" / "rocescope.1").read_text() == page, "run `make docs`"
    assert "Parameters" not in page, (
        "the options of a docstring stand among the words of the command"
    )
    for name, command in COMMANDS.items():
        heading = f".SS {name} ".replace("-", "\\-")
        assert heading in page
        assert command.examples.splitlines()[1].strip().replace("-", "\\-") in page


def test_man_has_nothing_to_say_against_it(checkout: Path, need_tool: Callable[[str], str]) -> None:
    command = [need_tool("groff"), "-man", "-Tutf8", "-ww", checkout / "docs" / "rocescope.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr
    assert "Examples:" in done.stdout
