"""The filter language: text to a small syntax tree.

Operators, precedence and the set notation are Wireshark's (wireshark-filter(4)):
`and` binds tighter than `or`, `not` tightest.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import UsageError

if TYPE_CHECKING:  # loaded with the first filter
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

GRAMMAR = r"""
?start: either
?either: both (("or" | "||") both)*
?both: inverse (("and" | "&&") inverse)*
?inverse: ("not" | "!") inverse -> negation
    | test
?test: "(" either ")"
    | FIELD -> presence
    | FIELD COMPARE value -> comparison
    | FIELD "in" "{" item (","? item)* "}" -> membership
    | FIELD "not" "in" "{" item (","? item)* "}" -> no_membership
item: value (".." value)?
value: WORD | QUOTED
COMPARE: "==" | "!=" | "<=" | ">=" | "<" | ">" | "eq" | "ne" | "le" | "ge" | "lt" | "gt"
FIELD: /[A-Za-z_][A-Za-z0-9_.]*/
WORD: /(?:(?!\.\.)[^\s{}(),"'&|!=<>])+/
QUOTED: /"[^"]*"|'[^']*'/
%ignore /\s+/
"""

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What a `Comparison` may say."""
_WORDS = {"eq": "==", "ne": "!=", "le": "<=", "ge": ">=", "lt": "<", "gt": ">"}


@dataclass(frozen=True, slots=True)
class Text:
    """A word of the filter and its first column, from 1."""

    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Presence:
    """`cnp`: whether the packet has the field."""

    field: Text


@dataclass(frozen=True, slots=True)
class Comparison:
    """`psn >= 100`."""

    field: Text
    operator: str
    value: Text


@dataclass(frozen=True, slots=True)
class Membership:
    """`sport in {1, 5..9}`; a single value is a range of one."""

    field: Text
    ranges: tuple[tuple[Text, Text], ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """`not x`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Junction:
    """`x and y and ...` or `x or y or ...`."""

    conjunction: bool
    operands: tuple[Node, ...]


Node: TypeAlias = Presence | Comparison | Membership | Negation | Junction


def names(node: Node) -> Iterator[Text]:
    """The fields of a filter."""
    match node:
        case Presence(field) | Comparison(field, _, _) | Membership(field, _):
            yield field
        case Negation(operand):
            yield from names(operand)
        case Junction(_, operands):
            for operand in operands:
                yield from names(operand)


def _text(token: Token) -> Text:
    return Text(str(token), token.column or 1)


class _Build:
    """The node of each rule of the grammar from its children."""

    def value(self, children: list[Token]) -> Text:
        (token,) = children
        text = _text(token)
        return Text(text.text[1:-1], text.column) if token.type == "QUOTED" else text

    def item(self, children: list[Text]) -> tuple[Text, Text]:
        return children[0], children[-1]

    def presence(self, children: list[Token]) -> Node:
        return Presence(_text(children[0]))

    def comparison(self, children: tuple[Token, Token, Text]) -> Node:
        field, operator, value = children
        return Comparison(_text(field), _WORDS.get(operator, str(operator)), value)

    def membership(self, children: list[Any]) -> Node:
        return Membership(_text(children[0]), tuple(children[1:]))

    def no_membership(self, children: list[Any]) -> Node:
        return Negation(self.membership(children))

    def negation(self, children: list[Node]) -> Node:
        return Negation(children[0])

    def both(self, children: list[Node]) -> Node:
        return Junction(True, tuple(children))

    def either(self, children: list[Node]) -> Node:
        return Junction(False, tuple(children))


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=_Build())


def parse(text: str) -> Node:
    """The syntax tree of a filter; UsageError with the column for a syntax error."""
    from lark.exceptions import UnexpectedInput

    node: Any
    try:
        node = _parser().parse(text)
    except UnexpectedInput as error:
        raise UsageError(_explain(text, error)) from None
    return node


def _explain(text: str, error: UnexpectedInput) -> str:
    from lark.exceptions import UnexpectedToken

    if not text.strip():
        return "filter: it is empty; write for example --filter 'ip.src == 10.0.0.1'"
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    column = len(text.rstrip()) + 1 if at_end else error.column
    if at_end and text.count("(") > text.count(")"):
        expected = "')'"
    elif text[column - 1 :].startswith("=") and "COMPARE" in _accepted(error):
        expected = "'=='"
    else:
        expected = next((what for t, what in _EXPECTED if t in _accepted(error)), _CONTINUE)
    point = "the filter ends" if at_end else f"{_word_at(text, column)!r} stands"
    return f"filter: {point} at column {column} where {expected} should be: {_marked(text, column)}"


_CONTINUE = "'and', 'or' or the end"
_EXPECTED = (
    ("COMPARE", f"an operator such as ==, {_CONTINUE}"),
    ("FIELD", "a field"),
    ("WORD", "a value"),
)


def _accepted(error: UnexpectedInput) -> set[str]:
    """Names of the terminals accepted here."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    return set(error.accepts or error.expected) if isinstance(error, UnexpectedToken) else set()


def _word_at(text: str, column: int) -> str:
    words = text[column - 1 :].split()
    return words[0] if words else ""


def _marked(text: str, column: int) -> str:
    """The filter on one line, with a mark before the mistake."""
    return f"{text[: column - 1]} >>> {text[column - 1 :]}".strip()
