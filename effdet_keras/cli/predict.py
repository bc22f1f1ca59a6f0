"""`effdet-keras predict`."""

import argparse

from effdet_keras._internal.extras import extra
from effdet_keras.cli.shared_arguments import add_model, add_overwrite, add_runtime
from effdet_keras.errors import InvalidValueError


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "predict",
        help="detect in images, folders, videos, cameras",
        description="Prints one line per image or frame. --out draws the boxes, and "
        "--json writes them to a COCO file with scores. The exit status is 1 if an "
        "image could not be read.",
    )
    add_model(parser, may_be_exported=True)
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="an image, a folder of images, a video, the number of a camera, or the "
        "address of a stream; press Ctrl-C to end a camera or stream",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        default=None,
        help="folder for images and videos with the boxes drawn",
    )
    parser.add_argument(
        "--json", metavar="FILE", default=None, help="COCO file for the boxes"
    )
    parser.add_argument(
        "--frames",
        metavar="FOLDER",
        default=None,
        help="folder for the frames of videos as images: together with the file of "
        "--json they are a dataset",
    )
    parser.add_argument(
        *("--score", "--score-threshold"),
        metavar="S",
        dest="score",
        type=_score,
        default=0.3,
        help="lowest score to keep (0.3), or 'best' for the threshold of each class "
        "that `eval --store-thresholds` stored with the model",
    )
    parser.add_argument(
        "--calibrated",
        action="store_true",
        help="give scores the temperature that `eval --store-thresholds` stored with "
        "the model",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=int,
        default=1,
        help="images to process at once (1)",
    )
    parser.add_argument(
        "--tiles",
        metavar="PIXELS",
        type=int,
        nargs="?",
        const=True,
        default=None,
        help="cut large images into square tiles of this side (by default the "
        "network's input size)",
    )
    parser.add_argument(
        "--tta",
        metavar="SCALE",
        type=float,
        nargs="*",
        default=None,
        help="test-time augmentation: detect in each image and its mirror image, at "
        "these scales (1.0), and fuse the boxes",
    )
    _add_shards(parser)
    add_runtime(parser)
    add_overwrite(parser)
    return parser


def _add_shards(parser):
    group = parser.add_argument_group(
        "large runs", "images alone; what is done already is skipped"
    )
    group.add_argument(
        "--parts",
        metavar="FOLDER",
        default=None,
        help="folder, also an address, for what is found, to be made one file by "
        "`merge`; INPUT may be an address, and folders are looked through to the end",
    )
    group.add_argument(
        "--shard",
        metavar="I/N",
        default="1/1",
        help="the share of this process, such as 3/16: the images are shared out by "
        "their names (1/1)",
    )
    group.add_argument(
        "--part-images",
        metavar="N",
        type=int,
        default=500,
        help="images of a file of --parts: what a kill can lose (500)",
    )


def _score(text):
    """The value of --score; what is out of its range `detect` refuses."""
    try:
        return text if text == "best" else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be a number between 0 and 1, or 'best'. Received: {text!r}"
        ) from error


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.open_model import open_predictor
    from effdet_keras.cli.outputs import check_outputs
    from effdet_keras.cli.predict_files import predict_files

    if arguments.parts is not None:
        return 1 if extra("bulk.shard:predict_shard")(arguments) else 0
    if arguments.shard != "1/1":
        raise InvalidValueError("--shard needs --parts FOLDER for what it finds")
    read = [arguments.model, *arguments.inputs]
    check_outputs([arguments.json], read, overwrite=arguments.overwrite)
    failed = predict_files(
        open_predictor(arguments),
        arguments.inputs,
        arguments.out,
        score_threshold=arguments.score,
        calibrated=arguments.calibrated,
        json_path=arguments.json,
        frames=arguments.frames,
        batch_size=arguments.batch_size,
        tiles=arguments.tiles,
        augment=True if arguments.tta == [] else arguments.tta,
        overwrite=arguments.overwrite,
    )
    return 1 if failed else 0
