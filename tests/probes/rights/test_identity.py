"""The user that a capture becomes, and where it may write."""

import os
import subprocess
import sys

import pytest

from rocescope.probes.rights.identity import unprivileged


def test_the_user_of_sudo_or_nobody():
    assert unprivileged({"SUDO_UID": "1234", "SUDO_GID": "99"}) == (1234, 99)
    nobody = unprivileged({})
    assert nobody.uid > 0 and nobody.gid > 0
    for wrong in ({"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "x", "SUDO_GID": "5"}):
        assert unprivileged(wrong) == nobody


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("mode", "owner", "expected"),
    [
        (0o700, 0, False),
        (0o755, 0, False),
        (0o700, 1234, True),
        (0o777, 0, True),
        (0o1777, 0, False),  # files of root there could not be replaced
        (0o1777, 1234, True),
    ],
)
def test_where_it_may_write(tmp_path, mode, owner, expected):
    os.chmod(tmp_path, mode)
    os.chown(tmp_path, owner, 0)
    code = f"""
import os
from pathlib import Path
from rocescope.probes.rights.identity import Identity, can_write
before = os.getresuid(), os.getresgid(), os.getgroups()
os.chdir({str(tmp_path)!r})
print(can_write(Identity(1234, 1234), Path(".")))
assert before == (os.getresuid(), os.getresgid(), os.getgroups())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{expected}\n", done.stderr
