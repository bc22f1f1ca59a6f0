"""`effdet-keras predict`."""

from __future__ import annotations

from typing import Annotated

from effdet_keras.cli.arguments import Flag, Precision, Runtime
from effdet_keras.errors import InvalidValueError


def score(text: str) -> float | str:
    """The value of --score-threshold; what is out of its range `detect` refuses."""
    return text if text == "best" else float(text)


def run(
    model: str,
    inputs: Annotated[list[str], Flag(metavar="INPUT")],
    *,
    out: str | None = None,
    json: str | None = None,
    score_threshold: Annotated[
        float | str, Flag(type=score, aliases=("--score",))
    ] = 0.3,
    calibrated: bool = False,
    batch_size: int = 1,
    tiles: Annotated[int | None, Flag(nargs="?", const=True)] = None,
    tta: Annotated[list[float] | None, Flag(nargs="*")] = None,
    threads: int | None = None,
    runtime: Runtime | None = None,
    precision: Precision = "float32",
    overwrite: bool = False,
    parts: str | None = None,
    shard: str = "1/1",
    part_images: int = 500,
) -> int:
    """detect in images, folders, videos, cameras

    Prints one line per image or frame. --out draws the boxes, and --json writes them to
    a COCO file with scores. The exit status is 1 if an image could not be read.

    Args:
        inputs: an image, a folder of images, a video, the number of a camera, or the
            address of a stream; press Ctrl-C to end a camera or stream
        out (FOLDER): folder for images and videos with the boxes drawn
        json (FILE): COCO file for the boxes
        score_threshold (S): lowest score to keep, or 'best' for the threshold of each
            class that `eval --store-thresholds` stored with the model
        calibrated: give scores the temperature that `eval --store-thresholds` stored
            with the model
        tiles (PIXELS): cut large images into square tiles of this side (by default the
            network's input size)
        tta (SCALE): test-time augmentation: detect in each image and its mirror image,
            at these scales (1.0), and fuse the boxes
        runtime: convert a live model, in memory, for this runtime; auto, the fastest
            that is installed, is the default for 2,000 images and more

    large runs of images, which skip what is already done:
        parts (FOLDER): folder or address for what is found, which `merge` makes one
            file of; INPUT may be an address, and folders inside it are searched too
        shard (I/N): the share of this process, such as 3/16: the images are shared out
            by their names
        part_images (N): images of a file of --parts: what a kill can lose
    """
    from effdet_keras.cli.files import check_outputs, open_any_model
    from effdet_keras.cli.predict_files import is_worth_converting, predict_files

    def open_model():
        is_open = (runtime, threads, precision, parts) == (None, None, "float32", None)
        chosen = "auto" if is_open and is_worth_converting(inputs) else runtime
        return open_any_model(model, threads, runtime=chosen, precision=precision)

    options = {
        "batch_size": batch_size,
        "calibrated": calibrated,
        "tiles": tiles,
        "augment": True if tta == [] else tta,
    }
    if parts is not None:
        if (out, json) != (None, None):
            raise InvalidValueError(
                "--out and --json do not go with --parts: `effdet-keras merge` makes "
                "one file of the parts"
            )
        from effdet_keras.extras.bulk.shard import predict_shard

        sizes = {"shard": shard, "part_images": part_images}
        failed = predict_shard(
            open_model, inputs, parts, score_threshold, **sizes, **options
        )
        return 1 if failed else 0
    if shard != "1/1":
        raise InvalidValueError("--shard needs --parts FOLDER for what it finds")
    check_outputs([json], [model, *inputs], overwrite=overwrite)
    failed = predict_files(
        open_model(),
        inputs,
        out,
        score_threshold=score_threshold,
        json_path=json,
        overwrite=overwrite,
        **options,
    )
    return 1 if failed else 0
