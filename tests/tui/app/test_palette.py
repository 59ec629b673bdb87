"""The command palette: what a search finds, and that it runs."""

from __future__ import annotations

import pytest
from captures import data
from textual.command import CommandList
from tui_driver import drive, typed

I03 = [data("i03_write_reorder5_AtoB")]


def found(app):
    commands = app.screen.query_one(CommandList)
    return [str(commands.get_option_at_index(i).prompt) for i in range(commands.option_count)]


def searched(*keys, text, size=(80, 24)):
    return drive(I03, [*keys, "colon", typed(text)], size, found)


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [["9"], []], ids=["on its screen", "on another"])
def test_words_come_before_scattered_letters(keys):
    shown = searched(*keys, text="seed")
    assert {line.partition("  (")[0].strip() for line in shown[:4]} == {
        "Sweep many hash seeds",
        "Run the best seeds of the sweeps",
        "Run the worst seeds of the sweeps",
        "Set the seed that the switches use",
    }
    assert ("(9 d)" in shown[0]) is not bool(keys)  # another screen's keys say so


def test_words_in_any_order():
    assert searched("9", text="seeds best")[0].startswith("Run the best seeds")


@pytest.mark.thorough
def test_a_command_of_another_screen_goes_there():
    def look(app):
        app.view.replays.stop()
        return app.current_mode, app.view.replays.view.fabric

    mode, fabric = drive(I03, ["colon", typed("sweep many"), "enter"], look=look)
    assert mode == "replay" and fabric.startswith("leaf-spine:")
