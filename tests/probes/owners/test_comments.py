"""Owners of queue pairs as comments of a capture file, read by capinfos and our own reader."""

import os
import re
import signal
import subprocess

import pytest
from jobs import Job
from network import Network, roce_frames
from waiting import until

from ...commands.live.test_capture import Capturing, read

pytestmark = pytest.mark.usefixtures("root", "libibverbs")


def comments(path, capinfos):
    text = subprocess.run([capinfos, str(path)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(owner: .*)", text)


@pytest.mark.thorough
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_owners_learned_during_the_capture_are_in_the_file(tmp_path, need_tool, ending):
    capinfos, path = need_tool("capinfos"), tmp_path / "out.pcapng"
    job = Job(5)
    try:
        with Network(f"rs-comment-{os.getpid()}") as net:
            capture = Capturing(net, "left", "-w", str(path))
            until(path.exists)
            net.send(roce_frames(20))
            job.connect(0x21, 0x51)
            if ending == signal.SIGKILL:
                until(lambda: b"owner: " in path.read_bytes())
            written = path.stat().st_size
            net.send(roce_frames(30))
            if ending == signal.SIGKILL:
                until(lambda: path.stat().st_size > written + 30 * 96)
            assert capture.end(ending) == (0 if ending == signal.SIGINT else -ending)
    finally:
        job.kill()
    (comment,) = comments(path, capinfos)
    head = "owner: QP 0x000021 (rxe_test) to QP 0x000051 at 10.0.0.2: pid "
    assert comment.startswith(f"{head}{job.pid} python")
    assert comment.endswith(", rank 5")
    # Sections do not disturb: the same interfaces, every packet once.
    frames, taps = read([path])
    assert frames == [frame[:96] for frame in roce_frames(20) + roce_frames(30)]
    assert [(tap.frames, tap.dropped) for tap in taps.items][1][0] == 50
