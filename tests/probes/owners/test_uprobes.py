"""Copies of libibverbs that processes use."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from jobs import FAKE
from waiting import until

from rocescope.analyzer.errors import CaptureError
from rocescope.probes import bpf
from rocescope.probes.owners import uprobes
from rocescope.probes.owners.uprobes import (
    CREATED,
    DESTROYED,
    EVENT,
    MODIFIED,
    SOURCE,
    Uprobes,
    all_libraries,
    file_key,
    mapped_libraries,
)
from rocescope.probes.program.compile import machine_code

# Copies of libibverbs that processes use.

MAPS = """\
7f0000000000-7f0000001000 r--p 00000000 08:01 11   /usr/lib/libc.so.6
7f0000001000-7f0000002000 r-xp 00000000 08:01 12   /opt/rdma/libibverbs.so.1.14
7f0000002000-7f0000003000 -w-p 00000000 08:01 13   /opt/other/libibverbs.so.1
7f0000003000-7f0000004000 r--p 00000000 08:01 12   /opt/rdma/libibverbs.so.1.14
"""


def process(proc, number, maps, *files):
    folder = proc / str(number)
    (folder / "root").mkdir(parents=True)
    (folder / "maps").write_text(maps)
    for file in files:
        place = folder / "root" / file.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    return folder / "root"


def test_containers_have_their_own_files(tmp_path):
    own = "/opt/rdma/libibverbs.so.1.14"
    roots = [process(tmp_path, number, MAPS, own) for number in (7, 8)]
    (tmp_path / "self").mkdir()
    assert sorted(mapped_libraries(str(tmp_path))) == [f"{root}{own}" for root in roots]


def test_one_file_under_two_names_counts_once(tmp_path):
    own = "/opt/rdma/libibverbs.so.1.14"
    first = process(tmp_path, 7, MAPS, own)
    second = process(tmp_path, 8, MAPS)
    place = second / own.lstrip("/")
    place.parent.mkdir(parents=True)
    os.link(f"{first}{own}", place)
    assert len(mapped_libraries(str(tmp_path))) == 1
    assert file_key(f"{first}{own}") == file_key(str(place))


def test_processes_that_end_and_files_that_are_gone(tmp_path):
    process(tmp_path, 7, MAPS)
    (tmp_path / "8").mkdir()
    assert mapped_libraries(str(tmp_path)) == []
    assert file_key(str(tmp_path / "none")) is None


def test_at_most_four_copies_of_a_process(tmp_path):
    many = [f"/opt/{i}/libibverbs.so.1" for i in range(9)]
    maps = "".join(f"7f0-7f1 r--p 0 08:01 {i}   {path}\n" for i, path in enumerate(many))
    process(tmp_path, 7, maps, *many)
    assert len(mapped_libraries(str(tmp_path))) == 4
    assert len(all_libraries(str(tmp_path))) >= 4


# Probes on the real functions of libibverbs, called by a process with crafted structs.

GID = "fe80000000000000505400fffe123456"
AV, PATH_MTU, RQ_PSN, SQ_PSN, DEST_QPN, STATE = 1 << 7, 1 << 8, 1 << 12, 1 << 16, 1 << 20, 1
TO_RTR = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN


def call(*commands):
    """Run the calls in a process of their own; (pid, answers)."""
    process = subprocess.Popen(
        [sys.executable, str(FAKE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate("".join(f"{json.dumps(c)}\n" for c in commands), timeout=300)
    assert process.returncode == 0
    return process.pid, [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def probes():
    with Uprobes() as probes:
        assert probes.libraries
        yield probes


@pytest.fixture
def events(probes):
    """Calls to what they tell."""
    probes.read()

    def run(*commands):
        pid, answers = call(*commands)
        return pid, answers, [event for event in probes.read() if event.pid == pid]

    return run


@pytest.mark.usefixtures("root", "libibverbs")
def test_life_of_a_queue_pair(events):
    before = time.time_ns()
    pid, answers, seen = events(
        ["create", 0x123456, {}],
        ["modify", 0x123456, STATE, {"state": 1}],
        [
            "modify",
            0x123456,
            TO_RTR,
            dict(
                state=2,
                path_mtu=5,
                rq_psn=0xABCDEF,
                remote_qp=0x654321,
                gid=GID,
                port=2,
                gid_index=3,
            ),
        ],
        ["modify", 0x123456, STATE | SQ_PSN, {"state": 3, "sq_psn": 0x123}],
        ["destroy", 0x123456, {}],
    )
    assert answers == [True, 0, 0, 0, 0]
    assert [e.kind for e in seen] == [CREATED, MODIFIED, MODIFIED, MODIFIED, DESTROYED]
    assert {(e.pid, e.command, e.local_qp) for e in seen} == {(pid, seen[0].command, 0x123456)}
    assert seen[0].command.startswith("python")
    assert len({e.qp for e in seen}) == 1
    assert {e.device for e in seen} == {"rxe_test"}
    assert [e.type for e in seen] == [2, 2, 2, 2, 0]
    rtr = seen[2]
    assert (rtr.mask, rtr.state, rtr.path_mtu) == (TO_RTR, 2, 5)
    assert (rtr.rq_psn, rtr.remote_qp) == (0xABCDEF, 0x654321)
    assert (rtr.remote_gid, rtr.port, rtr.gid_index) == (bytes.fromhex(GID), 2, 3)
    assert (seen[3].mask, seen[3].state, seen[3].sq_psn) == (STATE | SQ_PSN, 3, 0x123)
    times = [e.time_ns for e in seen]
    assert times == sorted(times) and before <= times[0] and times[-1] <= time.time_ns()


@pytest.mark.usefixtures("root", "libibverbs")
def test_calls_that_fail_tell_nothing(events):
    _, answers, seen = events(
        ["create", 5, {"fail": True}],
        ["create", 6, {}],
        ["modify", 6, STATE, {"state": 1, "fail": True}],
        ["destroy", 6, {"fail": True}],
    )
    assert answers == [False, True, 22, 16]
    assert [(e.kind, e.local_qp) for e in seen] == [(CREATED, 6)]


@pytest.mark.usefixtures("root", "libibverbs")
def test_the_old_version_of_a_function_is_told_once(events):
    _, answers, seen = events(
        ["create", 9, {}], ["old_modify", 9, STATE | DEST_QPN, {"state": 2, "remote_qp": 77}]
    )
    assert answers == [True, 0]
    assert [(e.kind, e.local_qp, e.remote_qp) for e in seen] == [(CREATED, 9, 0), (MODIFIED, 9, 77)]


@pytest.mark.usefixtures("root", "libibverbs")
def test_many_queue_pairs_and_none_lost(probes, events):
    commands = [["create", n, {}] for n in range(100, 2100)]
    _, _, seen = events(*commands)
    assert [e.local_qp for e in seen] == list(range(100, 2100))
    assert probes.lost == 0


@pytest.mark.usefixtures("root", "libibverbs")
def test_events_without_room_are_counted():
    with Uprobes(most_events=21) as probes:
        pid, _ = call(*[["create", n, {}] for n in range(100)])
        seen = [event for event in probes.read() if event.pid == pid]
        assert [e.local_qp for e in seen] == list(range(21))
        assert probes.lost == 100 - 21


def programs_of(pid):
    """Numbers of the BPF programs that a process holds, by itself or through links."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return {int(n) for t in texts for n in re.findall(r"^prog_id:\s*(\d+)", t, re.MULTILINE)}


