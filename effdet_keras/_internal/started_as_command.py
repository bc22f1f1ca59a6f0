"""Whether this process is the `effdet-keras` command."""

import itertools
import pathlib
import sys

COMMAND = "effdet-keras"
_PACKAGE = "effdet_keras"


def started_as_command(
    argv: list[str] | None = None, orig_argv: list[str] | None = None
) -> bool:
    """Whether Python was started as `effdet-keras` or `python -m effdet_keras`.

    Args:
        argv: list of strings, `sys.argv` if None. While Python looks for the module of
            `-m`, its first item is "-m".
        orig_argv: list of strings, `sys.orig_argv` if None.

    Returns:
        bool.

    Example:
        >>> started_as_command(["/usr/bin/effdet-keras", "--help"])
        True
        >>> started_as_command(["-m"], ["python", "-m", "effdet_keras", "--help"])
        True
        >>> started_as_command(["train.py"])
        False
    """
    argv = sys.argv if argv is None else argv
    orig_argv = sys.orig_argv if orig_argv is None else orig_argv
    program = argv[0] if argv else ""  # an embedded Python may have none
    if program != "-m":
        name = pathlib.PurePath(program).name
        return name in (COMMAND, f"{COMMAND}.exe")  # the second on Windows
    following = itertools.pairwise(orig_argv)
    return ("-m", _PACKAGE) in following
