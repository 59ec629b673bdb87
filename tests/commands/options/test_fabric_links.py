"""The links of a fabric for the analyzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.fabric_links import fabric_links

LAB = """
nodes:
  leaf1: {}
  leaf2: {}
  spine1: {}
  H1: {kind: host, addresses: [10.1.1.10, "fd10::10"]}
  H2: {kind: host}
links:
  - [H1, leaf1]
  - [H2, leaf2]
  - {a: leaf1, b: spine1, count: 2}
  - [leaf2, spine1]
  - {a: leaf2, b: leaf1, up: false}
"""


def test_links_that_are_up_and_addresses(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    found = fabric_links(str(path))
    cables = [("H1", "leaf1"), ("H2", "leaf2"), ("leaf1", "spine1"), ("leaf1", "spine1"),
              ("leaf2", "spine1")]  # fmt: skip
    assert sorted(found.links) == sorted([*cables, *(cable[::-1] for cable in cables)])
    assert found.hosts == {"H1", "H2"}
    named = {a: found.host_of(a) for a in ("10.1.1.10", "fd10::10", "10.0.0.1", "10.0.0.2")}
    assert named == {"10.1.1.10": "H1", "fd10::10": "H1", "10.0.0.1": None, "10.0.0.2": "H2"}


def test_a_spec_and_a_mistake() -> None:
    found = fabric_links("leaf-spine:leaves=2,spines=2,hosts=1,down=leaf1-spine2")
    assert ("leaf1", "spine1") in found.links and ("leaf1", "spine2") not in found.links
    assert found.host_of("10.0.0.2") == "host2" and found.host_of("fd10::1") == "host1"
    with pytest.raises(UsageError, match="there is no file nowhere.yaml"):
        fabric_links("nowhere.yaml")
