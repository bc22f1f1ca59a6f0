"""The text, HTML file and images that `effdet-keras inspect` outputs besides JSON."""

from __future__ import annotations

from PIL import Image

from effdet_keras import augment, visualize
from effdet_keras._internal.whole_files import atomic_write, local_path, write_text
from effdet_keras.cli.files import check_outputs, image_files
from effdet_keras.data.anchor_fit import input_boxes
from effdet_keras.data.default_jitter import scale_jitter
from effdet_keras.data.formats.dataset_files import role_of_split
from effdet_keras.errors import require
from effdet_keras.extras.data_check.anchors import fit_anchors
from effdet_keras.extras.data_check.report import html_of
from effdet_keras.images import image_format_of

_AUGMENTED = "augmented.png"


def check_paths(data, split, html, augmented, out, overwrite):
    """Returns the checked paths of the HTML file and of the images, or None."""
    rule = "`--out` names the image of `--augment`: add `--augment`, or leave it out"
    require(augmented is not None or out is None, rule, out=out)
    html = None if html is None else local_path(html, "`html`")
    out = _AUGMENTED if out is None else out
    out = None if augmented is None else local_path(out, "`out`")
    if out is not None:
        image_format_of(out, "`--out`")
    check_outputs([html], [data], overwrite=True)
    check_outputs([html, out], overwrite=True)  # these must be two different paths
    # Without `split` there may be several images, which get other names.
    check_outputs([html, out if split else None], overwrite=overwrite)
    return html, out


def named_augmentations(names):
    """Returns the augmentations with these comma-separated names, in that order."""
    names = [name.strip() for name in (names or "").split(",")]
    return [augment.augmentation_of(name) for name in names if name]


def print_and_draw(data, reports, html, augmentations, out, anchors, overwrite):
    """Prints the reports, and writes the HTML file and the images on request."""
    for name, report in reports.items():
        print(f"\n== {name} ==\n{report}")
    images = dict.fromkeys(reports, out) if out is not None else {}
    if len(images) > 1:
        images = {name: out.with_stem(f"{out.stem}-{name}") for name in images}
    read = [path for r in reports.values() for path in image_files(r.dataset)]
    check_outputs(images.values(), read, overwrite=overwrite)
    if html is not None:
        write_text(html, html_of(reports))
        print(f"Report with images: {html}")
    for name, path in images.items():
        config = reports[name].config
        grid = visualize.augmented(
            reports[name].dataset,
            augmentations,
            image_size=config.image_size,
            pad_value=config.padding_rgb,
            resize_method=config.resize_method,
            scale_jitter=scale_jitter(len(reports[name].dataset)),
        )
        with atomic_write(path) as partial:
            Image.fromarray(grid).save(partial, image_format_of(path, "`--out`"))
        print(f"Images as training sees them: {path}")
    if anchors:  # last, because it raises an error if there are no boxes
        _print_anchors(data, reports)


def _print_anchors(data, reports):
    """Prints anchors fitted to the training splits, or to all splits if none is one."""
    names = [name for name in reports if role_of_split(name) == "train"]
    chosen = {name: reports[name] for name in names or reports}
    with_boxes = {
        name: report
        for name, report in chosen.items()
        if len(input_boxes(report.dataset.records, report.config.image_size)[0])
    }
    rule = "Anchors are fitted to boxes, and these splits have none to train on"
    require(with_boxes, rule, splits=list(chosen))
    for name, report in with_boxes.items():
        fit = fit_anchors(report.dataset, report.config)
        print(f"\n== anchors for {name} ==\n{fit}\n{fit.how_to_use(data)}")
