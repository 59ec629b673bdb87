"""`python -m rocescope`: the same as the `rocescope` command."""

from .cli import main

main()
