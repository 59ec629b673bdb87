"""The only way of a text into a page: it cannot become markup."""

from __future__ import annotations

import html

from ...analyzer.words import printable

LONGEST = 1_000
"""Characters of one text; names from captures may be longer than any reader reads."""


def escape(text: object) -> str:
    """A text for the content of an element or for an attribute in double quotes.

    Characters that steer a terminal or the direction of text become `?`; a text of more than
    LONGEST characters is cut.
    """
    shown = printable(str(text))
    if len(shown) > LONGEST:
        shown = f"{shown[:LONGEST]}…"
    return html.escape(shown, quote=True)
