"""The `effdet-keras` command: reads arguments, calls the package."""

import argparse
import os
import sys

from effdet_keras._version import __version__

# glibc gives large blocks back to the system after every step and pays for page
# faults when it takes them again: training takes about 1.5 times as long.
_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


def main(argv=None):
    """Runs the command line; returns its exit status."""
    arguments = _parser().parse_args(argv)
    # TensorFlow's notes on its build are not for the reader of a table.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        return arguments.run(arguments)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"effdet-keras: {error}", file=sys.stderr)
        return 1


def console():
    """`main` for the installed command: with an allocator that suits training."""
    if sys.platform == "linux" and not os.environ.keys() & _ALLOCATOR.keys():
        # glibc reads these once, when a process starts.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "effdet_keras.cli", *sys.argv[1:]],
            {**os.environ, **_ALLOCATOR},
        )
    return main()


def _parser():
    parser = argparse.ArgumentParser(prog="effdet-keras", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="make a small data set, train on it, evaluate, archive, draw",
        description="The whole way on generated pictures of shapes, in 5 minutes.",
    )
    demo.add_argument("--out", default="demo", help="folder to write to (demo)")
    demo.add_argument("--epochs", type=int, default=None, help="epochs to train")
    demo.add_argument("--images", type=int, default=None, help="pictures to train on")
    demo.add_argument("--seed", type=int, default=0, help="random seed (0)")
    demo.set_defaults(run=_demo)
    return parser


def _demo(arguments):
    from effdet_keras.demo import run_demo

    options = {"epochs": arguments.epochs, "num_train": arguments.images}
    given = {name: value for name, value in options.items() if value is not None}
    run_demo(arguments.out, seed=arguments.seed, **given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
