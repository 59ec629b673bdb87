"""Errors of an analysis; the command line maps each to an exit code."""


class RocescopeError(Exception):
    """An error with a one-line text that a user can act on."""

    exit_code = 1


class UsageError(RocescopeError):
    """An invalid option or filter."""

    exit_code = 2


class CaptureError(RocescopeError):
    """Live capture is impossible: a privilege, a kernel feature or an interface is missing."""

    exit_code = 3


class UnreadableInput(RocescopeError):
    """A capture that is missing, empty, of the wrong type or unreadable from its start."""

    exit_code = 4


class NotACapture(UnreadableInput):
    """A file of another kind, for example text."""


class StoreError(RocescopeError):
    """An object store that refuses or does not answer: it shows nothing about the captures."""

    exit_code = 4


def too_many_flows(most: int, packets: int) -> str:
    """What to do about more flows than the memory for each allows."""
    return (
        f"more than {most} flows after {packets} packets: analyse a part of them, for example with"
        " --filter 'ip.addr == 10.0.0.0/28'"
    )
