"""The screen of in-network aggregation, on a capture and on jobs that are asked for."""

from __future__ import annotations

from captures import data
from tui_driver import each, text_of

CAPTURE = [data("c16_rc_write_bidir")]
WORDS = (
    "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=1us order --memory 40 --memory 256 "
    "--jobs count=2,workers=3,fragments=200,window=32 --scheme atp --scheme none --scheme tree"
)


def run(app):
    found = app.view.aggregations
    found.set_words(WORDS)
    found.run()
    found.wait()
    app.screen.redraw()


def test_schemes_and_the_jobs_of_the_one_under_the_cursor():
    empty, first, last = each(
        CAPTURE, ["A"], [run], ["down", "down", "down"], look=text_of, size=(80, 24)
    )
    assert "No scheme has run yet" in empty[2]
    assert any("r  sums the gradients" in line for line in empty)
    assert "completes jobs first" in first[2] and "tree all-reduce takes" in " ".join(first[2:4])
    rows = [line.strip("▌ ").split()[:2] for line in first]
    for row in (["atp", "40"], ["atp", "256"], ["none", "-"], ["tree", "-"]):
        assert row in rows
    assert any(line.strip().startswith("slots used") for line in first)
    assert any("job2 comm: 3 workers" in line for line in first)
    assert any("the division of compute time" in line for line in first)
    assert not any("ring and tree" in line for line in first)
    assert any(line.strip() == "tree" for line in last)
    assert any("assumed: ring and tree" in line for line in last)
    assert not any(line.strip().startswith("slots used") for line in last)


def test_a_mistake_in_the_prompt_is_told():
    def mistake(app):
        assert not app.screen._set("no-such-fabric")

    lines = each(CAPTURE, ["A"], [mistake], look=text_of, size=(100, 30))[-1]
    assert any("No scheme has run yet" in line for line in lines)
