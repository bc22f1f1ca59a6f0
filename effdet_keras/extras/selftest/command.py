"""`effdet-keras selftest`: can this model learn this dataset, and if not, why not?"""

from __future__ import annotations

import warnings
from typing import Annotated

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import DatasetFormat, Flag, ImageSize, Settings
from effdet_keras.errors import InvalidValueError, check_argument


def run(
    data: str,
    archive: Annotated[str | None, Flag(metavar="MODEL")] = None,
    *,
    split: str | None = None,
    format: DatasetFormat | None = None,
    model: str | None = None,
    image_size: ImageSize | None = None,
    settings: Settings = (),
    num_images: int | None = None,
    training: bool = True,
    steps: int = 400,
) -> int:
    """say at which stage a training loses its boxes

    For a training that does not learn: follows the boxes of a dataset through reading,
    letterbox, matching and encoding, scores what is left after each, and has the model
    learn four images by heart. The exit status is 1 if a stage fails. docs/selftest.md
    says what each stage means.

    Args:
        archive: a .keras file, a run or a folder of CheckpointArchive (a new model)
        split (NAME): the split to test with (train, or else the only one)
        model (NAME): a preset, in the place of MODEL; made as `effdet-keras train`
            makes it (efficientdet-lite0)
        image_size: the input size of --model: one number, or height and width (fitted
            to the boxes)
        settings (FIELD=VALUE): any other field of a run, as of `effdet-keras train`,
            such as model_config.anchor_scale=3
        num_images (N): follow the boxes of so many images, drawn at random (all)
        training: leave out the last stage, which takes minutes
        steps (N): steps of the last stage at most
    """
    keras.require("`effdet-keras selftest`")
    from effdet_keras._internal.backend import require_tf_data
    from effdet_keras.extras.selftest.self_test import self_test
    from effdet_keras.model.efficientdet import EfficientDet
    from effdet_keras.runs.configuration import RunConfiguration, parse_settings
    from effdet_keras.runs.parts import make_model

    require_tf_data()
    flags = {"model": model, "image_size": image_size}
    flags = {name: value for name, value in flags.items() if value is not None}
    fields = parse_settings(settings, flags)
    of_new_model = {"--model": model, "--image-size": image_size, "--set": settings}
    made_only = [flag for flag, value in of_new_model.items() if value]
    if archive is not None and made_only:
        raise InvalidValueError(
            f"{made_only[0]} is for a model that is new, and MODEL, '{archive}', is "
            "one that is there: leave one of the two out."
        )
    dataset = _read(data, split, format)
    if archive is not None:
        tested = EfficientDet.from_archive(archive)
    else:  # as a run would make it for this dataset
        if not training:
            fields.setdefault("weights", None)
        if all(record.usable().is_crowd.all() for record in dataset.records):
            # Nothing to fit them to; the first stage says so.
            fields = {"image_size": None, "anchors": None, **fields}
        tested = make_model(RunConfiguration().replace(**fields), dataset)
    height, width = tested.config.image_size
    print(f"{tested.config.name} at {height}x{width} on {dataset!r}")
    is_eager = bool(fields.get("run_eagerly", False))
    options = {"training": training, "num_images": num_images, "steps": steps}
    report = self_test(dataset, tested, run_eagerly=is_eager, **options)
    return 0 if report.ok else 1


def _read(data, split, format):
    """The images to test with; the stages say what is wrong with them."""
    from effdet_keras.data.any_format import find, load, load_splits

    with warnings.catch_warnings(action="ignore"):
        if split is None and "train" in find(data, format).readers:
            split = "train"
        if split is None:
            return load(data, format=format, on_error="skip")
        # With the others, so that labels are those of a training on all of it.
        splits = load_splits(data, format=format, on_error="skip")
    expected = f"one of {list(splits)}, the splits of '{data}'"
    check_argument(split in splits, "--split", split, expected)
    return splits[split]
