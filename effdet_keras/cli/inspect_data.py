"""Reports on a dataset: on the terminal, as HTML pages, and as augmented images."""

import os
import pathlib

from PIL import Image

from effdet_keras import augment as augmentations
from effdet_keras import visualize
from effdet_keras._internal.whole_files import local_path, replacing
from effdet_keras.cli.outputs import check_outputs
from effdet_keras.data.anchor_fit import fit_anchors
from effdet_keras.data.check import check, check_splits
from effdet_keras.data.check_report import write_html_of_splits
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.locate import looks_like_weights
from effdet_keras.weights.read_weights import what_weights_are


def inspect_data(
    data: str | os.PathLike,
    *,
    split: str | None = None,
    format: str | None = None,
    html: str | os.PathLike | None = None,
    augment: str | None = None,
    out: str | os.PathLike = "augmented.png",
    anchors: bool = False,
    overwrite: bool = False,
    **options,
) -> bool:
    """Checks a dataset, prints the reports, and writes them as pages.

    Args:
        augment: names in `effdet_keras.augment.NAMES`, with commas between them.
            Images are drawn as training with these augmentations sees them; with an
            empty text, as it sees them without any. None draws nothing.
        out: path of the image that `augment` asks for. If there are several splits,
            the name of the split is added to the name of each image.
        anchors: bool, whether to fit the anchors of the model to the boxes of the
            training split, or of each where none is called "train".
    """
    html = None if html is None else local_path(html, "`html`")
    out = None if augment is None else local_path(out, "`out`")
    check_outputs([html, out], [data], overwrite=True)
    # Of several splits, none of which is asked for, the images have other names.
    check_outputs([html, out if split else None], overwrite=overwrite)
    chosen = [] if augment is None else _augmentations(augment)
    try:
        if split is None:
            reports = check_splits(data, format=format, **options)
        else:
            report = check(data, split=split, format=format, **options)
            reports = {split: report}
    except (InvalidValueError, OSError) as error:
        if looks_like_weights(data):
            raise InvalidValueError(
                f"'{data}' holds weights, not a dataset. {what_weights_are(data)} Use "
                f"`effdet-keras inspect-weights {data}`."
            ) from error
        raise
    for name, report in reports.items():
        print(f"\n== {name} ==\n{report}")
    if anchors:
        _fit_anchors(reports, data)
    images = {} if out is None else {n: _of_split(out, n, reports) for n in reports}
    check_outputs(images.values(), [data], overwrite=overwrite)
    if html is not None:
        with replacing(html) as partial:
            partial.write_text(write_html_of_splits(reports), encoding="utf-8")
        print(f"Report with images: {html}")
    for name, path in images.items():
        _draw_augmented(reports[name], chosen, path)
    return all(report.ok for report in reports.values())


def _fit_anchors(reports: dict, data: str | os.PathLike) -> None:
    """Prints which anchors would fit, for what is trained on."""
    chosen = ["train"] if "train" in reports else list(reports)
    for name in chosen:
        fit = fit_anchors(reports[name].dataset, reports[name].config)
        print(f"\n== anchors for {name} ==\n{fit}\n{fit.how_to_use(data)}")


def _of_split(path: pathlib.Path, split: str, reports: dict) -> pathlib.Path:
    """The path of the file for one split: with its name, if there are several."""
    return path if len(reports) == 1 else path.with_stem(f"{path.stem}-{split}")


def _augmentations(names: str) -> list:
    """The augmentations of some names, with their usual settings."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    return [augmentations.names.augmentation_of(name) for name in chosen]


def _draw_augmented(report, chosen, path) -> None:
    """Writes a grid of images as training with these augmentations sees them."""
    grid = visualize.augmented(
        report.dataset,
        chosen,
        image_size=report.config.image_size,
        pad_value=report.config.padding_rgb,
        resize_method=report.config.resize_method,
    )
    with replacing(path) as partial:
        Image.fromarray(grid).save(partial)
    print(f"Images as training sees them: {path}")
