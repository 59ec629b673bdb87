"""Two leaves, two spines and two hosts without answers, in the words of every system; damage.

A test of a dialect writes the answers of `LAB` in the shape that its system documents. All systems
then give the same fabric, whatever their shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.dialect import Dialect
from rocescope.discovery.discover import Discovered, discover_folder
from rocescope.replay.fabrics.devices import Device


class Port(NamedTuple):
    number: int
    address: str
    """With its length."""
    peer: str
    """Empty: a host, which does not speak LLDP."""
    peer_port: int


class Hop(NamedTuple):
    gateway: str
    port: int
    weight: int = 1


class Switch(NamedTuple):
    name: str
    number: int
    ports: tuple[Port, ...]
    routes: Mapping[str, tuple[Hop, ...]]

    def mac(self, port: int) -> str:
        return f"02:00:00:00:{self.number:02x}:{port:02x}"

    @property
    def chassis(self) -> str:
        return self.mac(0)


def _leaf(i: int) -> Switch:
    up = tuple(Port(s, f"10.0.{i}{s}.1/30", f"spine{s}", i) for s in (1, 2))
    host = Port(3, f"10.1.{i}.1/24", "", 0)
    hops = tuple(Hop(f"10.0.{i}{s}.2", s) for s in (1, 2))
    return Switch(f"leaf{i}", i, (*up, host), {f"10.1.{3 - i}.0/24": hops})


def _spine(s: int) -> Switch:
    down = tuple(Port(i, f"10.0.{i}{s}.2/30", f"leaf{i}", s) for i in (1, 2))
    routes = {f"10.1.{i}.0/24": (Hop(f"10.0.{i}{s}.1", i),) for i in (1, 2)}
    return Switch(f"spine{s}", 10 + s, down, routes)


LAB = (_leaf(1), _leaf(2), _spine(1), _spine(2))
BY_NAME = {switch.name: switch for switch in LAB}

Answers = Mapping[str, Any]
"""By suffix: an object that becomes JSON, or text."""
Write = Callable[[Switch], Answers]


def encoded(answer: Any) -> bytes:
    return answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()


def save(folder: Path, name: str, answers: Answers) -> None:
    for suffix, answer in answers.items():
        (folder / f"{name}.{suffix}").write_bytes(encoded(answer))


def check_fabric(folder: Path, write: Write) -> Discovered:
    """The links, addresses and groups of the lab."""
    for switch in LAB:
        save(folder, switch.name, write(switch))
    found = discover_folder(folder, 400_000_000_000, 500)
    assert {r.kind for r in found.report.remarks} <= {"not represented"}, found.report.remarks
    assert (found.report.switches, found.report.hosts) == (4, 2)
    between = [link for link in found.report.links if link.evidence.startswith("LLDP")]
    assert sorted(link.name for link in between) == [
        f"leaf{i}>spine{s}" for i in (1, 2) for s in (1, 2)
    ]
    fabric = found.fabric
    names = fabric.nodes.names
    for leaf in (0, 1):
        edge = int(fabric.attachments.edge[1 - leaf])
        links, weights = fabric.group(names.index(f"leaf{leaf + 1}"), edge)
        assert [fabric.link_name(int(link)) for link in links] == [
            f"leaf{leaf + 1}>spine{s}" for s in (1, 2)
        ]
        assert weights.tolist() == [1, 1]
    for spine in ("spine1", "spine2"):
        for host in (0, 1):
            links, _ = fabric.group(names.index(spine), int(fabric.attachments.edge[host]))
            assert [fabric.link_name(int(link)) for link in links] == [f"{spine}>leaf{host + 1}"]
    assert not found.report.switches_without_tables
    return found


def read(dialect: Dialect, folder: Path, switch: Switch, answers: Answers) -> Device:
    save(folder, switch.name, answers)
    return dialect.read(folder, switch.name)


def check_huge(dialect: Dialect, folder: Path, answers: Answers, suffix: str, old: str) -> None:
    """A number beyond every limit is named, and all other answers are read."""
    for huge in HUGE:
        text = encoded(answers[suffix]).decode()
        assert old in text
        changed = {**answers, suffix: text.replace(old, old.replace("100", huge), 1)}
        (line,) = read(dialect, folder, LAB[0], changed).unexpected
        assert suffix in line and len(line) < 400


HUGE = ("9" * 5000, "10000000000000", "99999999999999999999")
"""In place of 100."""


def check_damage(dialect: Dialect, folder: Path, write: Write) -> None:
    """However an answer is damaged: one line that names the command, and all else is read."""
    switch = LAB[0]
    whole = {suffix: encoded(answer) for suffix, answer in write(switch).items()}
    assert set(whole) <= {q.suffix for q in dialect.questions}
    good = read(dialect, folder, switch, write(switch))
    assert not good.unexpected

    @given(st.data())
    def one(data: st.DataObject) -> None:
        suffix = data.draw(st.sampled_from(sorted(whole)))
        text = whole[suffix]
        kind = data.draw(st.sampled_from(["cut", "bytes", "value", "key", "kind", "number"]))
        if kind == "cut":
            text = text[: data.draw(st.integers(0, len(text) - 1))]
        elif kind == "number":
            found = data.draw(st.sampled_from([*re.finditer(rb"[0-9]+|$", text)]))
            huge = data.draw(st.sampled_from(HUGE)).encode()
            text = text[: found.start()] + huge + text[found.end() :]
        elif kind == "bytes" or not suffix.endswith(".json"):
            at = data.draw(st.integers(0, len(text) - 1))
            text = text[:at] + data.draw(st.binary(max_size=4)) + text[at + 1 :]
        else:
            text = json.dumps(_changed(json.loads(text), kind, data)).encode()
        file = folder / f"{switch.name}.{suffix}"
        file.write_bytes(text)
        try:
            device = dialect.read(folder, switch.name)
        except UsageError as error:
            assert "\n" not in str(error)
        else:
            rates = [port.bits_per_second for port in device.interfaces or ()]
            assert all(0 <= one <= 10**15 for one in rates)
            command = next(q.command for q in dialect.questions if q.suffix == suffix)
            for told in device.unexpected:
                assert told.startswith(f"`{command}`: ")
                assert told.isprintable()
            if kind == "cut" and (suffix.endswith(".json") or (text and text[-1:] != b"\n")):
                assert device.unexpected
        finally:
            file.write_bytes(whole[suffix])

    one()


def _changed(value: Any, kind: str, data: st.DataObject) -> Any:
    """A value with one key less, or with one value replaced somewhere."""
    odd = st.sampled_from(
        [None, "", "x\x1b[2J", -1, 1 << 70, 1.5, [], {}, True, [[]], {"a": []}, *HUGE]
    )
    if isinstance(value, dict) and value:
        key = data.draw(st.sampled_from(sorted(value)))
        if kind == "key" and data.draw(st.booleans()):
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _changed(value[key], kind, data)}
    if isinstance(value, list) and value:
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], _changed(value[at], kind, data), *value[at + 1 :]]
    return data.draw(odd)
