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
    inspect,
    inspect_weights,
    predict,
    train,
)
from effdet_keras.cli.log_filter import tensorflow_notes_dropped
from effdet_keras.errors import EffDetError

# A command is a file with `add_parser` and `run`, here or in an extra.
_COMMANDS = (
    *("demo.command", inspect, convert, "selftest.command", train, eval_, predict),
    *("bulk.merge_command", "serving.command", "benchmark.command", export),
    *(inspect_weights, import_, "sharing.command"),
)
# Exit statuses: those of a signal are 128 and its number.
_FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143


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
    _add_debug(parser, default=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in _COMMANDS:
        module = extra(module) if isinstance(module, str) else module
        command = module.add_parser(commands)
        # It may stand before the command, too: no value here keeps that one.
        _add_debug(command, default=argparse.SUPPRESS)
        command.set_defaults(run=module.run)
    return parser


def _add_debug(parser, default):
    parser.add_argument(
        "--debug",
        action="store_true",
        default=default,
        help="show where an error came from, and all that TensorFlow logs",
    )


def _run(arguments):
    try:
        with warnings.catch_warnings():
            # Without the line of the program that warns, which helps no user.
            warnings.showwarning = lambda message, *_, **__: _say(message)
            return arguments.run(arguments)
    except _Terminated:
        _show_traceback(arguments.debug)
        _say("terminated")
        return _TERMINATED
    except KeyboardInterrupt:
        _show_traceback(arguments.debug)
        _say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:  # of `effdet-keras ... | head`: nobody reads any more
        _show_traceback(arguments.debug)
        return _FAILED
    except (EffDetError, OSError) as error:
        _show_traceback(arguments.debug)
        _say(error)
        return _FAILED
    except Exception as error:
        if _is_of_others(error):  # after `pip install --no-deps effdet-keras`
            _show_traceback(arguments.debug)
            _say(
                f"this needs the module '{error.name}', which is not installed: "
                "pip install effdet-keras (without --no-deps) brings it"
            )
            return _FAILED
        _show_traceback(True)
        _say(
            "this is a fault of the program, not of your input. Please report it, with "
            f"the lines above and the command, to the authors of {COMMAND} "
            f"{__version__}."
        )
        return _FAILED


def _is_of_others(error):
    """Whether a module is missing that is not of this package."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and name.partition(".")[0] != "effdet_keras"


def _show_traceback(is_wanted):
    if is_wanted:
        traceback.print_exc()


def _say(message):
    print(f"{COMMAND}: {message}", file=sys.stderr, flush=True)


def _flush_output():
    """Writes out what is left, so that Python does not fail to at its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
