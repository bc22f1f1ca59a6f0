"""Arguments that several commands have."""

import argparse

# The names that `effdet_keras.data.load` and `convert` take, which import too much.
DATASET_FORMATS = ("coco", "voc", "yolo", "csv", "tfrecord", "tfds")


def add_model(parser: argparse.ArgumentParser, *, may_be_exported: bool) -> None:
    """Adds the argument MODEL."""
    exported = ", or an exported file or folder" if may_be_exported else ""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .keras file, a folder of CheckpointArchive, the folder of a run of "
        "`train`, the name of a published model such as efficientdet-d0"
        f"{exported}",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds `--threads`, for models that may be exported."""
    parser.add_argument(
        "--threads",
        metavar="N",
        type=int,
        default=None,
        help="threads that an exported model may use",
    )


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """Adds `--threads`, `--runtime` and `--precision`: where a model computes."""
    add_threads(parser)
    parser.add_argument(
        "--runtime",
        choices=("openvino", "onnx", "litert"),
        default=None,
        help="convert a live model, in memory, for this runtime, which may be faster",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="what OpenVINO computes in: bfloat16 is faster on a processor that has it",
    )


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Adds `--overwrite`, for commands that write files."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace files that are there already; without it they are kept, and the "
        "command ends with an error before any work",
    )


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Adds `--raw`, for commands that read weights."""
    parser.add_argument(
        "--raw",
        dest="averages",
        action="store_false",
        help="read the raw weights even if the file has moving averages of them",
    )


def add_image_size(
    parser: argparse._ActionsContainer,
    meaning: str,
    *,
    may_be_auto: bool = False,
    default: object = None,
) -> None:
    """Adds `--image-size`: an int, `(height, width)`, or the word "auto"."""
    parser.add_argument(
        "--image-size",
        metavar="PIXELS",
        type=size_or_auto if may_be_auto else int,
        nargs="+",
        action=_OneOrTwo,
        default=default,
        help=meaning,
    )


def size_or_auto(text: str) -> int | str:
    """The number that a flag has, or the word "auto".

    Example:
        >>> size_or_auto("320"), size_or_auto("auto")
        (320, 'auto')
    """
    return text if text == "auto" else int(text)


class _OneOrTwo(argparse.Action):
    """One size, or height and width."""

    def __call__(self, parser, namespace, values, option_string=None):
        if len(values) > 2 or (len(values) == 2 and "auto" in values):
            auto = ", or auto" if self.type is size_or_auto else ""
            parser.error(f"{option_string} takes one number, or two{auto}")
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


def add_dataset_format(
    parser: argparse.ArgumentParser, flag: str = "--format", of: str = "DATA"
) -> None:
    """Adds a flag for the format of a dataset, to be given if it is not clear."""
    parser.add_argument(
        flag,
        choices=DATASET_FORMATS,
        default=None,
        help=f"the format of {of}, if it holds several; found out by default",
    )
