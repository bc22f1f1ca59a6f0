"""`label_next`: selects the images to label next, with boxes to correct in a tool."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.whole_files import (
    atomic_folder,
    check_may_be_folder,
    copy_file,
    local_path,
    write_text,
)
from effdet_keras.cli.files import open_any_model
from effdet_keras.data.any_format import load_splits
from effdet_keras.data.dataset import count_of
from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.data.record import Record
from effdet_keras.detect.detect import (
    Progress,
    ScoreRule,
    ScoreThreshold,
    check_batch_size,
)
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import (
    EffDetError,
    InvalidValueError,
    check_choice,
    printable,
    require,
)
from effdet_keras.extras.label_next.ranking import (
    LOWEST_SCORE,
    RankedImage,
    disagreement_of,
    rank,
    uncertainty_of,
)
from effdet_keras.extras.label_next.tools import (
    FOLDER,
    IMAGES,
    TOOLS,
    Classes,
    ImageToLabel,
)
from effdet_keras.images import IMAGE_SUFFIXES, read_image
from effdet_keras.labels import category_ids_or_default
from effdet_keras.predictor import Predictor
from effdet_keras.runs.run_folder import RunFolder


def label_next(
    model: str | os.PathLike | Predictor,
    images: str | os.PathLike,
    out: str | os.PathLike,
    to: str,
    *,
    count: int | None = 100,
    labelled: str | os.PathLike | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    score_threshold: ScoreThreshold = 0.3,
    batch_size: int = 8,
    address: str | None = None,
    verbose: bool = True,
) -> list[RankedImage]:
    """Writes the images to label next, with a detector's boxes to correct.

    The folder `out` has `images/` (copies of the best images), the file of the tool,
    and `ranking.csv`, which lists all images in their order, with the reasons. See
    `ranking.rank` for the order.

    Args:
        model: path of a run's folder, or of any model that `Predictor.load` opens; or a
            `Predictor`.
        images: path of the folder of images to rank; its subfolders are searched, too.
        out: path of the folder to make. It appears when it is complete.
        to: string, the tool: "labelstudio", "cvat", "labelme" or "coco".
        count: int, number of images to write; None writes all.
        labelled: path of the labelled dataset; images that differ from it rank higher.
            Unreadable parts of it are left out, with a warning. None is the data of the
            run, if `model` is a run and its data exists.
        format: string, the format of `labelled`, if it has several.
        unlabelled, reader_options: options for `labelled`, as in `ek.data.load`.
        score_threshold: threshold for the boxes to write, see `Predictor.detect`.
        batch_size: int, images per batch.
        address: string, the prefix of image names in the tasks of Label Studio, such as
            "s3://bucket/"; None is the prefix of its local files.
        verbose: bool, whether to show progress.

    Returns:
        List of `RankedImage`. Their `index` refers to the sorted paths of the images
        that could be read.

    Raises:
        FileExistsError: If `out` exists.
        FileNotFoundError, ValueError: If there is no image, or no model.

    Example:
        >>> label_next("runs/cats", "no such folder", "next", "labelstudio")
        Traceback (most recent call last):
            ...
        FileNotFoundError: There is no folder of images 'no such folder'.
    """
    check_choice("to", to, TOOLS)
    check_batch_size(batch_size)
    if count is not None:
        check_whole_number("count", count, "[1, inf)")
    rule = "`address` (--address) is for the tasks of 'labelstudio' only: leave it out"
    require(address is None or to == "labelstudio", rule, to=to, address=address)
    out = local_path(out, "`out`")
    if out.exists():
        raise FileExistsError(f"'{out}' already exists. Give the path of a new folder.")
    check_may_be_folder(out.parent)
    paths = _find_images(local_path(images, "`images`"))
    how = {"unlabelled": unlabelled, "reader_options": reader_options}
    records = _labelled_records(model, labelled, {"format": format, **how})
    predictor = model if isinstance(model, Predictor) else open_any_model(str(model))
    rule = ScoreRule(predictor.detector, score_threshold, False)
    paths = _without_labelled(paths, records)
    looked = _look_at(predictor, paths, batch_size, rule, verbose)
    if not looked:
        raise InvalidValueError(
            f"None of the {len(paths)} images of '{images}' can be read."
        )
    unlabelled = [one.record for one in looked]
    ranked = rank(
        [one.uncertainty for one in looked],
        [one.disagreement for one in looked],
        hash_images(unlabelled),
        hash_images(records),
    )
    names = _names_of([pathlib.Path(one.record.image) for one in looked], images)
    chosen = ranked if count is None else ranked[:count]
    to_label = [
        ImageToLabel(
            names[one.index],
            looked[one.index].record.image_size,
            looked[one.index].detections,
            one.gain,
        )
        for one in chosen
    ]
    with atomic_folder(out) as folder:
        (folder / IMAGES).mkdir(parents=True)
        for one, image in zip(chosen, to_label):
            source = looked[one.index].record.image
            copy_file(pathlib.Path(source), folder / IMAGES / image.name)
        what_next = TOOLS[to](
            folder, to_label, _classes_of(predictor), _name_of(model), address
        )
        write_text(folder / "ranking.csv", _ranking(ranked, looked, names, chosen))
    boxes = sum(len(image.detections) for image in to_label)
    duplicates = sum(one.duplicate_of is not None for one in ranked)
    print(
        printable(
            f"{len(to_label):,} of {count_of(len(ranked), 'image')} with "
            f"{count_of(boxes, 'box', 'boxes')} were written to "
            f"'{out}'; {duplicates:,} that look like a labelled image or one ranked "
            f"higher come last.\n{what_next.replace(FOLDER, str(out.resolve()))}"
        )
    )
    return ranked


def _find_images(folder):
    """Returns the images in a folder and its subfolders, without hidden ones."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder of images '{folder}'.")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )
    if not paths:
        raise InvalidValueError(
            f"There is no image in '{folder}' or its subfolders: no file ends in "
            f"{', '.join(IMAGE_SUFFIXES)}."
        )
    return paths


