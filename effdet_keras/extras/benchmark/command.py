"""`effdet-keras benchmark`."""

import argparse

from effdet_keras.cli.shared_arguments import add_model, add_overwrite, add_runtime


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "benchmark",
        help="measure how long a model takes per image",
        description="Measures how long detection takes, and how long each of its "
        "stages: reading the files, letterbox, network, postprocess.",
    )
    add_model(parser, may_be_exported=True)
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        default=None,
        help="folder of images (by default, generated images of 640 x 480)",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=int,
        default=1,
        help="images to process at once (1)",
    )
    parser.add_argument(
        "--runs",
        metavar="N",
        type=int,
        default=30,
        help="batches to measure, after 3 to warm up (30)",
    )
    parser.add_argument(
        "--json", metavar="FILE", default=None, help="file for the numbers"
    )
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        default=None,
        help="folder for a profile by the runtime's own profiler",
    )
    add_runtime(parser)
    add_overwrite(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.open_model import open_predictor
    from effdet_keras.cli.outputs import check_outputs
    from effdet_keras.extras.benchmark.benchmark_model import benchmark

    check_outputs([arguments.json], [arguments.model], overwrite=arguments.overwrite)
    report = benchmark(
        open_predictor(arguments),
        arguments.images,
        batch_size=arguments.batch_size,
        runs=arguments.runs,
        trace=arguments.trace,
    )
    print(report)
    if arguments.json is not None:
        report.save(arguments.json)
    return 0
