"""Commands of a trace over SSH, with a real sshd."""

from __future__ import annotations

import signal

import pytest
from answers import recorded
from sshd import LocalSshd, inventory

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Namespaces, Request
from rocescope.discovery.collect import OverSsh, collect, parse_devices
from rocescope.discovery.dialects.linux import LINUX
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.folder import NO_ANSWER, read_folder
from rocescope.discovery.inventory import Target, groups_of, read_inventory
from rocescope.discovery.results import read_asked
from rocescope.discovery.ssh import require_asyncssh

# Commands of a trace over SSH, with a real sshd.

# Commands of a trace over SSH, with a real sshd.


@pytest.fixture
def run(root, need_tool, tmp_path, monkeypatch):
    need_tool("sshd")
    require_asyncssh()
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = LocalSshd(folder)
    for name in ("leaf1", "leaf2"):
        server.add(name, 'sh -c "$SSH_ORIGINAL_COMMAND"')
    with server.config.open("a") as config:
        config.write("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    monkeypatch.setenv("HOME", str(server.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with server:
        made = OverSsh(
            [
                *(Target(name, "switch", LINUX, name) for name in ("leaf1", "leaf2", "gone")),
                Target("odd", "switch", LINUX, "127.0.0.1:99999"),
            ]
        )
        yield made
        made.close()


def test_devices_at_once_over_connections_that_stay_open(run):
    asked = [
        Request("leaf1", "tr a-z A-Z", b"one"),
        Request("leaf2", "echo half; echo -e 'why\\033[31m' >&2; exit 1"),
        Request("gone", "id"),
        Request("odd", "id"),
        Request("leaf9", "id"),
    ]
    good, partial, gone, odd, unknown = run(asked)
    assert good == (b"ONE", "")
    assert partial.output == b"half\n"
    assert partial.problem.startswith("exit status 1: ")
    assert "\x1b" not in partial.problem
    assert "connect" in gone.problem
    assert odd.problem == "the port 99999 is not 1 to 65535"
    assert unknown == (b"", "not in the inventory")
    # The client's port is the same: no second connection.
    ports = [run([Request("leaf1", "echo $SSH_CONNECTION")])[0].output for _ in range(2)]
    assert ports[0] == ports[1]
    assert len(ports[0].split()) == 4


def test_a_command_that_does_not_end_is_listened_to_until_it_ends(run):
    """The device is asked meanwhile; afterwards a new connection is made."""
    heard = []

    def port():
        return run([Request("leaf1", "echo $SSH_CONNECTION")])[0].output.split()[1]

    before = port()
    command = "echo one; sleep 0.5; echo two; echo why >&2; exit 3"
    assert run.listen("leaf1", command, lambda: heard.append(port)) == "exit status 3: why"
    assert len(heard) == 3  # its start, and twice that it printed
    assert port() != before
    assert "connect" in run.listen("gone", command, heard.clear)
    assert len(heard) == 3
    assert run.listen("leaf9", command, heard.clear) == "not in the inventory"


# `--devices`.


def test_namespaces():
    run = parse_devices("netns:lab-")
    assert isinstance(run, Namespaces)
    assert run.command("leaf1", "ip -j link")[:4] == ["ip", "netns", "exec", "lab-leaf1"]


def test_an_inventory(tmp_path):
    run = parse_devices(str(inventory(tmp_path / "fabric.yaml", {"leaf1": "linux"})))
    assert isinstance(run, OverSsh)
    run.close()


@pytest.mark.parametrize("text", ["", "netns", "netns:-n", "netns:a b", "netns:../x", "leaf1"])
def test_mistakes(text):
    with pytest.raises(UsageError, match="--devices"):
        parse_devices(text)


# Answers of many devices, asked at once.

SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")
HOSTS = ("h1", "h2", "h3", "h4")


@pytest.fixture
def devices(root, need_tool, tmp_path, monkeypatch):
    """sshd with the recorded devices, and the inventory of them."""
    need_tool("sshd")
    folder = recorded(tmp_path) / "healthy"
    with LocalSshd(tmp_path) as server:
        for name in SWITCHES:
            server.add_recorded(name, folder, DIALECTS["frr"])
        for name in HOSTS:
            server.add_recorded(name, folder, DIALECTS["linux"])
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server, folder


def collected(tmp_path, switches=SWITCHES, hosts=HOSTS, progress=None, most_bytes=1 << 28):
    file = inventory(tmp_path / "inventory.yaml", dict.fromkeys(switches, "frr"), hosts)
    collect(read_inventory(file, DIALECTS), tmp_path / "raw", progress, most_bytes)
    return tmp_path / "raw"


def test_the_answers_are_those_of_the_devices(devices, tmp_path):
    _, folder = devices
    done = []
    raw = collected(tmp_path, progress=lambda number, name: done.append((number, name)))
    for file in folder.iterdir():
        assert (raw / file.name).read_bytes() == file.read_bytes()
    assert [number for number, _ in done] == list(range(1, 9))
    assert {name for _, name in done} == {*SWITCHES, *HOSTS}
    asked = read_asked(raw)
    assert asked["leaf1"].problem_of("route.json") == ""
    assert asked["leaf1"].problem_of("bucket.json").startswith("exit status 1: cat: ")
    answers, unreadable = read_folder(raw)
    assert (len(answers), unreadable) == (8, [])


def test_a_device_that_does_not_answer_is_named_and_the_others_are_asked(devices, tmp_path):
    server, _ = devices
    with server.config.open("a") as config:
        config.write("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    raw = collected(tmp_path, (*SWITCHES, "gone"))
    answers, (unreadable,) = read_folder(raw)
    assert len(answers) == 8
    assert (unreadable.name, unreadable.kind) == ("gone", NO_ANSWER)


def test_a_device_that_cannot_be_asked_at_all_is_named_and_the_others_are_asked(devices, tmp_path):
    """A setting of ssh_config that leads to an unusual error, and a folder in place of a file."""
    server, _ = devices
    server.add("odd", "id", "UserKnownHostsFile ~no-such-user/known_hosts")
    (tmp_path / "raw" / "leaf2.route.json").mkdir(parents=True)
    raw = collected(tmp_path, (*SWITCHES, "odd"))
    answers, unreadable = read_folder(raw)
    assert len(answers) == 7
    reasons = {one.name: one.reason for one in unreadable}
    assert reasons["odd"].startswith("RuntimeError: Could not determine home directory")
    assert reasons["leaf2"] == "is a directory"


def test_earlier_answers_are_replaced(devices, tmp_path):
    """Also those of a dialect, or of a kind of device, that it no longer has."""
    raw = tmp_path / "raw"
    raw.mkdir()
    names = ["leaf1.bucket.json", "leaf1.route.json.failed", "leaf1.qp.json", "h1.frr-route.json"]
    for name in names:
        (raw / name).write_text("[{}]")
    collected(tmp_path)
    assert not [name for name in names if (raw / name).exists()]


def test_an_interrupted_collection_says_so(devices, tmp_path):
    """No device passes for one that was asked, whether it was or not."""

    def interrupt(done, name):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path, progress=interrupt)
    asked = read_asked(tmp_path / "raw")
    assert set(asked) == {*SWITCHES, *HOSTS}
    assert {one.problem for one in asked.values()} == {
        "not asked to the end: the collection was interrupted"
    }


def test_an_answer_that_is_not_complete_is_kept_beside(devices, tmp_path):
    server, folder = devices
    script = server.folder / "half"
    script.write_text(f"#!/bin/sh\nhead -c 99 {folder}/spine2.route.json; exit 9\n")
    script.chmod(0o755)
    server.add("spine3", str(script))
    raw = collected(tmp_path, (*SWITCHES, "spine3"))
    assert (raw / "spine3.route.json.failed").stat().st_size == 99
    assert not (raw / "spine3.route.json").exists()
    answers, (unreadable,) = read_folder(raw)
    assert len(answers) == 8
    assert (unreadable.name, unreadable.reason) == ("spine3", "`ip -j route`: exit status 9")


def test_an_answer_beyond_the_limit_names_its_command_and_its_device(devices, tmp_path):
    _, folder = devices
    largest = (folder / "leaf1.route.json").stat().st_size
    raw = collected(tmp_path, ("leaf1",), (), most_bytes=largest)
    (leaf1,), _ = read_folder(raw)
    cut = sorted(path.name for path in raw.glob("*.failed"))
    over = sorted(f"{f.name}.failed" for f in folder.glob("leaf1.*") if f.stat().st_size > largest)
    assert cut == over and "leaf1.addr.json.failed" in cut
    told = (
        f"`ip -j -d addr`: more than {largest / 1024:,.10g} KiB of output (--max-answer): not used"
    )
    assert told in leaf1.device.unexpected
    assert len(leaf1.device.unexpected) == len(cut)


# Inventories.

# Inventories.


def read(tmp_path, text):
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    return read_inventory(file, DIALECTS)


def test_switches_and_hosts(tmp_path):
    text = "switches: {leaf1: {dialect: frr, ssh: admin@leaf1-mgmt}}\nhosts: {h1: {}, h2: }\n"
    assert [(t.name, t.kind, t.dialect.name, t.ssh) for t in read(tmp_path, text)] == [
        ("leaf1", "switch", "frr", "admin@leaf1-mgmt"),
        ("h1", "host", "linux", "h1"),
        ("h2", "host", "linux", "h2"),
    ]


def test_groups_of_an_ansible_inventory(tmp_path):
    (tmp_path / "hosts.ini").write_text("[leaves]\nleaf[1:2]\n[gpu]\nh1\n")
    text = "ansible: {file: hosts.ini, switches: {leaves: frr}, hosts: {gpu: linux}}"
    found = read(tmp_path, text)
    assert [(t.name, t.kind, t.dialect.name) for t in found] == [
        ("leaf1", "switch", "frr"),
        ("leaf2", "switch", "frr"),
        ("h1", "host", "linux"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("switches: {a: {dialect: ios}}", ":1: unknown dialect 'ios'; choose linux, frr"),
        ("switches: {a: }", ":1: a has no dialect; choose linux, frr"),
        ("switches: {a: {dialect: frr}}\nhosts: {a: }", ":2: two devices have the name 'a'"),
        ("hosts: {a: , a: }", ":1: 'a' is given twice"),
        ("switch: {}", ":1: unknown key 'switch'"),
        ("hosts: {a: {user: root}}", ":1: unknown key 'user' of a; it has dialect and ssh"),
        ("hosts: {a/b: }", "'a/b' is not a device name"),
        ("hosts: {'..': }", "'..' is not a device name"),
        ("hosts: {a: {ssh: -oProxyCommand=id}}", "is not a host of ssh_config"),
        ("hosts: {a: {ssh: '127.0.0.1:99999'}}", ":1: ssh of a: the port 99999 is not 1 to 65535"),
        ("hosts: {}", "the inventory names no device"),
        ("ansible: {switches: {a: frr}}", "no file with the Ansible inventory"),
        ("ansible: {file: hosts.ini, x: y}", ":1: unknown key 'x'"),
    ],
)
def test_mistakes_inventory(text, message, tmp_path):
    (tmp_path / "hosts.ini").touch()
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_group_that_is_not_there(tmp_path):
    (tmp_path / "hosts.ini").write_text("[leaves]\nleaf1\n")
    with pytest.raises(UsageError, match=r"hosts.ini has no group 'spines'"):
        read(tmp_path, "ansible: {file: hosts.ini, switches: {spines: frr}}")


# Names and groups of Ansible inventories.

INI = """\
; a fabric
mail.example.com

[leaves]
leaf[01:03] ansible_host=10.0.0.1
leaf9 # the last

[spines]
spine1
[switches:children]
leaves
spines
[switches:vars]
ansible_user=admin
"""
YAML = """\
all:
  vars: {x: 1}
  children:
    switches:
      children:
        leaves: {hosts: {"leaf[01:03]": , leaf9: {ansible_host: 10.0.0.9}}}
        spines: {hosts: {spine1: }}
  hosts: {mail.example.com: }
"""


@pytest.mark.parametrize(("suffix", "text"), [("ini", INI), ("yml", YAML)])
def test_groups_with_children_and_ranges(suffix, text, tmp_path):
    file = tmp_path / f"hosts.{suffix}"
    file.write_text(text)
    groups = groups_of(file)
    assert groups["leaves"] == ["leaf01", "leaf02", "leaf03", "leaf9"]
    assert groups["switches"] == [*groups["leaves"], "spine1"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ini", "[a\nx", r"a.ini:1: '\[a' is not a group"),
        ("a.ini", "x[a:c]", r"a.ini:1: 'x\[a:c\]' is not a name, nor a range"),
        ("a.ini", "x[1:99999999]", r"is not a range of names"),
        ("a.ini", f"x[{'0' * 5000}:1]", r"is not a name, nor a range"),
        ("a.ini", "x[9:1]", r"is not a range of names"),
        ("a.ini", "[a:children]\nb", "there is no group 'b'"),
        ("a.ini", "[a:children]\nb\n[b:children]\na", "the group 'a' contains itself"),
        ("a.yml", "all: {host: {a: }}", "a.yml:1: unknown key 'host' of the group 'all'"),
        ("a.yml", "all: {hosts: {'$(id)': }}", "is not a name, nor a range"),
    ],
)
def test_anything_else_is_refused(name, text, message, tmp_path):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        groups_of(file)


def test_unreadable_files(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        groups_of(tmp_path / "none.ini")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not text"):
        groups_of(tmp_path / "binary")


def test_groups_of_any_depth(tmp_path):
    chain = tmp_path / "chain.ini"
    links = [f"[g{i}:children]\ng{i + 1}\n" for i in range(3000)]
    chain.write_text("".join(links) + "[g3000]\nleaf1\n")
    assert groups_of(chain)["g0"] == ["leaf1"]


def test_groups_that_name_a_group_twice(tmp_path):
    """Sixty levels: without care 2 ** 60 visits."""
    file = tmp_path / "twice.ini"
    links = [f"[g{i}:children]\ng{i + 1}\ng{i + 1}\n" for i in range(60)]
    file.write_text("".join(links) + "[g60]\nleaf1\n")
    assert groups_of(file)["g0"] == ["leaf1"]
