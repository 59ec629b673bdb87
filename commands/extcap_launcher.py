"""The program in Wireshark's extcap folder: names interfaces and options, and starts the capture.

Wireshark runs it several times at each start, so it is one file that imports little. `rocescope
extcap --install` writes it with the command line of rocescope in place of RUN, and what
that runs in place of CODE.
Interface: https://www.wireshark.org/docs/wsdg_html_chunked/ChCaptureExtcap.html
"""

import os
import stat
import sys

RUN: list[str] = []
"""The command line that starts rocescope."""
CODE: list[str] = []
"""What it runs besides its first word: its Python and the folder of its package."""
PREFIX = "roce-"
_INTERFACES = "/sys/class/net"
_OPTIONS = (
    ("--filter", "string", "", "Filter", "Only packets that pass, such as qp == 0x1a2b or cnp"),
    ("--snaplen", "integer", "128", "Bytes of each frame", "Encapsulated frames keep 256"),
    ("--hook", "selector", "tc", "Hook", "tc sees both directions, xdp only received packets"),
    ("--sample", "integer", "1", "One packet in N", "Of each flow"),
    ("--udp-port", "integer", "", "Another UDP port", "Carries RoCE besides 4791"),
    ("--netns", "string", "", "Network namespace", "A name of ip netns, a path, or pid:N"),
)
_HOOKS = ("tc", "xdp", "xdp-generic", "clsact")
_MOST_LINKS = 40
_NET_ADMIN, _SYS_ADMIN, _PERFMON, _BPF = 12, 21, 38, 39


def main(words: list[str]) -> int:
    """Answer one question of Wireshark, or capture; returns the exit code."""
    given = _given(words)
    if "--extcap-interfaces" in given:
        print("extcap {version=1}{display=rocescope}")
        for name in sorted(os.listdir(_INTERFACES)):
            if os.path.isdir(os.path.join(_INTERFACES, name)):
                print(f"interface {{value={PREFIX}{name}}}{{display=RoCE on {name} (rocescope)}}")
        return 0
    if "--extcap-dlts" in given:
        print("dlt {number=1}{name=EN10MB}{display=Ethernet}")
        return 0
    if "--extcap-config" in given:
        _print_options()
        return 0
    if "--capture" in given:
        return _capture(given)
    if given.get("--extcap-capture-filter"):
        print("RoCE interfaces take no capture filter: use the option Filter of the interface")
        return 0
    return _fail("this program is for Wireshark: see rocescope extcap --help")


def _given(words: list[str]) -> dict[str, str]:
    """Options with their values, "" for those without one."""
    given: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            given[name] = value
        elif name:
            given[name], name = word, ""
    return given


def _print_options() -> None:
    for number, (call, kind, default, display, tooltip) in enumerate(_OPTIONS):
        line = f"arg {{number={number}}}{{call={call}}}{{display={display}}}{{tooltip={tooltip}}}"
        line += f"{{type={kind}}}"
        print(line + (f"{{default={default}}}" if default and kind != "selector" else ""))
        for hook in _HOOKS if kind == "selector" else ():
            chosen = "{default=true}" if hook == default else ""
            print(f"value {{arg={number}}}{{value={hook}}}{{display={hook}}}{chosen}")


def _capture(given: dict[str, str]) -> int:
    interface = given.get("--extcap-interface", "").removeprefix(PREFIX)
    if not interface or "/" in interface:
        return _fail("no interface is given")
    if given.get("--extcap-capture-filter"):
        return _fail("RoCE interfaces take no capture filter: use the option Filter")
    command = [*RUN, "extcap", "--capture", interface]
    command += [f"{call}={given[call]}" for call, *_ in _OPTIONS if given.get(call)]
    if not _may_capture():
        why = _allowed_by_sudo(command)
        if why:
            return _fail(why)
        command = ["sudo", "-n", "--", *command]
    try:
        fifo = os.open(given.get("--fifo", ""), os.O_WRONLY)
        os.dup2(fifo, 1)
        os.execvp(command[0], command)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}".lower())


def _may_capture() -> bool:
    """Whether this process has the capabilities of a capture."""
    held = 0
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("CapEff:"):
                held = int(line.split()[1], 16)
    tracing = held >> _PERFMON & held >> _BPF & 1 or held >> _SYS_ADMIN & 1
    return bool(held >> _NET_ADMIN & 1 and tracing)


def _allowed_by_sudo(command: list[str]) -> str:
    """Why sudo does not run the command without a password; "" if it does."""
    import subprocess

    try:
        asked = ["sudo", "-n", "-l", "--", *command]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return ""
    except OSError:
        pass
    needs = "capturing needs rights: run Wireshark with CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF, or"
    if foreign := next(filter(None, map(_not_of_root, [*RUN[:1], *CODE])), ""):
        return (
            f"{needs} install rocescope as root, for example below /opt: sudo must not run"
            f" {foreign}, which others than root can change"
        )
    allowed = " ".join([*RUN, "extcap", "--capture", "*"])
    return (
        f"{needs} let sudo run it without a password (visudo): {os.environ.get('USER', 'USER')}"
        f" ALL=(root) NOPASSWD: {allowed} (it captures to standard output and writes no file)"
    )


def _not_of_root(path: str) -> str:
    """The part of an absolute path, or of where a link in it leads, that somebody else than root
    can change; "" if none."""
    if not os.path.isabs(path):
        return path
    left, place, links = path.split("/")[::-1], "/", 0
    while left:
        part = left.pop()
        if part == "..":  # no part of `place` is a link
            place = os.path.dirname(place)
            continue
        place = os.path.join(place, part) if part not in ("", ".") else place
        try:
            state = os.lstat(place)
            is_link = stat.S_ISLNK(state.st_mode)
            writable = state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX
            links += is_link
            if state.st_uid or (writable and not is_link) or links > _MOST_LINKS:
                return place
            if is_link:
                left += os.readlink(place).split("/")[::-1]
                absolute = os.readlink(place).startswith("/")
                place = "/" if absolute else os.path.dirname(place)
        except OSError:
            return place
    return ""


def _fail(why: str) -> int:
    print(f"rocescope: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
