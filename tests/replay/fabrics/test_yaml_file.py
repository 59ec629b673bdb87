"""Values of YAML with their lines."""

from __future__ import annotations

import pytest
from fabric_texts import LAB
from fabric_walking import hops, next_nodes
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files import yaml_bytes
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.sources import load_yaml, parse_yaml
from rocescope.replay.fabrics.yaml_file import hash_settings
from rocescope.replay.hashing.settings import HashSettings

# Values of YAML with their lines.

DOCUMENT = """\
rate: 400G
hosts:
  - h1
  - {name: h2, port: 0x1F, up: Yes}
nothing:
"""


def test_values_and_where_they_are():
    top = parse_yaml(DOCUMENT, "f.yaml").mapping("keys")
    assert list(top) == ["rate", "hosts", "nothing"]
    first, second = top["hosts"].items("hosts")
    assert (first.text("a name"), first.where) == ("h1", "f.yaml:3")
    inner = second.mapping("a host")
    assert (inner["port"].integer("port", 0, 31), inner["up"].boolean("up")) == (31, True)
    assert inner["port"].text("port") == "0x1F"
    empty = top["nothing"]
    assert empty.is_empty and empty.mapping("x") == {} and empty.items("x") == []


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda top: top["rate"].mapping("keys"),
            r"f.yaml:1: expected keys \(key: value\), found '400G'",
        ),
        (
            lambda top: top["rate"].items("hosts"),
            "f.yaml:1: expected a list of hosts, found '400G'",
        ),
        (lambda top: top["hosts"].text("a name"), "f.yaml:3: expected a name, found a list"),
        (lambda top: top["nothing"].text("a name"), "f.yaml:5: expected a name, found nothing"),
        (
            lambda top: top["rate"].integer("rate", 0, 9),
            "f.yaml:1: rate '400G' is not a whole number",
        ),
        (
            lambda top: top["rate"].boolean("rate"),
            "f.yaml:1: rate must be true or false, not '400g'",
        ),
    ],
)
def test_other_values(read, message):
    with pytest.raises(UsageError, match=message):
        read(parse_yaml(DOCUMENT, "f.yaml").mapping("keys"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: 'a' is given twice"),
        ("a: [1,\nb: 2", "f.yaml:3: not YAML"),
        ("", "f.yaml is empty"),
        ("# nothing", "f.yaml is empty"),
        ("[" * 101 + "]" * 101, "f.yaml:1: nested more than 100 levels deep"),
    ],
)
def test_other_documents(text, message):
    with pytest.raises(UsageError, match=message):
        parse_yaml(text, "f.yaml").mapping("keys")


def test_numbers_too_long_to_convert():
    source = parse_yaml("9" * 5000, "f.yaml")
    with pytest.raises(UsageError, match="seed has more than 64 digits"):
        source.integer("seed", 0, 9)


@given(st.integers(-(1 << 63), 1 << 63))
def test_numbers_as_python_reads_them(number):
    for text in (str(number), hex(number)):
        assert (
            parse_yaml(f"n: {text}", "f").mapping("n")["n"].integer("n", number, number) == number
        )


