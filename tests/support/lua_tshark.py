"""tshark with rocescope's Lua file.

tshark 4.6 does not load one for root: in a user namespace without mappings root looks like another
user, and keeps its files.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import rocescope

LUA = Path(rocescope.__file__).parent / "report/wireshark/rocescope.lua"


def tshark(*words: str, lua: Path = LUA, **environment: str) -> list[str]:
    """The lines that it prints."""
    command = ["tshark", "-X", f"lua_script:{lua}", "-n", *words]
    if os.geteuid() == 0:
        command = ["unshare", "--user", *command]
    own = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, env=own)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()
