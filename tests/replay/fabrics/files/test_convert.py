"""Fabrics written as files and read again."""

from __future__ import annotations

import pytest
from fabric_texts import LAB, SPECS

from rocescope.replay.fabrics.files.convert import json_bytes, yaml_bytes
from rocescope.replay.fabrics.parse import parse_fabric


def same(a, b):
    """Whether two fabrics are alike but for their names."""
    assert a.nodes.names == b.nodes.names
    for x, y in zip((*a.nodes[1:], *a.links), (*b.nodes[1:], *b.links), strict=True):
        assert x.tolist() == y.tolist()
    for x, y in zip(a.attachments, b.attachments, strict=True):
        assert x.tolist() == y.tolist()
    for s in range(a.switches):
        for edge in range(a.forwarding.group_of.shape[1]):
            assert [v.tolist() for v in a.group(s, edge)] == [v.tolist() for v in b.group(s, edge)]
    assert a.hash_settings == b.hash_settings
    assert a.layers == b.layers


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_written_and_read_again(spec, write, suffix, tmp_path):
    fabric = parse_fabric(spec)
    file = tmp_path / f"f.{suffix}"
    file.write_bytes(write(fabric))
    same(parse_fabric(str(file)), fabric)


@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_no_route_stays_no_route(parse, write, suffix, tmp_path):
    """Read again, the shortest path is not assumed in its place."""
    fabric = parse(LAB + "routes: {leaf1: {host2: []}}\n")
    assert len(fabric.group(0, int(fabric.attachments.edge[1]))[0]) == 0
    file = tmp_path / f"again.{suffix}"
    file.write_bytes(write(fabric))
    again = parse_fabric(str(file))
    same(again, fabric)
    assert len(again.group(0, int(again.attachments.edge[1]))[0]) == 0


def test_routes_and_hash_settings_are_written_too(parse, tmp_path):
    fabric = parse(LAB + "routes: {leaf1: {host2: [spine2, {via: spine1#2, weight: 3}]}}\n")
    file = tmp_path / "again.yaml"
    file.write_bytes(yaml_bytes(fabric))
    again = parse_fabric(str(file))
    same(again, fabric)
    assert str(again.address_of(0)) == "10.0.1.10" and not again.routed


@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_a_recovered_seed_stays_recovered(write, suffix, tmp_path):
    text = "fabric: leaf-spine:leaves=2\nnodes:\n"
    text += "  leaf1: {hash: {model: linux, policy: 1, seed: 7, seed_recovered: true}}\n"
    text += "  leaf2: {hash: {model: linux, policy: 1, seed: 7}}\n"
    (tmp_path / "lab.yaml").write_text(text)
    first = parse_fabric(str(tmp_path / "lab.yaml"))
    (tmp_path / f"again.{suffix}").write_bytes(write(first))
    for fabric in (first, parse_fabric(str(tmp_path / f"again.{suffix}"))):
        one, other = fabric.hash_settings[:2]
        assert (one.seed_recovered, other.seed_recovered) == (True, False)
        assert one == other  # they hash alike