def test_files(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(DOCUMENT)
    assert load_yaml(file).mapping("keys")["rate"].where == f"{file}:1"
    file.write_bytes(b"\xff\xff")
    with pytest.raises(UsageError, match="is not text; give a fabric"):
        load_yaml(file, "a fabric")
    with pytest.raises(UsageError, match="cannot read .*none: no such file or directory; give"):
        load_yaml(tmp_path / "none", "a fabric")


# How a switch hashes, as written in a file.


def read(text):
    return hash_settings(parse_yaml(text, "lab.yaml"))


def test_settings_and_those_of_the_model():
    text = "{model: linux, policy: 1, seed: 0x10, seed_recovered: yes}"
    found = read(text)
    assert found == HashSettings(model="linux", seed=16, extra={"policy": 1})
    assert found.seed_recovered
    crc = read("{model: crc32, field_set: 3-tuple, rotate: 4, offset: 2, seed_use: xor}")
    assert (crc.field_set, crc.rotate, crc.offset, crc.seed_use) == ("3-tuple", 4, 2, "xor")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{model: md5}", "lab.yaml:1: .*md5"),
        ("\nmodel: crc32\nrotate: 64", r"lab.yaml:3: rotate must be 0 to 63, not 64"),
        ("{model: crc32, seed: many}", "lab.yaml:1: seed 'many' is not a whole number"),
        ("{model: crc32, symmetric: 1}", "lab.yaml:1: symmetric must be true or false"),
        ("{model: crc32, colour: red}", "lab.yaml:1: .*colour"),
        ("{model: crc32, field_set: 9-tuple}", "lab.yaml:1: .*9-tuple"),
        ("[crc32]", "lab.yaml:1: expected model, seed"),
    ],
)
def test_mistakes_name_the_line(text, message):
    with pytest.raises(UsageError, match=message):
        read(text)


# Fabrics in files: YAML, containerlab, GraphML; mistakes are named with file and line.


def test_a_yaml_fabric(parse):
    fabric = parse(LAB)
    assert fabric.name == "lab"
    assert fabric.nodes.tier.tolist() == [1, 1, 2, 2, 0, 0]
    assert fabric.nodes.plane.tolist() == [0, 0, 0, 1, -1, -1]
    # The order of links is that of ports: leaf2 has spine2 first.
    assert next_nodes(fabric, "leaf1", "host2") == ["spine1", "spine1", "spine2"]
    assert next_nodes(fabric, "leaf2", "host1") == ["spine2", "spine1"]
    rate = {fabric.link_name(i): int(r) for i, r in enumerate(fabric.links.rate_bits_per_second)}
    assert (rate["leaf1>spine1#2"], rate["spine1>leaf2"], rate["host1>leaf1"]) == (
        100 * 10**9, 1600 * 10**9, 400 * 10**9,
    )  # fmt: skip
    assert fabric.links.delay_ns[fabric.find_links("leaf1-spine1")].tolist() == [1000] * 4
    assert [s.model for s in fabric.hash_settings] == ["linux", "crc32", "crc32", "crc32"]
    assert fabric.hash_settings[0].seed == 16 and fabric.hash_settings[1].seed == 7
    assert fabric.host_of("fd00::1") == 0 and fabric.host_of("10.0.0.2") == 1


def test_links_down_and_slow(parse):
    fabric = parse(LAB + "down: [leaf1-spine1#2]\nslow: {leaf1>spine2: 50G}\n")
    assert next_nodes(fabric, "leaf1", "host2") == ["spine1", "spine2"]
    assert fabric.links.rate_bits_per_second[fabric.find_links("leaf1>spine2")] == 50 * 10**9
    fabric = parse(LAB.replace("count: 2", "count: 2, up: false"), options=",slow=leaf2-spine2:1G")
    assert next_nodes(fabric, "leaf1", "host2") == ["spine2"]
    assert set(fabric.links.rate_bits_per_second[fabric.find_links("leaf2-spine2")]) == {10**9}


def test_given_routes(parse):
    routes = (
        "routes: {leaf1: {host2: [spine2, {via: spine1#2, weight: 3}]}, spine1: {leaf2: [leaf1]}}\n"
    )
    fabric = parse(LAB + routes)
    assert hops(fabric, "leaf1", "host2") == [("spine2", 1), ("spine1", 3)]
    assert hops(fabric, "spine1", "host2") == [("leaf1", 1)]
    assert hops(fabric, "leaf2", "host1") == [("spine2", 1), ("spine1", 1)]
    assert hops(fabric.down(["leaf1-spine2"]), "leaf1", "host2") == [("spine1", 3)]


