"""`effdet-keras predict`: detects in images, folders, videos and cameras."""

from __future__ import annotations

import argparse
import os

from effdet_keras._internal.whole_files import (
    check_may_be_folder,
    check_may_be_written,
    local_path,
)
from effdet_keras.cli.arguments import (
    RUNTIMES,
    add_batch_size,
    add_model,
    add_overwrite,
    add_precision,
    add_threads,
)
from effdet_keras.errors import InvalidValueError

SUMMARY = "detect objects in images, folders, videos and camera streams"
DESCRIPTION = (
    "Detects objects, and prints one line per image or frame. --out writes copies of "
    "the images with the boxes drawn, and --json writes the boxes and scores to a COCO "
    "file. The exit status is 1 if an image could not be read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_model(parser)
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help=(
            "an image, a folder of images, a video, the number of a camera, or the "
            "address of a stream; press Ctrl-C to end a camera or stream"
        ),
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for images and videos with the boxes drawn",
    )
    parser.add_argument(
        "--json", metavar="FILE", help=("COCO file to write, with the boxes and scores")
    )
    parser.add_argument(
        "--score-threshold",
        type=score,
        default=0.3,
        metavar="S",
        help=(
            "lowest score to keep, or 'best' for the threshold of each class that "
            "`eval --store-thresholds` stored in the model (default: %(default)s)"
        ),
    )
    parser.add_argument(  # the older name of --score-threshold, which still works
        "--score",
        dest="score_threshold",
        type=score,
        default=argparse.SUPPRESS,
        metavar="S",
        help=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--calibrated",
        action="store_true",
        help=(
            "calibrate the scores with the temperature that `eval --store-thresholds` "
            "stored in the model"
        ),
    )
    parser.add_argument(
        "--classes",
        type=lambda text: [name.strip() for name in text.split(",")],
        metavar="NAMES",
        help=(
            "classes to keep, such as cat,dog; if the model has no class names, give "
            "the numbers of the classes, which start at 0 (default: all)"
        ),
    )
    add_batch_size(parser, default=1)
    parser.add_argument(
        "--tiles",
        nargs="?",
        const=True,
        type=int,
        metavar="PIXELS",
        help=(
            "cut large images into square tiles, and detect in each tile; PIXELS is "
            "the side of a tile (default: the network's input size)"
        ),
    )
    parser.add_argument(
        "--tta",
        nargs="*",
        type=float,
        metavar="SCALE",
        help=(
            "use test-time augmentation: detect in each image and its mirror image, at "
            "these scales, and fuse the boxes (default scale: 1.0)"
        ),
    )
    parser.add_argument(
        "--track",
        action="store_true",
        help=(
            "track objects from frame to frame of a video; each object gets a number, "
            "which is drawn and written to the files of --json (track_id) and --csv"
        ),
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="CSV file to write, with one row per box: image, frame, track, class, ...",
    )
    parser.add_argument(
        "--crops",
        metavar="FOLDER",
        help=(
            "folder for the part of the image inside each box, with one subfolder per "
            "class"
        ),
    )
    add_threads(parser)
    parser.add_argument(
        "--runtime",
        choices=RUNTIMES,
        help=(
            "convert a model that is not exported yet, in memory, for this runtime, "
            "which may be faster; auto takes the fastest runtime that is installed, "
            "and is the default for 2,000 images or more"
        ),
    )
    add_precision(parser)
    add_overwrite(parser)
    parser.add_argument(
        "--parts",
        metavar="FOLDER",
        help=(
            "folder or address to write the detections to, in several files, which "
            "`effdet-keras merge` joins into one; INPUT may then be an address, and "
            "its subfolders are searched too"
        ),
    )
    parser.add_argument(
        "--shard",
        default="1/1",
        metavar="I/N",
        help=(
            "with --parts: the share of the images that this process takes, such as "
            "3/16 for the third of 16 processes; the name of an image decides to which "
            "share it belongs (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--part-images",
        type=int,
        default=500,
        metavar="N",
        help=(
            "with --parts: number of images per file; at most the work on so many "
            "images is lost if the process is killed (default: %(default)s)"
        ),
    )


def score(text: str) -> float | str:
    """Parses --score-threshold; `detect` raises if the number is out of range."""
    return text if text == "best" else float(text)


def run(
    model: str,
    inputs: list[str],
    *,
    out: str | None = None,
    json: str | None = None,
    score_threshold: float | str = 0.3,
    calibrated: bool = False,
    classes: list[str] | None = None,
    batch_size: int = 1,
    tiles: int | None = None,
    tta: list[float] | None = None,
    track: bool = False,
    csv: str | None = None,
    crops: str | None = None,
    threads: int | None = None,
    runtime: str | None = None,
    precision: str = "float32",
    overwrite: bool = False,
    parts: str | None = None,
    shard: str = "1/1",
    part_images: int = 500,
) -> int:
    """Detects in images; returns 1 if an image could not be read, else 0."""
    from effdet_keras.cli.files import check_outputs, open_any_model
    from effdet_keras.cli.predict_files import is_worth_converting, predict_files

    def open_model():
        uses_defaults = (runtime, threads, precision, parts) == (
            None,
            None,
            "float32",
            None,
        )
        chosen = "auto" if uses_defaults and is_worth_converting(inputs) else runtime
        return open_any_model(model, threads, runtime=chosen, precision=precision)

    options = {
        "batch_size": batch_size,
        "calibrated": calibrated,
        "classes": classes,
        "tiles": tiles,
        "augment": True if tta == [] else tta,
    }
    if parts is not None:
        if (out, json) != (None, None):
            raise InvalidValueError(
                "--out and --json cannot be used with --parts: leave them out, and "
                "write one file from the parts with `effdet-keras merge` afterwards."
            )
        if overwrite:
            raise InvalidValueError(
                "--overwrite cannot be used with --parts: without it, the command "
                "adds the images that the folder lacks. To begin again, give another "
                "folder, or remove this one."
            )
        if (csv, crops) != (None, None) or track:
            raise InvalidValueError(
                "--csv, --crops and --track cannot be used with --parts: leave them "
                "out."
            )
        from effdet_keras.extras.bulk.shard import predict_shard

        sizes = {"shard": shard, "part_images": part_images}
        failed = predict_shard(
            open_model, inputs, parts, score_threshold, **sizes, **options
        )
        return 1 if failed else 0
    if shard != "1/1":
        raise InvalidValueError(
            "--shard needs a folder for the detections: add --parts FOLDER."
        )
    for path, flag in ((out, "--out"), (crops, "--crops")):
        if path is not None:
            folder = local_path(path, f"`{flag}`")
            check_may_be_folder(folder)
            check_may_be_written(folder)
    # Of a folder of images, only the images are read: `predict_files` checks them.
    files = [path for path in inputs if not os.path.isdir(path)]
    outputs = [json, csv, crops]
    check_outputs(outputs, files, models=[model], overwrite=overwrite)
    failed = predict_files(
        open_model(),
        inputs,
        out,
        score_threshold=score_threshold,
        json_path=json,
        csv_path=csv,
        crops=crops,
        track=track,
        overwrite=overwrite,
        **options,
    )
    return 1 if failed else 0
