"""Parts of a report on an HTML page."""

from __future__ import annotations

from html_checks import checked
from rich.table import Table
from rich.text import Text

from rocescope.report.html.page import LARGEST, POLICY, HtmlPage
from rocescope.report.terminal.page import folded, numbers, texts


def test_sections_paragraphs_and_tables() -> None:
    page = HtmlPage("a <b>")
    page.section("Loss & co", "One packet.", good=True)
    page.warn(["cut <short>"])

    def fill(table: Table) -> None:
        texts(table, "flow")
        numbers(table, "packets", "empty")
        folded(table, "path")
        table.add_row("a>b", Text("● 3", "bold red"), "-", "x")
        table.add_row("c", "?", "-", Text("▁▂█ ++", "cyan"))

    page.draw(fill, drop=True)
    page.more(3, "flow")
    page.more(0, "flow")
    document = page.document()
    words = checked(document)
    assert "Loss & co ✓One packet.▲ cut <short>" in words
    assert "flowpacketspatha>b● 3xc?▁▂█ ++" in words
    assert "… 3 flows not shown here" in words
    text = document.decode()
    assert '<td class="n bad">● 3</td>' in text
    assert '<span class="bars" aria-hidden="true">▁▂█ ++</span>' in text
    assert f'content="{POLICY}"' in text and "empty" not in words
    assert page.unknowns


def test_a_page_stays_below_its_limit_and_says_so() -> None:
    page = HtmlPage("much")
    for number in range(3):
        page.section(f"Part {number}")
        for _ in range(900):
            page.say("&" * 400)
    document = page.document()
    assert LARGEST < len(document) < 2_000_000
    words = checked(document)
    assert "parts of this report not shown: it is limited to 2 MB" in words
    assert "Part 0" in words


def test_what_follows_a_heading_that_does_not_fit_is_left_out_with_it() -> None:
    page = HtmlPage("much")
    page.section("Fits")
    page.add(f"<p>{'x' * (LARGEST - 150)}</p>")
    page.section("A heading that is too long " * 5)
    page.say("of it")
    page.section("B")
    page.say("its own")
    words = checked(page.document())
    assert "of it" not in words and "Bits own" in words and "2 parts" in words
