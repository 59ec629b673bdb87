"""The syntax of filters: precedence, notations, and the column of every mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.filtering.grammar import (
    Comparison,
    Junction,
    Membership,
    Negation,
    Presence,
    names,
    parse,
)


def shown(node):
    """A tree with every bracket written."""
    match node:
        case Presence(field):
            return field.text
        case Comparison(field, operator, value):
            return f"{field.text}{operator}{value.text}"
        case Membership(field, ranges):
            return f"{field.text} in {[(low.text, high.text) for low, high in ranges]}"
        case Negation(operand):
            return f"!({shown(operand)})"
        case Junction(conjunction, operands):
            return f"({(' & ' if conjunction else ' | ').join(map(shown, operands))})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a or b and not c or d", "(a | (b & !(c)) | d)"),
        ("(a || b) && !c", "((a | b) & !(c))"),
        ("not a and b", "(!(a) & b)"),
        ("!(a or b)", "!((a | b))"),
        ("psn ge 5 and qp ne 0x11", "(psn>=5 & qp!=0x11)"),
        ("ip.src==10.0.0.0/8", "ip.src==10.0.0.0/8"),
        ("opcode == 'RC SEND only'", "opcode==RC SEND only"),
        ("sport in {1, 5..9 11}", "sport in [('1', '1'), ('5', '9'), ('11', '11')]"),
        ("sport not in {1}", "!(sport in [('1', '1')])"),
        ("ipv6.src == fd00::1", "ipv6.src==fd00::1"),
    ],
)
def test_trees(text, tree):
    assert shown(parse(text)) == tree


def test_columns_and_names():
    tree = parse("cnp and  psn > 7")
    assert [(field.text, field.column) for field in names(tree)] == [("cnp", 1), ("psn", 10)]
    assert tree.operands[1].value.column == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("psn = 5", r"'=' stands at column 5 where '==' should be: psn  >>> = 5"),
        ("psn ==", r"the filter ends at column 7 where a value should be"),
        ("(a or b", r"the filter ends at column 8 where '\)' should be"),
        ("a b", r"'b' stands at column 3 where an operator such as =="),
        ("and a", r"'a' stands at column 5 where an operator such as =="),
        ("a and", r"the filter ends at column 6 where a field should be"),
        ("psn in {1..}", r"where a value should be"),
        ("psn == 5 6", r"'6' stands at column 10 where 'and', 'or' or the end should be"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)


@given(st.text("ab() !&|=<>{}.,'\"not1", max_size=30))
def test_any_text_is_a_tree_or_one_line(text):
    try:
        parse(text)
    except UsageError as error:
        assert str(error).startswith("filter: ") and "\n" not in str(error)
