"""Every key is a named action, declared once here.

From this table come the key bindings, the footer, the help, the command palette,
the names for the key map in the configuration file, and docs/tui.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding, BindingType

SCREENS = (
    ("1", "diagnosis", "Diagnosis"),
    ("2", "qps", "QPs"),
    ("3", "hops", "Hops"),
    ("4", "paths", "Paths"),
    ("5", "reorder", "Reorder"),
    ("6", "recovery", "Recovery"),
    ("7", "packets", "Packets"),
    ("8", "events", "Events"),
    ("9", "replay", "Replay"),
    ("0", "fabric", "Fabric"),
    ("D", "doctor", "Doctor"),
)
"""Keys, names and titles of the screens in the line of screens."""
FURTHER = (
    ("J", "jobs", "Jobs"),
    ("K", "ranks", "Ranks"),
    ("A", "aggregation", "Aggregation"),
)
"""Screens that this line names only while they are shown: it has no room for more."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a key does."""

    name: str
    keys: str
    """Comma separated, as in the key map of the configuration file."""
    label: str
    """A word or two for the footer."""
    help: str
    screens: tuple[str, ...] = ()
    """Screens on which it works; empty: all."""
    footer: bool = False

    @property
    def target(self) -> str:
        """What Textual calls."""
        return f"screen.{self.name}" if self.screens else f"app.{self.name}"


def _go(key: str, name: str, title: str) -> Action:
    keys = f"{key},upper_{key.lower()}" if key.isupper() else key
    return Action(f"go('{name}')", keys, title, f"Go to the screen {title}")


_FLOWS = ("qps", "paths")
_OF_A_FLOW = ("qps", "paths", "reorder", "recovery", "packets")

_ON_A_FABRIC = ("replay", "aggregation")
_WITH_PANES = ("reorder", "recovery", "packets", "replay", "fabric")

