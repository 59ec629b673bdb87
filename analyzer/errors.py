"""The few ways an analysis fails; the command line turns each into its exit code."""


class RocescopeError(Exception):
    """An error whose text is one line a user can act on."""

    exit_code = 1


class UsageError(RocescopeError):
    """An option or filter that makes no sense."""

    exit_code = 2


class CaptureError(RocescopeError):
    """Live capture is not possible: a privilege, a kernel feature or an interface is missing."""

    exit_code = 3


class UnreadableInput(RocescopeError):
    """A capture that is missing, empty, of the wrong type or damaged beyond its start."""

    exit_code = 4