def test_a_spec_as_the_base(parse):
    fabric = parse(
        "fabric: leaf-spine:leaves=2,spines=2,hosts=1\nhash: {model: crc16-ccitt}\n"
        "nodes: {leaf2: {hash: {model: crc32, seed: 3}}}\ndown: [leaf1-spine1]\n"
    )
    assert [s.model for s in fabric.hash_settings] == ["crc16-ccitt", "crc32", *["crc16-ccitt"] * 2]
    assert next_nodes(fabric, "leaf1", "host2") == ["spine2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[leaf1, spine2]", "[leaf1, spine9]", r"lab.yaml:15: there is no node 'spine9'"),
        ("[leaf1, spine2]", "[leaf1]", r"lab.yaml:15: a link has two ends"),
        ("[leaf1, spine2]", "leaf1-spine2", r"lab.yaml:15: expected a, b"),
        ("rate: 100G", "rate: fast", r"lab.yaml:14: rate 'fast' is not a rate"),
        ("delay: 1us", "delay: 1", r"lab.yaml:14: delay '1' has no unit"),
        ("count: 2", "count: 0", r"lab.yaml:14: count must be 1 to"),
        ("count: 2", "colour: red", r"lab.yaml:14: unknown key 'colour'"),
        ("count: 2", "up: maybe", r"lab.yaml:14: up must be true or false"),
        ("model: crc32", "model: md5", r"lab.yaml:3: unknown hash 'md5'"),
        ("seed: 7", "seed: -7", r"lab.yaml:3: seed must be 0 to"),
        ("seed: 7", "sed: 7", r"lab.yaml:3: .*sed"),
        ("defaults:", "default:", r"lab.yaml:2: unknown key 'default'"),
        ("spine2: {plane: 1}", "spine2: {plan: 1}", r"lab.yaml:8: unknown key 'plan'"),
        (
            "spine2: {plane: 1}",
            "spine2: {kind: router}",
            r"lab.yaml:8: kind must be host or switch",
        ),
        ("spine2: {plane: 1}", "spine1:", r"lab.yaml:8: 'spine1' is given twice"),
        ("10.0.1.10", "10.0.1", r"lab.yaml:9: '10.0.1' is not an address"),
        ("10.0.1.10", '"fd01::1%1\\nroute del default"', r"lab.yaml:9: .* is not an address"),
        (
            "host2: {kind: host}",
            "host2: {kind: host, addresses: [10.0.1.10]}",
            "host1 and host2 have",
        ),
        ("[host1, leaf1]", "[host1, host2]", "host1 and host2 are both hosts"),
        ("[leaf1, spine2]", "[leaf1, leaf1]", "leaf1 is wired to itself"),
        ("{a: host2, b: leaf2}", "{a: host1, b: leaf1}", "host1 has 2 cables to leaf1"),
        ("links:", "cables:", r"unknown key 'cables'"),
        ("name: lab", "name: [lab", r"lab.yaml:\d+: not YAML"),
        ("name: lab", "down: [leaf1-leaf2]", r"lab.yaml:1: there is no link leaf1-leaf2"),
        ("name: lab", "slow: {leaf1-spine1: 1X}", r"lab.yaml:1: rate '1X' is not a rate"),
        (
            "name: lab",
            "routes: {leaf1: {host2: [leaf2]}}",
            r"lab.yaml:1: leaf1 has no link to 'leaf2'",
        ),
        ("name: lab", "routes: {leaf7: {host2: [x]}}", r"lab.yaml:1: there is no switch 'leaf7'"),
    ],
)
def test_mistakes_in_yaml(old, new, message, parse):
    assert old in LAB
    with pytest.raises(UsageError, match=message) as error:
        parse(LAB.replace(old, new))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["9" * 5000, "0x" + "f" * 5000])
