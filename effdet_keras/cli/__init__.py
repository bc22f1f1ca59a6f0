"""The `effdet-keras` command: finds the subcommand, runs it, and reports its errors.

Each subcommand is a module in this package or in an extra. Importing this file is
quick.
"""

from __future__ import annotations

import argparse
import io
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence

from effdet_keras._internal.extras import extra
from effdet_keras._internal.lazy_names import COMMAND
from effdet_keras._internal.tensorflow_log import quiet_tensorflow
from effdet_keras._version import __version__
from effdet_keras.cli import convert, eval_, export, import_, predict, train
from effdet_keras.errors import EffDetError, hint, printable

# Each command is a module with `SUMMARY`, `DESCRIPTION`, `add_arguments` and `run`.
# A string names a module in an extra.
COMMANDS = {
    "demo": "demo.command",
    "inspect": "data_check.command",
    "forecast": "forecast.command",
    "choose": "choose.command",
    "convert": convert,
    "selftest": "selftest.command",
    "train": train,
    "eval": eval_,
    "predict": predict,
    "label-next": "label_next.command",
    "merge": "bulk.merge_command",
    "serve": "serving.command",
    "benchmark": "benchmark.command",
    "export": export,
    "inspect-weights": "inspect_weights",
    "import": import_,
    "share": "sharing.command",
}
_DEBUG = "show the traceback of an error, and everything that TensorFlow logs"
# Exit statuses. The status of a signal is 128 plus its number.
_FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which ends a command like Ctrl-C: finished work is kept."""


def console() -> int:
    """Runs `main` as a program, with settings that concern the whole process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # class names may not be ASCII
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _raise_terminated)
    if "--debug" not in sys.argv:
        quiet_tensorflow()
    return main()


def _raise_terminated(*_):
    raise _Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = _parser()
    namespace, unknown = parser.parse_known_args(argv)
    given = vars(namespace)
    command = given.pop("command", parser)
    if unknown:  # show the usage of the subcommand, not of the whole program
        flags = re.findall(r"--[\w-]+", command.format_usage())
        wrong = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        hints = "".join(hint(word, flags) for word in wrong)
        end = f".{hints}" if hints else ""
        command.error(f"unrecognized arguments: {' '.join(unknown)}{end}")
    if "run" not in given:
        parser.print_help(sys.stderr)
        return _USAGE
    run, debug = given.pop("run"), given.pop("debug")
    try:
        with warnings.catch_warnings():
            # Leave out the source line that raised the warning: it helps no user.
            warnings.showwarning = lambda message, *_, **__: _print_message(message)
            return run(**given) or 0
    except KeyboardInterrupt as error:
        is_terminated = isinstance(error, _Terminated)
        _print_message("terminated" if is_terminated else "interrupted")
        return _TERMINATED if is_terminated else _INTERRUPTED
    except (EffDetError, OSError, ImportError) as error:
        if debug:
            _print_traceback()
        _print_message(error)
    except Exception:
        _print_traceback()
        _print_message(
            "internal error. Please report it with the traceback above, the command, "
            f"and the version, {COMMAND} {__version__}."
        )
    return _FAILED


def _parser():
    """Returns the argument parser, with a subcommand for each of `COMMANDS`."""
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Trains, evaluates, exports and runs EfficientDet detectors.",
        epilog=f"`{COMMAND} COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help=_DEBUG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module in COMMANDS.items():
        module = extra(module) if isinstance(module, str) else module
        command = commands.add_parser(
            name, help=module.SUMMARY, description=module.DESCRIPTION
        )
        module.add_arguments(command)
        command.add_argument(
            "--debug",
            action="store_true",
            # --debug may already have been given before the subcommand.
            default=argparse.SUPPRESS,
            help=_DEBUG,
        )
        command.set_defaults(run=module.run, command=command)
    return parser


def _print_message(message):
    print(printable(f"{COMMAND}: {message}"), file=sys.stderr, flush=True)


def _print_traceback():
    print(printable(traceback.format_exc()), end="", file=sys.stderr, flush=True)
