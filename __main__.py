"""`python -m rocescope`: the same as the `rocescope` command."""

from .cli import main

if __name__ == "__main__":
    main()
