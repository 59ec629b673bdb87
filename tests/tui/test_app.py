"""The command palette: what a search finds, and that it runs."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from importlib import import_module

import msgspec
import numpy as np
import pytest
from captures import data
from factories import pcap_bytes, some_frames
from textual import events
from textual.command import CommandList
from textual.widgets import Input
from tui_driver import drive, each, settled, text_of, typed

from rocescope.tui.actions import ACTIONS, SCREENS
from rocescope.tui.app import RocescopeApp
from rocescope.tui.grid import Grid
from rocescope.tui.screens import base
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey
from rocescope.tui.settings import Settings

# The command palette: what a search finds, and that it runs.

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


# The app driven by keys: every screen, every action, and what must not break it.

APP_I03 = [data("i03_write_reorder5_AtoB")]
READY = [name for _, name, _ in SCREENS]
NUMBERS = [key for key, _, _ in SCREENS]


def screen(app):
    return "\n".join(text_of(app))


def test_the_first_screen_answers_first():
    lines = drive(APP_I03, look=text_of)
    assert "i03_write_reorder5" in lines[0] and "paths inferred" in lines[0]
    assert "No flow sprays: each of 4 flows uses one source port" in lines[2]
    assert sum("10.0.0.1" in line for line in lines) == 4  # the other four only acknowledge


def test_one_cursor_through_all_screens():
    seen = []
    drive(
        APP_I03,
        ["j", "j", lambda a: seen.append(a.view.session.selected), "4", "5", "7"],
        look=lambda app: seen.append(app.view.session.selected),
    )
    assert seen[0] == seen[1]
    assert "0x00002c" in screen_of_flow(seen[0])


def screen_of_flow(key: FlowKey) -> str:
    return f"0x{key.qp:06x}"


def test_enter_goes_deeper_and_escape_comes_back():
    modes = []
    note = lambda app: modes.append(app.current_mode)  # noqa: E731
    drive(
        APP_I03, ["4", "enter", note, "enter", note, "escape", note, "escape", note, "escape", note]
    )
    assert modes == ["reorder", "packets", "reorder", "paths", "qps"]


def test_sorting_by_key_and_by_heading():
    def late(app):
        grid = app.screen.query_one("#flows")
        return [app.screen._order.tolist(), grid.sorted_by, grid.descending]

    (down, by, _), (up, _, descending) = each(APP_I03, ["s"], ["S"], look=late)
    assert by == "rate"
    assert up == down[::-1] and not descending


@pytest.mark.thorough
def test_filter_prompt_completes_and_explains():
    def explained(app):
        return str(app.screen.query_one("#prompt-title").render())

    texts = ("la", "late>x", "late>3", "cnp or psn==3")
    said = each(APP_I03, ["slash"], *([typed(text)] for text in texts), look=explained)[1:]
    for text, known in zip(said, ("late", "takes a number", "filters flows", "again"), strict=True):
        assert known in text
    shown = drive(
        APP_I03,
        ["slash", typed("lat"), "tab", "greater_than_sign", "5", "percent_sign", "enter"],
        look=lambda app: (app.view.visible_count, app.view.session.filter_text),
    )
    assert shown == (2, "late >5%")


def test_a_wrong_filter_stays_in_the_prompt():
    lines = drive(APP_I03, ["slash", typed("late>x"), "enter"], look=text_of)
    assert any("takes a number" in line for line in lines)


def test_acknowledging_flows_on_request():
    assert drive(APP_I03, ["a"], look=lambda app: app.view.visible_count) == 8


@pytest.mark.thorough
def test_freeze_holds_the_screen():
    def look(app):
        before = app.view.snapshot
        app.view.session.set_filter("")
        return app.view.frozen, before is app.view.snapshot, "frozen" in text_of(app)[0]

    assert drive(APP_I03, ["space"], look=look) == (True, True, True)
    assert drive(APP_I03, ["space", "space"], look=lambda app: app.view.frozen) is False


@pytest.mark.thorough
def test_time_window_keys():
    def packets(app):
        return app.view.snapshot.source.packets, app.view.session.window

    seen = each(APP_I03, [], ["{"], ["}"], ["{", "]"], look=packets)
    (everything, none), (half, window), (back, gone), (later, moved) = seen
    assert none is None and gone is None and back == everything
    assert 0 < half < everything and 0 < later < everything
    assert moved[1] - moved[0] == window[1] - window[0] and moved[0] > window[0]


def test_marks_comments_and_comparison():
    shown = drive(APP_I03, ["m", "j", "m", "c"], look=screen)
    assert "0x00002d" in shown and "0x00002b" in shown and "Retransmitted" in shown
    lines = drive(APP_I03, ["semicolon", typed("slow one"), "enter"], look=text_of)
    assert any("; slow one" in line for line in lines)
    assert any(line[:2] == "▌*" for line in lines)


@pytest.mark.thorough
def test_packets_next_odd_and_odd_only():
    def row(app):
        screen = app.screen
        return screen.query_one("#packets").cursor, len(screen.packets), screen.packets

    seen = each(APP_I03, ["7"], ["n"], ["N"], ["l"], look=row)
    (first, total, packets), (second, *_), (back, *_), (cursor, odd, only) = seen
    assert packets.is_odd()[first] and second > first and back == first
    assert cursor == 0 and only.is_odd().all() and odd < total


@pytest.mark.thorough
def test_a_bucket_leads_to_its_packets():
    def shown(app):
        return app.screen.packets.extent.tolist(), text_of(app)[2]

    (extents, sentence), (everything, _) = each(
        APP_I03, ["5", "j", "j", "enter"], ["l"], look=shown
    )
    assert extents and all(4 <= extent <= 7 for extent in extents)
    assert "packets of extent 4-7 (l shows all)" in sentence
    assert len(everything) > len(extents)


@pytest.mark.thorough
def test_a_packet_for_wireshark(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    command = shlex.split(drive(APP_I03, ["7", "W"], look=lambda app: app.clipboard))
    assert command[:3] == ["tshark", "-r", str(APP_I03[0])] and command[4].startswith(
        "frame.number"
    )


@pytest.mark.thorough
def test_a_desktop_without_wireshark_names_the_package(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("shutil.which", lambda name: None)
    copied, told = drive(APP_I03, ["7", "W"], look=lambda app: (app.clipboard, toasts(app)))
    assert copied.startswith("tshark -r ")
    assert "Wireshark is not installed: install the package wireshark" in told


def test_one_psn_is_followed_over_taps_and_retransmissions():
    """From each packet to the next with its PSN, and from the last back to the first."""

    def place(app):
        row = app.screen.query_one("#packets", Grid).cursor
        rows = np.flatnonzero(app.screen.packets.table.psn == app.screen.packets.table.psn[row])
        return row, rows.tolist()

    taps = [data(f"i01_write_loss0.5_AtoB.at{tap}") for tap in "AB"]
    first, *others = each(taps, ["7"], *[["equals_sign"]] * 6, look=place)
    row, rows = first
    assert len(rows) > 1
    for seen, same in others:
        row = rows[(rows.index(row) + 1) % len(rows)]
        assert (seen, same) == (row, rows)


@pytest.mark.thorough
def test_one_pane_and_all_panes():
    def panes(app):
        return {w.id for w in app.screen.query("#packets, #panes, #why") if w.region.area}

    one, all_of_them = each(APP_I03, ["7", "plus"], ["underscore"], look=panes)
    assert one == {"packets"} and all_of_them == {"packets", "panes", "why"}


@pytest.mark.thorough
def test_reading_is_stopped_and_begun_again():
    def packets(app):
        return app.view.snapshot.source.packets

    before, after = each(APP_I03, [], ["X"], look=packets)
    assert before == after > 0
    assert drive(APP_I03, ["X", "X"], look=lambda app: app.view.session.running) is False


def toasts(app):
    return [note.message for note in app._notifications]


def test_interfaces_that_are_not_there_become_one_line():
    (said,) = drive(APP_I03, ["ctrl+n", typed("nosuchif0 > x.pcapng"), "enter"], look=toasts)
    assert "nosuchif0" in said or "root" in said


def test_replay_from_inside_to_the_flows_of_a_link():
    def replayed(app):
        app.view.replays.set_fabric("leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns")
        app.view.replays.production = 7
        app.view.replays.run(["ecmp", "static"])
        app.view.replays.wait(300)
        app.view.replays.sweep(["crc32"], 100)
        app.view.replays.wait(300)
        app.screen.redraw()

    modes = []
    taps = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
    first, links, _, paths, packets = each(
        taps,
        ["9", replayed],
        ["0", "tab", "j"],
        ["k", "enter", "enter", lambda app: modes.append(app.current_mode)],
        ["4", "p"],
        ["2", "7"],
        look=text_of,
    )
    lines = first
    assert any("seed 7 of crc32" in line and "worse than" in line for line in lines)
    assert any("ideal random hashing" in line for line in lines) and any(
        "▲" in line for line in lines
    )
    assert any("FLOWS ON spine3>leaf2" in line for line in links)
    assert modes == ["packets"]
    assert "paths predicted" in paths[0] and "Path leaf1>spine" in paths[2]
    assert any("linux(its policy's fields, seed 0x" in line for line in packets)


@pytest.mark.thorough
def test_dissection_and_bytes(need_tool):
    need_tool("tshark")
    shown = drive(APP_I03, ["7", "tab", "j", "j"], look=screen)
    assert "InfiniBand" in shown and "Base Transport Header" in shown
    assert "0000" in shown and "[" in shown


@pytest.mark.thorough
def test_an_event_leads_to_its_packet():
    def look(app):
        packets = app.screen.packets
        number = int(packets.table.frame_number[app.screen.query_one("#packets").cursor])
        return number, app.view.snapshot.events[3].frame_number

    got, wanted = drive(APP_I03, ["8", "j", "j", "j", "enter"], look=look)
    assert got == wanted


@pytest.mark.thorough
def test_keys_of_a_burst_are_for_nobody_while_a_prompt_leaves():
    def burst(*keys):
        def send(app):
            for key in keys:
                app.post_message(events.Key(key, "\r" if key == "enter" else key[:1]))

        return send

    keys = ["semicolon", typed("x"), burst("enter", "enter"), "ctrl+o", burst("a", "a")]
    keys += ["ctrl+o", burst("escape", "escape"), "question_mark", burst("escape", "escape"), "6"]
    mode, comments = drive(
        APP_I03,
        keys,
        look=lambda app: (app.current_mode, list(app.view.session.marks.flows.values())),
    )
    assert (mode, comments) == ("recovery", ["x"])


@pytest.mark.thorough
def test_what_a_filter_leaves_is_shown_with_its_own_record():
    def look(app):
        flow = app.view.snapshot.find(app.view.session.selected)
        told = app.view.record.retransmitted_packets, app.view.record.dest_qp
        return told, int(app.view.snapshot.flows.retransmitted[flow]), screen(app).splitlines()[2]

    for before in (["j", "j"], ["G"], ["j", "5"]):
        to_filter = [*before, "slash", typed("qp == 0x2c"), "enter"]
        (told, resent, _), (later, resent_later, sentence) = each(
            APP_I03, to_filter, ["6"], look=look
        )
        assert told == later == (resent, 0x2C) and resent == resent_later
        assert "0x00002c" in sentence and f"{resent:,} packets retransmitted" in sentence


@pytest.mark.thorough
def test_the_first_sentence_tells_all_troubles():
    assert "443 marked CE" in drive([data("i13_write_ecn_ce2_AtoB")], look=screen)
    shown = drive([data("i04_write_duplicate1_AtoB")], look=screen)
    assert "201 duplicated by the network" in " ".join(shown.split())
    taps = [data(f"leafspine/r09_packet_spray_h1/leaf2-spine{n}") for n in (1, 2, 3, 4)]
    shown = drive(taps, ["p"], size=(200, 40), look=screen)
    assert "4 of 36 flows spray over several taps (p), each with one source port;" in shown
    assert "No flow sprays" not in shown
    assert "14 records are out of time order" in drive(APP_I03, ["D"], look=screen)


@pytest.mark.thorough
def test_a_mark_is_no_comment():
    def mark(app):
        grid = app.screen.query_one("#packets")
        return list(app.view.session.marks.packets.values()), grid._mark(grid.cursor)

    keys = ["7", "m"], ["semicolon", *"odd", "enter"], ["n", "semicolon", typed("odd"), "enter"]
    assert each(APP_I03, *keys, look=mark) == [
        (["marked"], "*"),
        (["odd"], ";"),
        (["odd", "odd"], ";"),
    ]


def test_without_a_terminal_there_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "rocescope", "tui", str(APP_I03[0])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and "needs a terminal" in done.stderr


def test_help_lists_every_action_of_the_screen():
    shown = drive(APP_I03, ["question_mark"], (100, 70), look=screen)
    for action in ACTIONS:
        if not action.screens or "qps" in action.screens:
            assert action.help in shown, action.name


def test_palette_runs_actions():
    assert (
        drive(APP_I03, ["colon", typed("freeze"), "enter"], look=lambda app: app.view.frozen)
        is True
    )


@pytest.mark.thorough
def test_jump_mode():
    focused = drive(APP_I03, ["7", "ctrl+o", "s"], look=lambda app: app.focused.id)
    assert focused == "fields"


def test_open_another_file():
    other = str(data("c05_rc_atomic_fetchadd"))
    name = drive(
        APP_I03, ["ctrl+f", typed(other), "enter"], look=lambda app: app.view.snapshot.source.name
    )
    assert name == "c05_rc_atomic_fetchadd.atB.pcap"


def test_file_names_are_completed(tmp_path):
    for name in ("leaf1-spine1.pcap", "leaf1-spine2.pcap", "other.pcap"):
        (tmp_path / name).touch()
    (tmp_path / "captures").mkdir()

    def line(app):
        return app.screen.query_one(Input).value

    texts = f"a.pcap {tmp_path}/le", f"{tmp_path}/c", "/nowhere/x"
    assert each(APP_I03, ["ctrl+f"], *([typed(text), "tab"] for text in texts), look=line)[1:] == [
        f"a.pcap {tmp_path}/leaf1-spine",
        f"{tmp_path}/captures/",
        "/nowhere/x",
    ]


def test_keys_and_theme_from_the_settings():
    settings = Settings(theme="nord", keys={"freeze": "f"})
    frozen, theme = drive(
        APP_I03, ["f"], settings=settings, look=lambda a: (a.view.frozen, a.theme)
    )
    assert (frozen, theme) == (True, "nord")


@pytest.mark.thorough
def test_columns_from_the_settings():
    settings = Settings(columns={"qps": ["qp", "late", "activity"]})
    lines = drive(APP_I03, [], (80, 24), text_of, settings=settings)
    assert lines[5].split() == ["▼", "QP", "LATE", "%", "BYTES", "OVER", "TIME"]
    assert "8.63" in "".join(lines[6:10])


def test_mouse():
    async def run():
        app = RocescopeApp(Session.open([str(p) for p in APP_I03]))
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(app, pilot)
            await pilot.press("2")
            await settled(app, pilot)
            await pilot.click("#flows", offset=(30, 3))
            row = app.screen.query_one("#flows", Grid).cursor
            await pilot.click("#flows", offset=(text_of(app)[4].index("PACKETS"), 0))
            by = app.screen.query_one("#flows", Grid).sorted_by
            await pilot.click("#tabs", offset=(text_of(app)[1].index("Paths"), 0))
            await settled(app, pilot)
            return row, by, app.current_mode

    row, by, mode = asyncio.run(run())
    assert row == 2
    assert by == "packets"
    assert mode == "paths"


ALL_KEYS = ["j", "enter", "escape", "m", "s", "v", "r", "o", "p", "n", "l", "a", "G", "k"]


@pytest.mark.thorough
def test_nothing_panics_without_packets(tmp_path):
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(pcap_bytes(some_frames(3)))
    keys = [key for number in NUMBERS for key in (number, *ALL_KEYS)]
    lines = drive([empty], [*keys, "2"], (80, 24), text_of)
    assert "No RoCE packet in 3 frames" in lines[2]


@pytest.mark.thorough
def test_nothing_panics_when_the_file_is_not_there():
    keys = [key for number in NUMBERS for key in (number, *ALL_KEYS)]
    lines = drive(["/nowhere/x.pcap"], keys, (80, 24), text_of)
    assert "no such file" in lines[0]


@pytest.mark.thorough
def test_a_capture_that_vanishes_while_its_packets_are_shown(tmp_path):
    copy = tmp_path / "copy.pcap"
    copy.write_bytes(data("c05_rc_atomic_fetchadd").read_bytes())
    lines = drive([copy], ["7", lambda _: copy.unlink(), "j"], look=text_of)
    assert any("cannot read the capture" in line for line in lines)


def test_resizing_while_running():
    async def run():
        app = RocescopeApp(Session.open([str(p) for p in APP_I03]))
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(app, pilot)
            for size in ((20, 5), (300, 100), (80, 24), (1, 1), (120, 40)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
            await settled(app, pilot)
            return text_of(app)

    lines = asyncio.run(run())
    assert "QP" in "".join(lines)


def test_settings_are_plain_data():
    assert msgspec.to_builtins(Settings())["refresh_hz"] == 4.0


def test_every_screen_is_where_the_table_says():
    for name, place in base.SCREENS.items():
        module, screen = place.split(".")
        assert getattr(import_module(f"rocescope.tui.screens.{module}"), screen).name_ == name
