"""HTML reports of real commands, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
from browser import Browser, browser
from captures import data
from factories import Pcapng
from html_checks import checked
from waiting import until

from rocescope import cli

from .test_hostile import TIME_NS, packet

FABRIC = "leaf-spine:leaves=2,spines=4,hosts=4"
MARKUP = "\"><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)><a href='"
COMMANDS = {
    "analyze": "analyze I03",
    "taps": "analyze R09",
    "hostile": "analyze HOSTILE",
    "replay": f"replay --pattern permutation:qps=2 --fabric {FABRIC}",
    "packets": f"replay --pattern permutation:qps=1 --fabric {FABRIC} --packets -s ecmp -s jsq",
    "sweep": f"sweep --pattern random:qps=2 --fabric {FABRIC} --seeds 0:50 --production 3",
    "trace": f"trace I03 --fabric {FABRIC} --map order",
    "aggregate": "aggregate --fabric leaf-spine:leaves=1,spines=1,hosts=4,rate=100G"
    " --jobs count=1,workers=3,model=comm,scale=0.01 -s atp -s ring",
    "compare": "compare I03 HOSTILE",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of each command."""
    folder = tmp_path_factory.mktemp("reports")
    many = Pcapng().section(comment=f"owner: QP 0x000012 at 11.0.0.1: pid 7 {MARKUP}, rank 3")
    many.interface(name=MARKUP).interface(name=f"{MARKUP}2")
    for i in range(30):
        many.enhanced(TIME_NS + i * 9_000, packet(i))
        if i % 4:
            many.enhanced(TIME_NS + i * 9_000 + 500, packet(i), interface=1)
    hostile = folder / f"{MARKUP.replace('/', '|')}.pcapng"
    hostile.write_bytes(many.bytes())
    taps = sorted((data("i03").parent / "leafspine/r09_packet_spray_h1").glob("*.pcap.gz"))
    words = {"I03": [data("i03")], "R09": taps, "HOSTILE": [hostile]}
    made = {}
    for name, command in COMMANDS.items():
        made[name] = folder / f"{name}.html"
        given = [str(one) for word in command.split() for one in words.get(word, [word])]
        assert cli.run([*given, "-o", str(made[name])]) == 0, name
    return made


@pytest.fixture(scope="module")
def chromium(
    need_tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    need_tool("chromium")
    with browser(need_tool("chromedriver"), tmp_path_factory.mktemp("chromium")) as session:
        yield session


@pytest.fixture(scope="module")
def axe(unavailable: Callable[[str], object]) -> str:
    """The script of axe-core."""
    try:
        return (resources.files("axe_core_python") / "axe.min.js").read_text()
    except ModuleNotFoundError:
        unavailable("needs axe-core-python: pip install axe-core-python")
        raise


@pytest.mark.parametrize("name", list(COMMANDS))
def test_reports_are_whole_and_run_nothing(reports: dict[str, Path], name: str) -> None:
    page = reports[name].read_bytes()
    checked(page)
    assert b"http://127.0.0.1:9" not in page or name in ("hostile", "compare")


@pytest.mark.parametrize("name", list(COMMANDS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_them(
    reports: dict[str, Path], chromium: Browser, axe: str, name: str, scheme: str
) -> None:
    """No dialog, no request, no message on the console; axe-core finds nothing to improve."""
    chromium.requests(), chromium.log("browser")
    chromium.look(390 if scheme == "dark" else 1280, 900, scheme)
    chromium.open(reports[name])
    assert chromium.dialog() is None
    assert set(chromium.requests()) == {reports[name].as_uri()}
    assert chromium.log("browser") == []
    chromium.run(f"{axe}; document.querySelectorAll('details').forEach(one => one.open = true);"
                 "arguments[0]()")  # fmt: skip
    found = chromium.run("const done = arguments[0]; axe.run().then(r => done(r.violations.map("
                         "v => [v.id, v.nodes.length, v.nodes[0].html])))")  # fmt: skip
    assert found == []
    wide = chromium.run("arguments[0](document.documentElement.scrollWidth - innerWidth)")
    assert wide <= 0, "the page itself scrolls sideways"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_fabric_and_the_time_are_at_the_top(
    reports: dict[str, Path], chromium: Browser, width: int
) -> None:
    """Both pictures are wide enough to be read, and mark the lossy link."""
    chromium.look(width, 900, "light")
    chromium.open(reports["taps"])
    titles = chromium.run(
        "arguments[0]([...document.querySelectorAll('h2, svg > title')].map(e => e.textContent))"
    )
    assert titles[:3] == ["Diagnosis", "Fabric as captured", "Traffic over time"]
    least = chromium.run(
        "arguments[0](Math.min(...[...document.querySelectorAll('svg.chart')].slice(0, 2)"
        ".map(e => e.getBoundingClientRect().width)))"
    )
    assert least >= 600, "text in the pictures is too small to read"
    first = chromium.run("arguments[0](document.querySelector('main p').textContent)")
    assert first == "captured 2026-11-21 12:36:04.357 to 12:36:08.400 UTC"
    cells = chromium.run("arguments[0](document.querySelectorAll('svg.chart .span.cell').length)")
    assert cells == 2


def test_a_report_is_printed(reports: dict[str, Path], chromium: Browser) -> None:
    chromium.open(reports["taps"])
    printed = chromium.pdf()
    assert printed.startswith(b"%PDF") and 2 <= printed.count(b"/Type /Page\n") <= 12


def test_paper_shows_what_is_folded_on_the_screen(
    reports: dict[str, Path], chromium: Browser
) -> None:
    """Numbers of charts; queue pairs and frames of findings."""
    folded = (
        "arguments[0]([...document.querySelectorAll('details')].map("
        "one => one.lastElementChild.checkVisibility({contentVisibilityAuto: true})))"
    )
    chromium.open(reports["taps"])
    chromium.look(1280, 900, "light")
    screen = chromium.run(folded)
    assert len(screen) > 3 and not any(screen)
    chromium.paper()
    until(lambda: all(chromium.run(folded)))  # the browser lays the page out on its own time


def test_the_browser_would_notice(chromium: Browser, axe: str, tmp_path: Path) -> None:
    """A page that does all that reports must not do."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<title>x</title><img src=http://127.0.0.1:9/x><script>console.error('no')</script>"
    )
    chromium.open(page)
    assert "http://127.0.0.1:9/x" in chromium.requests()
    assert any("no" in entry["message"] for entry in chromium.log("browser"))
    found = chromium.run(f"{axe}; const done = arguments[0]; axe.run().then(r => done(r.violations"
                         ".map(v => v.id)))")  # fmt: skip
    assert "image-alt" in found
    chromium.run("setTimeout(() => alert(1), 10); arguments[0]()")
    until(chromium.dialog)
    chromium.accept()
