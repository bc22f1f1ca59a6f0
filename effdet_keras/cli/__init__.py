"""The `effdet-keras` command: finds the subcommand, runs it, reports its errors.

Each subcommand is a file here, or one of an extra. Importing this file is quick.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence

from effdet_keras._internal.extras import extra
from effdet_keras._internal.lazy_names import COMMAND
from effdet_keras._version import __version__
from effdet_keras.cli import (
    convert,
    eval_,
    export,
    import_,
    inspect_weights,
    predict,
    train,
)
from effdet_keras.cli.arguments import add_command
from effdet_keras.cli.log_filter import tensorflow_notes_dropped
from effdet_keras.errors import EffDetError

# A command is a file with a function `run` (see `arguments`), here or in an extra.
COMMANDS = {
    "demo": "demo.command",
    "inspect": "data_check.command",
    "convert": convert,
    "selftest": "selftest.command",
    "train": train,
    "eval": eval_,
    "predict": predict,
    "merge": "bulk.merge_command",
    "serve": "serving.command",
    "benchmark": "benchmark.command",
    "export": export,
    "inspect-weights": inspect_weights,
    "import": import_,
    "share": "sharing.command",
}
_DEBUG = {
    "action": "store_true",
    "help": "show where an error came from, and all that TensorFlow logs",
}
# Exit statuses: those of a signal are 128 and its number.
_FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143
_FAULT = object()  # a failure that is a bug


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: what was finished is kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    arguments = _parse(argv)
    return _USAGE if arguments is None else _run(arguments)


def console() -> int:
    """`main` as a program of its own: with what concerns the whole process."""
    _make_streams_safe()
    arguments = _parse(None)
    if arguments is None:
        return _USAGE
    lost = [v for v in vars(arguments).values() if str(v).startswith("memory:/")]
    if lost:
        _say(
            f"'{lost[0]}' is in the memory of this process, and gone when it ends: "
            "name a folder, or the address of a storage."
        )
        return _USAGE
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        if arguments.debug:
            return _run(arguments)
        with tensorflow_notes_dropped():
            _make_streams_safe()  # of which one is another now
            return _run(arguments)
    finally:
        _flush_output()


# Of what is printed: all control characters but those of lines and of Keras' progress
# bar. Names of files may have others, which would do to the terminal what they say.
_CONTROL = re.compile(r"(?!\x1b\[(?:0|1|32|37)m)[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class _Terminal:
    """A text stream in which control characters of names are shown, and do nothing."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        return self._stream.write(_CONTROL.sub(lambda c: f"\\x{ord(c[0]):02x}", text))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _make_streams_safe():
    """Standard streams that take any text, also where one is closed (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # else a file that is opened gets its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # a class name may be beyond ASCII
            stream.reconfigure(errors="backslashreplace")
        if not isinstance(stream, _Terminal):
            setattr(sys, name, _Terminal(stream))


def _raise_terminated(*_):
    raise _Terminated


def _parse(argv):
    """The arguments; None if there is no command, after printing the help."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.print_help(sys.stderr)
        return None
    return arguments


def _parser():
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Trains, evaluates, exports and runs EfficientDet detectors.",
        epilog=f"`{COMMAND} COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", **_DEBUG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module in COMMANDS.items():
        module = extra(module) if isinstance(module, str) else module
        command = add_command(commands, name, module.run)
        if hasattr(module, "add_flags"):  # that no signature can have
            module.add_flags(command)
        # It may stand before the command, too: no value here keeps that one.
        command.add_argument("--debug", **{**_DEBUG, "default": argparse.SUPPRESS})
        command.set_defaults(run=module.run)
    return parser


def _run(arguments):
    """Runs the command; returns its exit status."""
    given = vars(arguments).copy()
    run, debug = given.pop("run"), given.pop("debug")
    try:
        with warnings.catch_warnings():
            # Without the line of the program that warns, which helps no user.
            warnings.showwarning = lambda message, *_, **__: _say(message)
            return run(**given) or 0
    except (Exception, KeyboardInterrupt) as error:
        status, message = _status_of(error)
        if debug or status == _FAULT:
            traceback.print_exc()
        if message is not None:
            _say(message)
        return _FAILED if status == _FAULT else status


def _status_of(error):
    """The exit status of an error, and what to say of it; a bug is `_FAULT`."""
    if isinstance(error, _Terminated):
        return _TERMINATED, "terminated"
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):  # of `effdet-keras ... | head`
        return _FAILED, None
    if isinstance(error, (EffDetError, OSError)):
        return _FAILED, error
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name is not None and name.partition(".")[0] != "effdet_keras":
        # After `pip install --no-deps effdet-keras`.
        return _FAILED, (
            f"this needs the module '{name}', which is not installed: "
            "pip install effdet-keras (without --no-deps) brings it"
        )
    return _FAULT, (
        "this is a fault of the program, not of your input. Please report it, with "
        f"the lines above and the command, to the authors of {COMMAND} {__version__}."
    )


def _say(message):
    print(f"{COMMAND}: {message}", file=sys.stderr, flush=True)


def _flush_output():
    """Writes out what is left, so that Python does not fail to at its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
