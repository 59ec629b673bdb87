"""What every HTML report keeps to."""

from __future__ import annotations

from html.parser import HTMLParser

_ELEMENTS = set(
    "html head meta title style body header main footer section h1 h2 h3 p strong span ol ul li dl "
    "dt dd details summary figure figcaption div table thead tbody tr th td svg desc rect line "
    "polyline text".split()
)
_ATTRIBUTES = set(
    "lang charset http-equiv content name class tabindex role aria-label aria-labelledby id scope "
    "aria-hidden xmlns viewbox x y x1 y1 x2 y2 width height points fill-opacity text-anchor".split()
)
_EMPTY = {"meta", "rect", "line", "polyline"}


class _Checked(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _ELEMENTS, tag
        for name, value in attrs:
            assert name in _ATTRIBUTES, (tag, name)
            if name == "id":
                self.ids.append(str(value))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def checked(page: bytes) -> str:
    """The words of a page, which has only known elements and attributes, all closed."""
    assert len(page) < 2_000_000
    text = page.decode()
    assert all(line.isprintable() for line in text.splitlines())
    parser = _Checked()
    parser.feed(text)
    parser.close()
    assert not parser.open
    assert len(parser.ids) == len(set(parser.ids))
    return " ".join("".join(parser.words).split())