def _labelled_records(model, labelled, options):
    """Returns the labelled records: of a dataset, or of the data of a run."""
    if labelled is not None:
        return _records_of(labelled, **options)
    if not isinstance(model, Predictor):
        folder = pathlib.Path(model)
        if folder.is_dir() and RunFolder(folder).has_run:
            run = RunFolder(folder).read_configuration()
            if run.data is not None:
                try:
                    names = ("format", "unlabelled", "reader_options")
                    options = {name: getattr(run, name) for name in names}
                    return _records_of(run.data, **options)
                except (EffDetError, OSError) as error:
                    warnings.warn(
                        f"The data of the run cannot be read ({error}).",
                        stacklevel=3,
                    )
    print(
        "It is not known which images are labelled, so the images are ranked only by "
        "scores and mirror images. Name the labelled dataset with `labelled` "
        "(--labelled DATA)."
    )
    return []


def _records_of(data, **options):
    splits = load_splits(data, on_error="skip", **options)
    # Records without boxes count, too: somebody looked, and found no object.
    return [record for dataset in splits.values() for record in dataset.records]


def _without_labelled(paths, records):
    """Returns the images that are not part of the labelled dataset."""
    known = {
        os.path.realpath(record.image)
        for record in records
        if isinstance(record.image, str)
    }
    left = [path for path in paths if os.path.realpath(path) not in known]
    if len(left) < len(paths):
        number = f"{len(paths) - len(left):,} of {count_of(len(paths), 'image')}"
        print(f"Left out {number}, because they are labelled already.")
    require(
        left,
        "All images are labelled already, so there is none to rank",
        num=len(paths),
    )
    return left


class _Looked(NamedTuple):
    """The detections in an image, and how uncertain they are."""

    record: Record
    detections: Detections
    uncertainty: float
    disagreement: float


def _look_at(predictor, paths, batch_size, rule, verbose):
    """Detects in images and their mirror images, in batches."""
    looked, progress = [], Progress(len(paths), "images")
    options = {"batch_size": batch_size, "verbose": 0}
    options["score_threshold"] = min(LOWEST_SCORE, rule.lowest)
    for first in range(0, len(paths), batch_size):
        images, read = [], []
        for path in paths[first : first + batch_size]:
            try:
                images.append(read_image(path))
                read.append(path)
            except (ValueError, OSError) as error:
                warnings.warn(f"'{path}' is left out: {error}", stacklevel=3)
        if images:
            found = predictor.detect(images, **options)
            mirrors = [np.ascontiguousarray(image[:, ::-1]) for image in images]
            mirrored = predictor.detect(mirrors, **options)
            for k, path in enumerate(read):
                height, width = images[k].shape[:2]
                looked.append(
                    _Looked(
                        _record_of(path, (height, width), len(looked)),
                        # Without pixels: there may be a hundred thousand images.
                        dataclasses.replace(rule.applied_to(found[k]), image=None),
                        uncertainty_of(found[k]),
                        disagreement_of(found[k], mirrored[k], width),
                    )
                )
        if verbose:
            progress.update(min(first + batch_size, len(paths)))
    return looked


def _record_of(path, size, image_id):
    nothing = np.zeros(0)
    return Record(
        image=str(path),
        image_size=size,
        image_id=image_id,
        source_id=image_id,
        file_name=path.name,
        boxes_xywh=nothing,
        labels=nothing,
        is_crowd=nothing,
        area=nothing,
        annotation_ids=nothing,
    )


def _names_of(paths: Sequence[pathlib.Path], folder: Any) -> list[str]:
    """Returns a unique file name for each image, since tools expect one folder."""
    folder = local_path(folder, "`images`")
    names, used = [], set()
    for path in paths:
        name = "__".join(path.relative_to(folder).parts)
        # LabelMe would write one JSON file for both `a.jpg` and `a.png`.
        while pathlib.Path(name).stem.casefold() in used:
            name = f"{pathlib.Path(name).stem}_{path.suffix[1:]}{path.suffix}"
        used.add(pathlib.Path(name).stem.casefold())
        names.append(name)
    return names


def _classes_of(predictor):
    names = predictor.class_names
    if names is None:
        names = tuple(str(i) for i in range(predictor.config.num_classes))
    return Classes(names, category_ids_or_default(predictor.category_ids, len(names)))


def _name_of(model):
    if isinstance(model, Predictor):
        return model.config.name
    return pathlib.Path(model).name or str(model)


def _ranking(ranked, looked, names, chosen):
    """Returns the text of ranking.csv: each image, and the reasons for its rank."""
    text = io.StringIO()
    columns = ["rank", "image", "gain", "uncertainty", "disagreement", "novelty"]
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*columns, "boxes", "looks_like", "written_as"])
    written = {one.index for one in chosen}
    for place, one in enumerate(ranked, start=1):
        signs = one.gain, one.uncertainty, one.disagreement, one.novelty
        twin = one.duplicate_of
        looks_like = "" if twin is None else "labelled" if twin < 0 else names[twin]
        source = looked[one.index]
        table.writerow(
            [
                place,
                source.record.image,
                *(f"{sign:.4f}" for sign in signs),
                len(source.detections),
                looks_like,
                names[one.index] if one.index in written else "",
            ]
        )
    return text.getvalue()