def test_numbers_with_thousands_of_digits_are_refused(text, parse):
    with pytest.raises(UsageError, match=r"lab.yaml:3: seed has more than 64 digits") as error:
        parse(LAB.replace("seed: 7", f"seed: {text}"))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["", "3", "[]", "a: b", "nodes: {a: }", "\t", "\x00", "&a [*a]"])
def test_what_is_no_fabric(text, parse):
    with pytest.raises(UsageError, match=r"lab\.yaml"):
        parse(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 1000, "- " * 1000 + "a"])
def test_a_document_too_deep_for_the_stack(text, parse):
    with pytest.raises(UsageError, match="lab.yaml:1: nested more than 100 levels deep"):
        parse(text)


@pytest.mark.thorough
@given(st.text(max_size=200))
def test_any_text_is_a_fabric_or_an_error(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(LAB[: len(text) * 3] + text, "utf-8", errors="replace")
    try:
        parse_fabric(str(file))
    except UsageError as error:
        assert "any.yaml" in str(error)


def test_whether_a_seed_was_recovered_is_true_or_false(parse):
    with pytest.raises(UsageError, match=r"seed_recovered must be true or false"):
        parse("fabric: leaf-spine:leaves=2\nhash: {model: linux, seed: 7, seed_recovered: 1}\n")


def test_what_devices_told_is_kept(tmp_path):
    text = """\
nodes:
  leaf: {tables: ip -j route, ipv4_only: true}
  s1: {}
  s2: {}
  far: {}
  h1: {kind: host, networks: [10.1.0.0/24]}
  h2: {kind: host, addresses: [10.2.0.9]}
links:
- [h1, leaf]
- {a: leaf, b: s1, ports: [swp1, eth3], evidence: LLDP}
- {a: leaf, b: s2, count: 2}
- [s1, far]
- [s2, far]
- [h2, far]
routes:
  leaf: {h2: {hops: [s2, s1], buckets: [0, 0, 1]}}
"""
    file = tmp_path / "lab.yaml"
    file.write_text(text)
    fabric = parse_fabric(str(file))
    assert fabric.host_of("10.1.0.77") == 0
    assert fabric.origin.tables == ("ip -j route", "", "", "")
    assert fabric.origin.ipv4_only == (True, False, False, False)
    assert fabric.origin.ports[:3] == (("", ""), ("swp1", "eth3"), ("", ""))
    assert fabric.origin.links == ("", "LLDP", "", "", "", "", "")
    (table,) = fabric.forwarding.buckets.values()
    assert table.tolist() == [0, 0, 1]
    file.write_bytes(yaml_bytes(fabric))
    again = parse_fabric(str(file))
    assert yaml_bytes(again) == file.read_bytes()
    assert again.origin == fabric.origin
    assert [t.tolist() for t in again.forwarding.buckets.values()] == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[10.1.0.0/24]", "[10.1.0.1/24]", "'10.1.0.1/24' is not a network"),
        ("[swp1, eth3]", "[swp1]", "a link has two ports"),
        ("[0, 0, 1]", "[0, 2]", "a bucket must be 0 to 1, not 2"),
        ("[0, 0, 1]", "[]", "a resilient group has at least one bucket"),
        (", buckets: [0]", "", "has hops and buckets"),
    ],
)
def test_mistakes_in_what_devices_told(old, new, message, tmp_path):
    text = """\
nodes:
  {leaf: {tables: x}, s1: {}, s2: {}, h1: {kind: host, networks: [10.1.0.0/24]}, h2: {kind: host}}
links: [[h1, leaf], {a: leaf, b: s1, ports: [swp1, eth3]}, [leaf, s2], [s1, s2], [h2, s2]]
routes: {leaf: {h2: {hops: [s2, s1], buckets: [0, 0, 1]}}}
"""
    if old == ", buckets: [0]":
        text, old, new = text.replace(", buckets: [0, 0, 1]", ""), "hops", "hops"
    file = tmp_path / "lab.yaml"
    file.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=message):
        parse_fabric(str(file))