def program_exists(number):
    try:
        os.close(bpf.call(13, struct.pack("3I", number, 0, 0)))  # BPF_PROG_GET_FD_BY_ID
    except FileNotFoundError:
        return False
    return True


@pytest.mark.usefixtures("root", "libibverbs")
def test_nothing_stays_when_the_process_is_killed():
    code = (
        "from rocescope.probes.owners.uprobes import Uprobes\n"
        "p = Uprobes(); print('up', flush=True); input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    programs = programs_of(process.pid)
    assert len(programs) >= 3 and all(map(program_exists, programs))
    process.kill()
    process.wait()
    until(lambda: not any(map(program_exists, programs)))


@pytest.mark.usefixtures("root", "libibverbs")
def test_two_at_once(probes, events):
    with Uprobes() as others:
        pid, _, seen = events(["create", 31, {}])
        assert [e.local_qp for e in seen] == [31]
        assert [e.local_qp for e in others.read() if e.pid == pid] == [31]
    _, _, seen = events(["create", 32, {}])  # the first continues when the second has ended
    assert [e.local_qp for e in seen] == [32]


@pytest.mark.usefixtures("root", "libibverbs")
def test_processes_at_once(probes, events):
    """Calls of several processes are told apart and none is lost while they are read."""
    jobs = [
        subprocess.Popen(
            [sys.executable, str(FAKE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(3)
    ]
    text = "".join(
        f'["create", {n}, {{}}]\n["modify", {n}, 1, {{"state": 1}}]\n["destroy", {n}, {{}}]\n'
        for n in range(400)
    )
    for job in jobs:
        threading.Thread(target=job.communicate, args=(text,)).start()
    seen = []
    while any(job.poll() is None for job in jobs):
        seen += probes.read()
        time.sleep(0.01)
    seen += probes.read()
    expected = [(kind, n) for n in range(400) for kind in (CREATED, MODIFIED, DESTROYED)]
    for job in jobs:
        assert [(e.kind, e.local_qp) for e in seen if e.pid == job.pid] == expected
    assert probes.lost == 0


@pytest.mark.usefixtures("root", "libibverbs")
@pytest.mark.thorough
@pytest.mark.parametrize("mounted", [True, False])
def test_with_and_without_tracefs(mounted, need_tool):
    unshare, mount = need_tool("unshare"), need_tool("mount")
    kind = "tracefs" if mounted else "tmpfs"
    code = f"""
import os, subprocess, sys
if not ({mounted} and os.path.ismount("/sys/kernel/tracing")):
    subprocess.run([{mount!r}, "-t", {kind!r}, "none", "/sys/kernel/tracing"], check=True)
assert os.path.exists("/sys/kernel/tracing/events") is {mounted}
from rocescope.probes.owners.uprobes import Uprobes
with Uprobes() as probes:
    job = subprocess.Popen([sys.executable, {str(FAKE)!r}], stdin=subprocess.PIPE, text=True)
    job.communicate('["create", 78, {{}}]')
    print([e.local_qp for e in probes.read() if e.pid == job.pid])
"""
    command = [unshare, "--mount", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[78]"], done.stderr
    assert done.stderr == ""


@pytest.mark.usefixtures("root", "libibverbs")
def test_without_privileges(need_tool):
    code = (
        "from rocescope.analyzer.errors import CaptureError\n"
        "from rocescope.probes.owners.uprobes import Uprobes\n"
        "try: Uprobes()\n"
        "except CaptureError as error: print(error)\n"
    )
    command = [need_tool("setpriv"), "--bounding-set=-all", "--inh-caps=-all"]
    done = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True)
    assert "no permission to watch queue pairs: run with sudo" in done.stdout
    assert done.stderr == ""


@pytest.mark.usefixtures("root", "libibverbs")
def test_new_copies_are_skipped_once_privileges_are_given_up(monkeypatch, tmp_path):
    copy = tmp_path / "libibverbs.so.1"
    with Uprobes() as watching:
        copy.write_bytes(Path(watching.libraries[0]).read_bytes())

        def refuse(*_):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(uprobes, "attach_uprobe", refuse)
        monkeypatch.setattr(uprobes, "all_libraries", lambda: [str(copy)])
        assert watching.refresh() == []
        assert watching.skipped == {str(copy): "permission denied"}
        pid, _ = call(["create", 0x77, {}])
        assert [event.local_qp for event in watching.read() if event.pid == pid] == [0x77]


@pytest.mark.usefixtures("root", "libibverbs")
def test_process_numbers_are_those_of_the_readers_namespace(need_tool):
    """In a container with process numbers of its own, events name processes by these."""
    unshare = need_tool("unshare")
    code = f"""
import json, os, subprocess, sys
from rocescope.probes.owners.uprobes import Uprobes
with Uprobes() as probes:
    job = subprocess.Popen([sys.executable, {str(FAKE)!r}], stdin=subprocess.PIPE, text=True)
    job.communicate('["create", 77, {{}}]')
    print(json.dumps([os.getpid(), job.pid, [e.pid for e in probes.read() if e.local_qp == 77]]))
"""
    command = [unshare, "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own, job, seen = json.loads(out.splitlines()[-1])
    assert (own, seen) == (1, [job])
    assert job < 1000


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_library_without_the_functions_is_named(tmp_path):
    other = "/lib/x86_64-linux-gnu/libc.so.6"
    with pytest.raises(CaptureError, match="without ibv_create_qp"):
        Uprobes([other])
    broken = tmp_path / "libibverbs.so.1"
    broken.write_bytes(b"\x7fELF")
    with pytest.raises(CaptureError, match="libibverbs.so.1: "):
        Uprobes([str(broken)])


@pytest.mark.usefixtures("root", "libibverbs")
def test_layout_is_what_the_compiler_makes_of_the_source():
    """Offset and size of every field of struct qp_event, as instructions that return them."""
    source = SOURCE.read_text()
    structs = source[source.index("typedef") : source.index("/* A call that has not")]
    expected = {name: offset for name, (_, offset) in EVENT.fields.items()}
    sizes = {name: kind.itemsize for name, (kind, _) in EVENT.fields.items()}
    functions = {"whole": "sizeof(struct qp_event)"}
    for name in expected:
        functions[f"offset_{name}"] = f"__builtin_offsetof(struct qp_event, {name})"
        functions[f"size_{name}"] = f"sizeof(((struct qp_event *)0)->{name})"
    text = "".join(f"int {f}(void *context) {{ return {e}; }}\n" for f, e in functions.items())
    code = machine_code(structs + text, functions)
    found = {name: struct.unpack_from("<i", code[name], 4)[0] for name in functions}
    assert {n: found[f"offset_{n}"] for n in expected} == expected
    assert {n: found[f"size_{n}"] for n in expected} == sizes
    assert found["whole"] == EVENT.itemsize
    declared = re.findall(r"^\t(?:rs_\w+|char) (\w+)(?:\[\w+\])?;", structs, re.MULTILINE)
    assert sorted(declared) == sorted(expected)


@pytest.mark.usefixtures("root", "libibverbs")
def test_offsets_are_those_of_the_library_itself():
    """libibverbs copies the attributes into the kernel's struct ib_uverbs_modify_qp."""
    sys.path.insert(0, str(FAKE.parent))
    try:
        from fake_verbs import ATTRIBUTE_BYTES, FakeVerbs, packed
    finally:
        sys.path.pop(0)
    receiving, sending = os.pipe()
    verbs = FakeVerbs(cmd_fd=sending)
    qp = verbs.new_qp(0x123456)
    values = dict(state=2, path_mtu=5, rq_psn=0xABCDEF, sq_psn=0x123, remote_qp=0x654321, gid=GID)
    attributes = ctypes.create_string_buffer(packed(**values, port=2, gid_index=3), ATTRIBUTE_BYTES)
    command = ctypes.create_string_buffer(128)
    mask = TO_RTR | SQ_PSN
    assert verbs.lib.ibv_cmd_modify_qp(qp, attributes, mask, command, 120) == 0
    body = os.read(receiving, 1024)[8:]
    os.close(receiving)
    os.close(sending)
    assert body[:16] == bytes.fromhex(GID)
    gid_index, is_global, port = body[24], body[30], body[31]
    assert (gid_index, is_global, port) == (3, 1, 2)
    attr_mask, _, rq_psn, sq_psn, remote_qp = struct.unpack_from("5I", body, 68)
    assert (attr_mask, rq_psn, sq_psn, remote_qp) == (mask, 0xABCDEF, 0x123, 0x654321)
    state, _, path_mtu = body[96:99]
    assert (state, path_mtu) == (2, 5)
