"""Arguments that several subcommands share, with one help text each.

The module of a subcommand has `SUMMARY` for the list of commands, `DESCRIPTION` for its
own help, `add_arguments(parser)`, and `run`, which takes the arguments by their names.
"""

from __future__ import annotations

import argparse

# Copies of the names that `effdet_keras.data.load` and `Predictor` take: importing
# these modules would load too much.
DATASET_FORMATS = (
    "coco",
    "voc",
    "yolo",
    "csv",
    "tfrecord",
    "tfds",
    "cvat",
    "labelme",
    "via",
    "label_studio",
    "labelbox",
    "create_ml",
    "hugging_face",
    "edge_impulse",
    "keras_txt",
    "supervisely",
    "bdd",
    "ground_truth",
    "dlib",
    "opencv",
    "kitti",
    "wider_face",
    "open_images",
    "vott",
    "labelme_xml",
    "mot",
    "datumaro",
)
ON_ERROR = ("auto", "raise", "skip")
RUNTIMES = ("auto", "keras", "openvino", "onnx", "litert")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds MODEL, which `cli.files.open_any_model` opens."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "the model: a .keras file, a folder that CheckpointArchive wrote, the "
            "folder of a run of `train`, the name of a published model such as "
            "efficientdet-d0, or an exported file or folder"
        ),
    )


def add_data(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Adds DATA; `nargs="?"` makes it optional."""
    parser.add_argument(
        "data",
        nargs=nargs,
        metavar="DATA",
        help=(
            "the dataset: a file, a folder, or a pattern of TFRecord files such as "
            "'data/val-*.tfrecord'"
        ),
    )


def add_format(parser: argparse.ArgumentParser, data: str = "DATA") -> None:
    """Adds `--format`, the format of DATA."""
    parser.add_argument(
        "--format",
        choices=DATASET_FORMATS,
        metavar="NAME",
        help=(
            f"the format of {data}, needed only if it has files of several formats: "
            f"{', '.join(DATASET_FORMATS)} (default: detected from the files)"
        ),
    )


def add_unlabelled(parser: argparse.ArgumentParser) -> None:
    """Adds `--unlabelled`: what to do with images that have no annotation file."""
    parser.add_argument(
        "--unlabelled",
        choices=("negative", "skip"),
        help=(
            "what to do with images of a YOLO dataset that have no txt file: negative "
            "keeps them as images without objects (the default, with a warning), skip "
            "leaves them out"
        ),
    )


def add_on_error(parser: argparse.ArgumentParser) -> None:
    """Adds `--on-error` and `--skip-errors`: `on_error` of `ek.data.load`."""
    parser.add_argument(
        "--on-error",
        choices=ON_ERROR,
        help=(
            "what to do about errors in the dataset, such as missing images: raise "
            "stops and lists the errors (the default of `convert`), skip leaves out "
            "whatever has an error and prints a warning, auto does this for a few "
            "errors and stops if there are more (the default of the other commands)"
        ),
    )
    parser.add_argument(
        "--skip-errors",
        action="store_const",
        dest="on_error",
        const="skip",
        help="the same as --on-error skip",
    )


def add_reader_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--reader-option NAME=VALUE`: `reader_options` of `ek.data.load`."""
    parser.add_argument(
        "--reader-option",
        action=ReaderOption,
        dest="reader_options",
        metavar="NAME=VALUE",
        help=(
            "an option of the reader of one format, such as class_attribute=kind for "
            "VIA, one_based=false for Pascal VOC, or box_format for Hugging Face; may "
            "be given several times"
        ),
    )


def add_batch_size(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds `--batch-size`, for commands that detect in images."""
    parser.add_argument(
        "--batch-size",
        type=int,
        default=default,
        metavar="N",
        help="number of images to process at once (default: %(default)s)",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds `--threads`."""
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="number of threads that an exported model may use",
    )


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """Adds `--runtime`."""
    parser.add_argument(
        "--runtime",
        choices=RUNTIMES,
        help=(
            "convert a model that is not exported yet, in memory, for this runtime, "
            "which may be faster; auto takes the fastest runtime that is installed"
        ),
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Adds `--precision`, the precision of a runtime."""
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help=(
            "the precision in which OpenVINO computes; bfloat16 is faster on "
            "processors that support it (default: %(default)s)"
        ),
    )


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Adds `--raw`, for commands that read weights."""
    parser.add_argument(
        "--raw",
        action="store_true",
        help="read the raw weights, even if the file also has their moving averages",
    )


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Adds `--overwrite`."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help=(
            "replace existing files; without this flag, the command keeps them and "
            "ends with an error before it does any work"
        ),
    )


def add_training_fields(
    parser: argparse.ArgumentParser, steps_help: str
) -> argparse._ArgumentGroup:
    """Adds flags for the trainings that a command starts, and `--set` for the rest.

    As in `train`, fields that are not given keep their defaults. Returns the group of
    these arguments.
    """
    fields = parser.add_argument_group("trainings", argument_default=argparse.SUPPRESS)
    add_format(fields)
    add_unlabelled(fields)
    add_on_error(fields)
    add_reader_options(fields)
    fields.add_argument("--steps", type=int, metavar="N", help=steps_help)
    fields.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="number of images per step (default: 8)",
    )
    fields.add_argument(
        "--seed", type=int, metavar="N", help="random seed (default: 0)"
    )
    add_settings(
        parser,
        ("set any other field of a run, as in `train`; may be given several times"),
    )
    return fields


def add_settings(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds `--set FIELD=VALUE`, with its help text, which sets any field of a run."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help=text,
    )


# --- Types and actions of arguments.


def size_or_auto(text: str) -> int | str:
    """Returns the number in the text, or the word "auto"."""
    try:
        return text if text == "auto" else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a number of pixels, or auto. Received: {text!r}"
        ) from error


class ReaderOption(argparse.Action):
    """Parses NAME=VALUE into an item of a dict; the value is a bool or a string."""

    def __call__(self, parser, namespace, values, option_string=None):
        name, _, value = values.partition("=")
        if not name or not value:
            parser.error(
                f"{option_string} expects NAME=VALUE, such as class_attribute=kind. "
                f"Received: {values!r}"
            )
        known = getattr(namespace, self.dest, None) or {}
        value = {"true": True, "false": False}.get(value.lower(), value)
        setattr(namespace, self.dest, {**known, name: value})


class OneOrTwo(argparse.Action):
    """Parses one size, or height and width, for a flag with `nargs="+"`."""

    def __call__(self, parser, namespace, values, option_string=None):
        if len(values) > 2 or (len(values) == 2 and "auto" in values):
            auto = ", or auto" if self.type is size_or_auto else ""
            parser.error(f"{option_string} takes one number, or two{auto}")
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))
