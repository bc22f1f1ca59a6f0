"""`effdet-keras inspect`: reports the problems of a dataset."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    OneOrTwo,
    add_data,
    add_format,
    add_overwrite,
    add_reader_options,
    add_unlabelled,
)
from effdet_keras.errors import EffDetError, require

SUMMARY = "find problems of a dataset, such as missing images and wrong boxes"
DESCRIPTION = (
    "Reads a dataset as training does, prints its problems, and says how well the "
    "anchors of a model cover its boxes. The exit status is 1 if there are errors "
    "(with --strict, also if there are warnings), otherwise 0. To inspect a file of "
    "weights, use `effdet-keras inspect-weights`."
)


_MODEL = "efficientdet-lite0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "judged",
        nargs="?",
        metavar="JUDGED",
        help=(
            "only with --suspects: the dataset to judge; DATA is then the folder of a "
            "run"
        ),
    )
    parser.add_argument(
        "--split", metavar="NAME", help="inspect only this split, such as train"
    )
    add_format(parser)
    add_unlabelled(parser)
    add_reader_options(parser)
    parser.add_argument(
        "--model",
        default=_MODEL,
        metavar="NAME",
        help="the model whose anchors are checked (default: %(default)s)",
    )
    parser.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=int,
        metavar="PIXELS",
        help=(
            "the network's input size: one number, or height and width (default: "
            "fitted to the boxes, as in `train`)"
        ),
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a report about all splits, with sample images, to this file",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help=(
            "write all problems, with their ids and severities, to this file, for "
            "other programs; with '-', they go to standard output, and the text goes "
            "to standard error"
        ),
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="count warnings as errors in the exit status",
    )
    parser.add_argument(
        "--augment",
        nargs="?",
        const="",
        metavar="NAMES",
        help=(
            "draw training images with these augmentations, such as mosaic,blur; "
            "without NAMES, only flip and scale jitter are applied"
        ),
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=("the file that --augment writes, one per split (default: augmented.png)"),
    )
    parser.add_argument(
        "--anchors",
        action="store_true",
        help=(
            "fit the anchors to the boxes of the training split, and print what that "
            "gains and how to train with them"
        ),
    )
    parser.add_argument(
        "--no-decode",
        dest="decode",
        action="store_false",
        help="read only the headers of the images, which is faster",
    )
    suspects = parser.add_argument_group("annotations that may be wrong")
    suspects.add_argument(
        "--suspects",
        metavar="FOLDER",
        help=(
            "usage: `inspect RUN DATA --suspects FOLDER`. Detectors that were not "
            "trained on an image judge its boxes; the images with annotations that may "
            "be wrong are written to FOLDER, which must not exist yet"
        ),
    )
    suspects.add_argument(
        "--to",
        choices=("labelstudio", "cvat", "labelme", "coco"),
        default="coco",
        help=(
            "the labelling tool, or the format, to write the boxes for (default: "
            "%(default)s)"
        ),
    )
    suspects.add_argument(
        "--folds",
        type=int,
        default=3,
        metavar="N",
        help=(
            "number of detectors to train if RUN was trained on the images (default: "
            "%(default)s)"
        ),
    )
    suspects.add_argument(
        "--least-suspicion",
        type=float,
        default=0.3,
        metavar="S",
        help=(
            "leave out annotations that are wrong with a probability below S, from 0 "
            "to 1 (default: %(default)s)"
        ),
    )
    add_overwrite(parser)


def run(
    data: str,
    judged: str | None = None,
    *,
    suspects: str | None = None,
    to: str = "coco",
    folds: int = 3,
    least_suspicion: float = 0.3,
    split: str | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    model: str = _MODEL,
    image_size: int | tuple[int, int] | None = None,
    html: str | None = None,
    json: str | None = None,
    strict: bool = False,
    augment: str | None = None,
    out: str | None = None,
    anchors: bool = False,
    decode: bool = True,
    overwrite: bool = False,
) -> int:
    """Prints the problems of a dataset, and returns the exit status of the command.

    The arguments are those of the command, see `add_arguments`.

    Returns:
        int, 1 if there are errors, or warnings with `strict`; else 0. With `suspects`,
        always 0.
    """
    if suspects is not None or judged is not None:
        keras.require("`effdet-keras inspect --suspects`")
        from effdet_keras.extras.data_check.suspects import write_suspects

        unused = {"--html": html, "--json": json, "--strict": strict}
        unused |= {"--augment": augment is not None, "--anchors": anchors, "--out": out}
        unused |= {"--no-decode": not decode, "--overwrite": overwrite}
        unused |= {"--image-size": image_size, "--model": model != _MODEL}
        given = [flag for flag, value in unused.items() if value]
        rule = "`inspect --suspects` judges annotations, into a new folder: leave out "
        rule += "the other options of `inspect`"
        require(not given, rule, options=given)
        options = {"split": split, "format": format, "unlabelled": unlabelled}
        options["reader_options"] = reader_options
        options |= {"folds": folds, "least_suspicion": least_suspicion}
        write_suspects(data, judged, suspects, to, **options)
        return 0
    from effdet_keras._internal.whole_files import local_path, write_text
    from effdet_keras.cli.files import check_outputs, image_files
    from effdet_keras.extras.data_check.check import check, check_splits
    from effdet_keras.extras.data_check.command_outputs import (
        check_paths,
        named_augmentations,
        print_and_draw,
    )
    from effdet_keras.extras.data_check.json_report import (
        exit_status,
        json_of,
        json_of_error,
    )

    stdout = sys.stdout
    path = None if json in (None, "-") else local_path(json, "`json`")
    check_outputs([path], [data], overwrite=True)
    check_outputs([path], overwrite=overwrite)

    def write_json(text):
        if path is not None:
            write_text(path, text)
        elif json is not None:
            print(text, end="", file=stdout)

    with contextlib.redirect_stdout(sys.stderr if json == "-" else stdout):
        html, out = check_paths(data, split, html, augment, out, overwrite)
        chosen = named_augmentations(augment)
        options = {"model": model, "image_size": image_size, "decode": decode}
        options |= {"format": format, "unlabelled": unlabelled}
        options["reader_options"] = reader_options
        try:
            if split is None:
                reports = check_splits(data, **options)
            else:
                reports = {split: check(data, split=split, **options)}
        except (EffDetError, OSError) as error:
            write_json(json_of_error(data, error, strict))
            raise
        read = [image for r in reports.values() for image in image_files(r.dataset)]
        check_outputs([path, html], read, overwrite=True)
        # The findings are also printed if the file cannot be written.
        with contextlib.ExitStack() as writes:
            writes.callback(write_json, json_of(reports, data, strict=strict))
            print_and_draw(data, reports, html, chosen, out, anchors, overwrite)
    status = exit_status(reports, strict=strict)
    if status and all(report.ok for report in reports.values()):
        print("The exit status is 1 for the warnings (--strict).", file=sys.stderr)
    return status
