"""What docs/fabrics.md shows works."""

from __future__ import annotations

import re
from pathlib import Path

from fabric_walking import hops

from rocescope.replay.fabrics.mapping import RULES
from rocescope.replay.fabrics.parse import KINDS, parse_fabric
from rocescope.replay.generate.patterns import PATTERNS


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
