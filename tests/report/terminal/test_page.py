"""The page: what reaches the terminal, and which columns stay."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from rocescope.report.terminal.page import (
    Page,
    console_for,
    folded,
    new_table,
    numbers,
    texts,
    with_columns,
)


def page_of(width: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Page, io.StringIO]:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    return Page(console_for(stream, "never")), stream


def test_no_text_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    page, stream = page_of(80, monkeypatch)
    page.say("a\x1b[31mb", mark="\x07")
    page.section("title\x9b", "text\x00")
    assert all(c.isprintable() or c == "\n" for c in stream.getvalue())


def test_lines_after_the_first_are_indented_and_have_no_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, stream = page_of(30, monkeypatch)
    page.say("word " * 10, indent=3, mark="*")
    first, *others = stream.getvalue().splitlines()
    assert first.startswith("*  word") and others
    assert all(line.startswith("   word") for line in others)


@pytest.mark.parametrize(("width", "kept"), [(80, 6), (39, 4)])
def test_dropped_columns_are_dropped_whole(
    width: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, stream = page_of(width, monkeypatch)

    def fill(table: Table) -> None:
        texts(table, "name", "empty")
        numbers(table, *(f"number{i}" for i in range(5)))
        table.add_row("x", "-", *("12345678",) * 5)

    page.draw(fill, drop=True)
    head, row = stream.getvalue().splitlines()
    assert "empty" not in head and len(head.split()) == len(row.split()) == kept


@pytest.mark.parametrize(("width", "tables"), [(120, 1), (60, 2), (44, 3), (20, 7)])
def test_columns_that_do_not_fit_follow_in_a_second_table(
    width: int, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, stream = page_of(width, monkeypatch)

    def fill(table: Table) -> None:
        folded(table, "strategy")
        numbers(table, *(f"number{i}" for i in range(7)))
        for name in ("adaptive-flowlet (gap=16us)", "plb"):
            table.add_row(name, *(f"1234567{i}" for i in range(7)))

    page.draw(fill)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    heads, rows = ([line for line in lines if line[0] == first] for first in ("strategy", "plb"))
    assert len(heads) == len(rows) == tables and max(map(len, stream.getvalue().split())) < 20
    assert sum((head[1:] for head in heads), []) == [f"number{i}" for i in range(7)]
    assert sum((row[1:] for row in rows), []) == [f"1234567{i}" for i in range(7)]


CELLS = st.text(st.sampled_from("ab :·█漢\x1b\n-"), max_size=8).map(lambda text: f"{text}x")


@given(
    st.lists(
        st.tuples(CELLS, CELLS, st.builds(Text, CELLS, st.sampled_from(["", "red"]))), max_size=5
    )
)
def test_a_table_is_drawn_as_by_rich(rows: list[tuple[str, str, Text]]) -> None:
    def fill(table: Table) -> None:
        texts(table, "name")
        numbers(table, "number")
        table.add_column("#", justify="right", style="dim")
        folded(table, "path")
        for name, number, text in rows:
            table.add_row(name, number, text, name)

    drawn, by_rich = io.StringIO(), io.StringIO()
    Page(console_for(drawn, "never")).draw(fill)
    table = new_table(2)
    fill(table)
    console_for(by_rich, "never").print(with_columns(table, table.columns))
    assert drawn.getvalue() == by_rich.getvalue()


def test_cells_keep_their_colours() -> None:
    def fill(table: Table) -> None:
        table.add_column("#", style="dim")
        table.add_row(Text("bad", "red"))

    stream = io.StringIO()
    Page(console_for(stream, "always")).draw(fill)
    assert stream.getvalue() == "\x1b[2m#  \x1b[0m\n\x1b[2;31mbad\x1b[0m\n"


def test_addresses_are_no_emoji() -> None:
    stream = io.StringIO()
    console_for(stream, "never").print("2001:a:b::1")
    assert stream.getvalue() == "2001:a:b::1\n"


def test_left_out_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    page, stream = page_of(80, monkeypatch)
    page.more(0, "flow")
    page.more(2, "flow")
    assert stream.getvalue() == "  ... 2 flows not shown (--top)\n"


def test_warnings_are_bounded():
    stream = io.StringIO()
    Page(console_for(stream, "never")).warn(f"warning {i}" for i in range(1000))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 21
    assert "980 warnings not shown: --format json has all" in lines[-1]
