"""The commands of `rocescope`, one module each; cli.py loads the one that is asked for."""
