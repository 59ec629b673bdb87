"""The commands of `rocescope`, one module each; cli.py loads only the command that runs."""
