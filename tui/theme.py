"""The colours: blues and greys, one warm tone for problems."""

from textual.theme import Theme

LIGHT = Theme(
    name="rocescope-light",
    primary="#1f6fb2",
    secondary="#2f8f6b",
    accent="#8a5a00",
    warning="#a85b00",
    error="#b3202c",
    success="#2e7d32",
    foreground="#1c232b",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#dde4eb",
    dark=False,
)
THEME = Theme(
    name="rocescope",
    primary="#5aa9e6",
    secondary="#7fc8a9",
    accent="#f2c572",
    warning="#f0a35e",
    error="#ef5f6b",
    success="#7bc47f",
    foreground="#d7dde5",
    background="#10141a",
    surface="#161b22",
    panel="#222b36",
    dark=True,
)