ACTIONS: tuple[Action, ...] = (
    Action(
        "deeper",
        "enter",
        "deeper",
        "Open the row under the cursor",
        (
            "diagnosis",
            "evidence",
            "qps",
            "hops",
            "paths",
            "reorder",
            "recovery",
            "events",
            "replay",
            "fabric",
            "ranks",
            "jobs",
        ),
        True,
    ),
    Action("back", "escape", "back", "Go back; then clear the filter; then return to live"),
    Action("filter", "slash", "filter", "Filter flows or packets", footer=True),
    Action("sort", "s", "sort", "Sort by the next column", ("qps",), True),
    Action("sort_back", "less_than_sign", "sort back", "Sort by the previous column", ("qps",)),
    Action("reverse", "S,upper_s", "reverse", "Reverse the order", ("qps",)),
    Action("everything", "a", "all flows", "Show or hide flows that carry no data", _FLOWS),
    Action(
        "path_key",
        "p",
        "path key",
        "Next path key: port, tap, segments, plane, predicted link",
        ("qps", "paths"),
        True,
    ),
    Action(
        "measure",
        "v",
        "measure",
        "Next measure of the cells: bytes, packets, CE marks, late packets; loss, delay, share",
        ("diagnosis", "fabric", "paths", "hops"),
        True,
    ),
    Action("matrix", "v", "matrix", "The matrix of ranks in place of the list", ("ranks",), True),
    Action("next_job", "n", "next job", "The steps of the next training job", ("jobs",), True),
    Action("previous_job", "N,upper_n", "previous job", "The training job before", ("jobs",)),
    Action("rows", "r", "rows", "One row per QP, host pair or host", ("paths",), True),
    Action("view", "o", "view", "RFC 4737, RFC 5236 or recovery view", ("reorder",), True),
    Action("next_late", "n", "next late", "Next packet that is not in order", ("packets",), True),
    Action(
        "previous_late",
        "N,upper_n",
        "previous late",
        "Previous packet that is not in order",
        ("packets",),
    ),
    Action(
        "odd_only", "l", "late only", "Show only packets that are not in order", ("packets",), True
    ),
    Action(
        "same_psn",
        "equals_sign",
        "same PSN",
        "Next packet with this PSN: at the other tap, or its retransmission",
        ("packets",),
        True,
    ),
    Action(
        "wireshark",
        "W,upper_w",
        "wireshark",
        "Open the packet in Wireshark, or copy a tshark command",
        ("packets",),
        True,
    ),
    Action(
        "run",
        "r",
        "run",
        "Run every strategy, or every scheme of aggregation, on the fabric",
        _ON_A_FABRIC,
        True,
    ),
    Action(
        "run_packets",
        "R,upper_r",
        "packets",
        "Replay every strategy packet by packet",
        ("replay",),
        True,
    ),
    Action("draw_seeds", "d", "sweep seeds", "Sweep many hash seeds", ("replay",), True),
    Action("fabric", "f", "fabric", "Set fabric, host mapping and options", _ON_A_FABRIC, True),
    Action("pick", "p", "pick", "Pick a strategy to compare with on screen 0", ("replay",), True),
    Action("best_seed", "b", "best seed", "Run the best seeds of the sweeps", ("replay",)),
    Action("worst_seed", "w", "worst seed", "Run the worst seeds of the sweeps", ("replay",)),
    Action("stop", "x", "stop", "Stop the replay", _ON_A_FABRIC),
    Action(
        "production", "P,upper_p", "seed in use", "Set the seed that the switches use", ("replay",)
    ),
    Action("mark", "m", "mark", "Mark the flow or packet", _OF_A_FLOW, True),
    Action("comment", "semicolon", "comment", "Write a comment on the flow or packet", _OF_A_FLOW),
    Action("compare", "c", "compare", "Compare the marked flows", ("qps", "paths")),
    Action("freeze", "space", "freeze", "Freeze the screen, not the capture", footer=True),
    Action("earlier", "left_square_bracket", "earlier", "Move the time window back"),
    Action("later", "right_square_bracket", "later", "Move the time window forward"),
    Action("shorter", "left_curly_bracket", "shorter", "Halve the time window"),
    Action("longer", "right_curly_bracket", "longer", "Double the time window"),
    Action("go_to_time", "t", "go to time", "Go to a time: seconds from the start, or time of day"),
    Action("times", "T,upper_t", "times", "Show times as seconds from the start, UTC or local"),
    Action("larger", "plus", "larger", "Show only the pane with the focus", _WITH_PANES),
    Action("smaller", "underscore", "smaller", "Show all panes again", _WITH_PANES),
    Action("export", "e", "export", "Save as pcapng, Parquet, JSON or HTML report", footer=True),
    Action("copy_filter", "y", "copy filter", "Copy the Wireshark filter of the flow"),
    Action("copy_command", "Y,upper_y", "copy command", "Copy the rocescope command line"),
    Action("open_file", "ctrl+f", "open", "Open a capture file"),
    Action("watch", "ctrl+n", "watch", "Capture on interfaces of this host, optionally to a file"),
    Action("halt", "X,upper_x", "stop", "Stop or restart the probes, or reading the capture"),
    Action("jump", "ctrl+o", "jump", "Go to a pane by its letter"),
    Action("command_palette", "colon,ctrl+p", "palette", "All commands by name"),
    Action("help", "question_mark", "help", "All keys", footer=True),
    Action("quit", "q", "quit", "Leave", footer=True),
    *(_go(*screen) for screen in SCREENS),
    Action(
        "go('jobs')",
        "J,upper_j",
        "jobs",
        "Go to the screen Jobs: steps of training jobs, and which rank is waited for",
    ),
    Action(
        "go('ranks')",
        "K,upper_k",
        "ranks",
        "Go to the screen Ranks: traffic of each pair of ranks, and who waits for whom",
    ),
    Action(
        "go('aggregation')",
        "A,upper_a",
        "in-network",
        "Go to the screen Aggregation: gradients summed in switches",
    ),
)


def actions_of(screen: str) -> list[Action]:
    """The actions of a screen, its own first."""
    of_screen = [a for a in ACTIONS if screen in a.screens]
    return of_screen + [a for a in ACTIONS if not a.screens]


def bindings(actions: list[Action]) -> list[BindingType]:
    """Key bindings; the action's name is what a key map refers to."""
    return [
        Binding(
            a.keys,
            a.target.partition(".")[2] if a.screens else a.target,
            a.label,
            show=a.footer,
            id=a.name,
        )
        for a in actions
    ]


def shown_key(action: Action) -> str:
    """The first key of an action, as printed."""
    first = action.keys.split(",")[0]
    named = {
        "slash": "/",
        "less_than_sign": "<",
        "semicolon": ";",
        "plus": "+",
        "equals_sign": "=",
        "underscore": "_",
        "colon": ":",
        "question_mark": "?",
        "left_square_bracket": "[",
        "right_square_bracket": "]",
        "left_curly_bracket": "{",
        "right_curly_bracket": "}",
        "escape": "esc",
    }
    return named.get(first, first.replace("ctrl+", "^"))


def keys_of(action: Action) -> str:
    """All keys of an action, as printed."""
    names = {k: shown_key(Action("", k, "", "")) for k in action.keys.split(",")}
    return " ".join(dict.fromkeys(n for k, n in names.items() if not k.startswith("upper_")))
