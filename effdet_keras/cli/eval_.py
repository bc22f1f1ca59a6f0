"""`effdet-keras eval`: how good a detector is on a dataset, and what it gets wrong."""

import argparse

from effdet_keras.cli.shared_arguments import (
    add_dataset_format,
    add_overwrite,
    add_threads,
)


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "eval",
        help="evaluate a model on a dataset, or compare two",
        description="Prints COCO's numbers, Pascal VOC's, those of each class, the "
        "kinds of errors and what matters most. --out writes a report with curves and "
        "images. Two models are compared, with an interval of the difference.",
    )
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="a .keras file, a folder of CheckpointArchive, the folder of a run of "
        "`train`, an exported file or folder, or the name of a published model such as "
        "efficientdet-d0; two of them to compare",
    )
    parser.add_argument("data", metavar="DATA", help="file or folder of the dataset")
    parser.add_argument(
        "--split",
        metavar="NAME",
        default=None,
        help="the split to evaluate on (test, or else valid, validation or val)",
    )
    add_dataset_format(parser)
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=int,
        default=8,
        help="images to process at once (8)",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        default=None,
        help="folder for numbers.json and report.html; of two models the report is of "
        "the second",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        default=None,
        help="file for the detections in COCO's result format",
    )
    parser.add_argument(
        "--detections",
        metavar="FILE",
        action="append",
        default=[],
        help="a file in COCO's result format, of any system, to evaluate in the place "
        "of a model, or to compare with one",
    )
    parser.add_argument(
        "--slices",
        metavar="FILE.csv",
        default=None,
        help="a CSV file with a row for each image: a column 'file_name' or "
        "'image_id', and others, such as camera or weather, by whose values AP is told",
    )
    parser.add_argument(
        "--losses",
        action="store_true",
        help="compute the losses as well, from the same forward pass; for .keras files "
        "of a training",
    )
    parser.add_argument(
        "--store-thresholds",
        action="store_true",
        help="store the score threshold with the best F1 of each class, and the "
        "temperature that calibrates scores, in the model's .keras file, for `predict "
        "--score best` and `--calibrated`; its weights stay as they are. Choose them "
        "on other images than those that you judge by: --split valid",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="MODEL is the folder of a run that trains in another process: evaluate "
        "each new checkpoint, until the run is done",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        default=None,
        help="with --follow, how long to wait for something new, such as 90s, 20m or "
        "1.5h (20m)",
    )
    add_threads(parser)
    add_overwrite(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.dataset_source import DatasetSource
    from effdet_keras.cli.evaluate_files import evaluate_files
    from effdet_keras.cli.follow_run import check_flags, follow_run

    data = DatasetSource("DATA", arguments.data, arguments.split, arguments.format)
    if arguments.follow or arguments.timeout is not None:
        check_flags(vars(arguments))
        timeout = arguments.timeout or "20m"
        options = {"batch_size": arguments.batch_size, "out": arguments.out}
        follow_run(arguments.models[0], data, timeout=timeout, **options)
        return 0
    evaluate_files(
        arguments.models,
        data,
        detections=arguments.detections,
        batch_size=arguments.batch_size,
        threads=arguments.threads,
        out=arguments.out,
        json_path=arguments.json,
        overwrite=arguments.overwrite,
        store_thresholds=arguments.store_thresholds,
        losses=arguments.losses,
        slices=arguments.slices,
    )
    return 0
