"""Values of YAML with their lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files.yaml_source import load_yaml, parse_yaml

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
