"""`check`: finds the problems of a dataset before training meets them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import io
import os
import unicodedata
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from effdet_keras import box_ops
from effdet_keras._internal.whole_files import is_remote, write_text
from effdet_keras.data.anchor_fit import fitted_image_size, input_boxes
from effdet_keras.data.any_format import load, load_splits
from effdet_keras.data.box_formats import reach_out, suspect_box_format
from effdet_keras.data.dataset import (
    DetectionDataset,
    boxes_per_class,
    count_of,
    why_nothing_to_learn,
)
from effdet_keras.data.formats.dataset_files import first_to_train_on, role_of_split
from effdet_keras.data.near_duplicates import ImageHashes, hash_images
from effdet_keras.data.problems import KINDS, Problem, Severity
from effdet_keras.data.record import clip_boxes_xywh, concat_field, owners, stored_bytes
from effdet_keras.data.shared_images import shared_images
from effdet_keras.errors import require
from effdet_keras.extras.data_check.anchors import Coverage, measure_coverage
from effdet_keras.extras.data_check.look_alikes import (
    SharedLookAlike,
    find_look_alikes,
    find_shared_look_alikes,
)
from effdet_keras.extras.data_check.report import html_of, text_of
from effdet_keras.images import (
    EXIF_ORIENTATION,
    EncodedImage,
    read_image,
    register_heif,
    size_in_file,
)
from effdet_keras.network.config import EfficientDetConfig


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The result of `check`: `print(report)` shows it, `save` writes it with images.

    Attributes:
        dataset: the `DetectionDataset` that was checked.
        problems: tuple of `Problem`, errors first.
        config: the `EfficientDetConfig` with whose input and anchors the boxes were
            measured, or None.
        coverage: tuple of four `Coverage`s, each with `size` ("all", "small", "medium"
            or "large"), `num_boxes`, the `share` of these boxes that has an anchor with
            an IoU of 0.5 or more, and the `mean_iou` of each box and its best anchor.
            Empty without a config.
        hashes: `ImageHashes` of the images, by which near-duplicates were found, or
            None if the images were not decoded.
        shared: tuple of `SharedLookAlike`, images that nearly equal an image of an
            earlier split. Empty unless several splits were checked.
    """

    dataset: DetectionDataset
    problems: tuple[Problem, ...]
    config: EfficientDetConfig | None
    coverage: tuple[Coverage, ...]
    hashes: ImageHashes | None = None
    shared: tuple[SharedLookAlike, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no problem is an error."""
        return all(problem.severity is not Severity.ERROR for problem in self.problems)

    def by_kind(self) -> dict[str, list[Problem]]:
        """Returns a dict from kind to the list of its problems, errors first."""
        groups = {}
        for problem in self.problems:
            groups.setdefault(problem.kind, []).append(problem)
        return groups

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole report with sample images to one HTML file.

        An existing file is replaced as soon as the new one is complete.

        Args:
            path: str or path of the file.

        Raises:
            OSError: If the file cannot be written.
        """
        write_text(path, html_of({"": self}))

    def __str__(self):
        return text_of(self)


def check(
    dataset: DetectionDataset | str | os.PathLike[str],
    *,
    split: str | None = None,
    format: str | None = None,
    model: str | EfficientDetConfig | None = "efficientdet-lite0",
    image_size: int | tuple[int, int] | None = None,
    decode: bool = True,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Finds problems of a dataset that could stop a training or make its result worse.

    Reads every image as training does. Each problem names its file, and the report says
    how training handles it. `check` finds

    - images that are missing, broken, rotated by EXIF data, duplicated, or of another
      size than annotated;
    - near-duplicates, which are images that look alike by a hash of their pixels;
    - boxes that are empty, outside of their image, duplicated or tiny, or that seem to
      have another box format;
    - labels without a class, and classes without a box.

    It also measures how many boxes have an anchor with an IoU of 0.5 or more. It does
    not notice damaged pixels in a JPEG file that can still be decoded to its end.

    Args:
        dataset: `DetectionDataset`, or the path of a dataset, as for `load`.
        split, format: as for `load`, for a path with several splits or formats.
        model: str, the name of a model, or `EfficientDetConfig`. Boxes are measured
            with its input size and its anchors. None leaves that out.
        image_size: int or `(height, width)` of the network's input in pixels. None
            takes the size of a configuration. For the name of a model, None takes the
            size that `effdet-keras train` fits to the boxes.
        decode: bool, whether to decode the images. False reads only their headers,
            which is faster, but does not find truncated files and near-duplicates.
        unlabelled, reader_options: as for `load`, for a path.

    Returns:
        `CheckReport`.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If the path holds no dataset, the model is unknown, or `image_size`
            is given with `model=None`.

    Example:
        >>> import numpy as np
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((64, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40], [4, 50, 20, 70]]],
        ...     [[0, 0]], ["cat"])
        >>> report = check(dataset)
        >>> report.ok, [(p.kind, p.file) for p in report.problems]
        (True, [('clipped box', 'image_id=1')])
        >>> report.coverage[0].num_boxes, report.coverage[0].share
        (2, 1.0)
    """
    config_of = _config_of(model, image_size)
    if isinstance(dataset, str | os.PathLike):
        # The report has the content of the warnings, and more.
        with warnings.catch_warnings(action="ignore"):
            options = {"format": format, "unlabelled": unlabelled}
            options["reader_options"] = reader_options
            dataset = load(dataset, split, on_error="skip", **options)
    report, _ = _check(dataset, config_of(dataset), decode)
    return report


def _config_of(model, image_size):
    """Returns a function that gives the model's config for a training dataset."""
    config = EfficientDetConfig.from_name(model) if isinstance(model, str) else model
    if image_size is not None:
        rule = "`image_size` is the input size of `model`: name a model as well"
        require(config is not None, rule, model=model, image_size=image_size)
        config = config.replace(image_size=image_size)

    def config_of(dataset):
        has_own_size = image_size is not None or not isinstance(model, str)
        if has_own_size or not len(input_boxes(dataset.records, config.image_size)[0]):
            return config
        return config.replace(image_size=fitted_image_size(dataset, config))

    return config_of


def _check(dataset, config, decode):
    """Returns the report of a dataset, and a list of its images' fingerprints."""
    of_images, fingerprints = find_in_images(dataset.records, decode=decode)
    # The size of each image is checked here, not that of a sample.
    known = [p for p in dataset.problems if p.kind != "sizes that differ"]
    problems = [*known, *of_images]
    hashes = hash_images(dataset.records) if decode else None
    if hashes is not None:
        copies = {p.image_ids[1] for p in problems if p.kind == "duplicate image"}
        problems += find_look_alikes(dataset, hashes, copies)
    problems += _find_in_boxes(dataset, config)
    coverage = ()
    if config is not None:
        boxes, _ = input_boxes(dataset.records, config.image_size)
        coverage = measure_coverage(boxes, config)
    report = CheckReport(dataset, _sorted(problems), config, coverage, hashes)
    return report, fingerprints


def check_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    model: str | EfficientDetConfig | None = "efficientdet-lite0",
    image_size: int | tuple[int, int] | None = None,
    decode: bool = True,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> dict[str, CheckReport]:
    """Checks every split of a dataset, and whether the splits share images.

    Args:
        path: str or path of a dataset, as for `load`.
        format, model, image_size, decode, unlabelled, reader_options: as for `check`.
            If `image_size` is fitted, it is fitted to the training split and used for
            all splits.

    Returns:
        Dict from split name to `CheckReport`. If two splits have the same image, the
        later one reports a "shared image". If an image looks like one of an earlier
        split, it is reported as a "shared near-duplicate".

    Raises:
        ValueError, OSError: As `check` does.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> reports = check_splits(folder, model=None)
        '...' is COCO json: splits train, valid
        >>> [(split, len(report.dataset)) for split, report in reports.items()]
        [('train', 3), ('valid', 2)]
    """
    config_of = _config_of(model, image_size)
    with warnings.catch_warnings(action="ignore"):  # the reports say the same
        datasets = load_splits(
            path,
            format=format,
            on_error="skip",
            unlabelled=unlabelled,
            reader_options=reader_options,
        )
    train = datasets[first_to_train_on(datasets)]
    config = config_of(train)
    checked = {name: _check(d, config, decode) for name, d in datasets.items()}
    fingerprints = {name: prints for name, (_, prints) in checked.items()}
    if decode:
        shared = _find_shared_images(datasets, fingerprints)
    else:
        shared = _find_shared_files(datasets)
    reports = {}
    for name, (report, _) in checked.items():
        # `load_splits` found some of these shared images already.
        own = [p for p in report.problems if p.kind != "shared images"]
        problems = [*own, *shared[name]]
        if len(datasets) > 1 and role_of_split(name) in _EVALUATED:
            problems = map(_as_evaluated, problems)
        problems = _sorted(problems)
        reports[name] = dataclasses.replace(report, problems=problems)
    return _with_shared_look_alikes(reports) if decode else reports


def _with_shared_look_alikes(reports):
    """Returns the reports with images that look like those of an earlier split."""
    datasets = {name: report.dataset for name, report in reports.items()}
    hashes = {name: report.hashes for name, report in reports.items()}
    copies = {
        name: {p.image_ids[0] for p in report.problems if p.kind == "shared image"}
        for name, report in reports.items()
    }
    found = find_shared_look_alikes(datasets, hashes, copies)
    for name, shared in found.items():
        problems = [*reports[name].problems, *(one.problem for one in shared)]
        reports[name] = dataclasses.replace(
            reports[name], problems=_sorted(problems), shared=tuple(shared)
        )
    return reports


_EVALUATED = ("validation", "test")  # roles of splits that no run trains on


def _as_evaluated(problem):
    """Returns a problem as that of an evaluation split, which may have no boxes."""
    if problem.kind != "nothing to train on":
        return problem
    return dataclasses.replace(problem, kind="nothing to evaluate on")


def _sorted(problems):
    kinds = sorted(KINDS, key=lambda kind: list(Severity).index(KINDS[kind].severity))
    return tuple(sorted(problems, key=lambda problem: kinds.index(problem.kind)))


# --- Problems of the image files of a dataset.


def find_in_images(records, *, decode=True):
    """Finds images that are missing, broken, rotated, of another size, or duplicates.

    Args:
        records: sequence of `Record`.
        decode: bool, whether to decode the images, not only their headers.

    Returns:
        List of `Problem`; and a list of one fingerprint per image, which equal images
        share, or None for an image that cannot be read.
    """
    # Pillow warns of odd metadata, but does not name the file.
    with (
        warnings.catch_warnings(action="ignore"),
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        looks = list(pool.map(lambda record: _look_at(record, decode), records))
    problems = [problem for problem, _ in looks if problem is not None]
    first = {}
    for record, (_, fingerprint) in zip(records, looks):
        other = first.setdefault(fingerprint, record)
        if fingerprint is not None and other is not record:
            is_same = np.array_equal(record.boxes_xywh, other.boxes_xywh)
            boxes = "the same boxes" if is_same else "other boxes"
            detail = f"same image as {other.name}, with {boxes}"
            ids = (other.image_id, record.image_id)
            problems.append(Problem("duplicate image", record.name, detail, ids))
    return problems, [fingerprint for _, fingerprint in looks]


def _find_shared_images(datasets, fingerprints):
    """Finds images that an earlier split has as well, by their fingerprints."""
    found, first = {}, {}
    for split, dataset in datasets.items():
        found[split], own = [], {}
        for record, fingerprint in zip(dataset.records, fingerprints[split]):
            if fingerprint in first:
                detail = "same image as {1} of split {0!r}".format(*first[fingerprint])
                found[split].append(_problem_of(record, "shared image", detail))
            elif fingerprint is not None:
                own.setdefault(fingerprint, (split, record.name))
        first |= own  # `find_in_images` finds duplicates inside one split
    return found


def _find_shared_files(datasets):
    """Finds images whose file is, or is a copy of, a file of an earlier split."""
    found, earlier = {}, []
    for split, dataset in datasets.items():
        first = {}
        for other in earlier:
            for i in shared_images(datasets[other].records, dataset.records):
                first.setdefault(i, other)
        found[split] = [
            _problem_of(
                dataset.records[i],
                "shared image",
                f"same image as one of split {other!r}",
            )
            for i, other in sorted(first.items())
        ]
        earlier.append(split)
    return found


def _look_at(record, decode):
    """Returns the problem of one image or None, and its fingerprint or None."""
    image = record.image
    if isinstance(image, np.ndarray):
        return None, (image.shape, _hash(np.ascontiguousarray(image)))
    is_part = isinstance(image, EncodedImage)
    place = str(image) if is_part else os.fspath(image)
    try:
        is_read = decode or is_part or is_remote(image)
        data = stored_bytes(image) if is_read else None
        register_heif(place)
        with Image.open(image if data is None else io.BytesIO(data)) as stored:
            orientation = stored.getexif().get(EXIF_ORIENTATION, 1)
            problem = _compare_sizes(record, size_in_file(stored), orientation)
        if decode and (problem is None or problem.kind != "wrong size"):
            read_image(image, size=record.image_size)
    except FileNotFoundError:
        detail = f"the file {place!r} does not exist"
        return _problem_of(record, "missing image", detail), None
    except Exception as error:  # a broken file makes Pillow raise almost anything
        error = error.__cause__ or error  # Pillow's own error, not ours
        reason = str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            reason = "not an image format that Pillow knows"
        return _problem_of(record, "corrupt image", reason), None
    return problem, place if data is None else _hash(data)


def _hash(data):
    return hashlib.blake2b(data, digest_size=16).digest()


def _compare_sizes(record, stored, orientation):
    annotated = tuple(int(side) for side in record.image_size)
    swaps = orientation in (5, 6, 7, 8)
    upright = stored[::-1] if swaps else stored
    there, here = "{}x{}".format(*annotated), "{}x{}".format(*upright)
    kind = None
    detail = "EXIF orientation {}, stored as {}x{}".format(orientation, *stored)
    if annotated not in (upright, stored):
        kind = "wrong size"
        detail = f"annotated as {there}, but the image is {here} (height x width)"
    elif annotated != upright:
        kind, detail = "sideways image", f"{detail}, and so annotated"
    elif orientation in range(2, 9):
        kind = "turned image"
    return kind and _problem_of(record, kind, detail)


def _problem_of(record, kind, detail):
    return Problem(kind, record.name, detail, (record.image_id,))


# --- Problems of the boxes and labels of a dataset.

_ROUNDING = 0.5  # pixels by which a box may exceed its image
_TWIN_IOU = 0.9  # two boxes of a class with this IoU or more are one box drawn twice
_IMBALANCE = 10.0  # times as many boxes in the most frequent class
_TINY = 4.0  # input pixels of the shorter side; the finest level has stride 8


class _Table(NamedTuple):
    """All boxes of a dataset, one per row, and the record of each."""

    records: tuple
    owner: np.ndarray  # [n], the index of the record
    sizes: np.ndarray  # [n, 2], (height, width) of the image
    boxes_xywh: np.ndarray  # [n, 4]
    labels: np.ndarray  # [n]

    def problem(self, kind, row, detail):
        return _problem_of(self.records[self.owner[row]], kind, detail)


def _find_in_boxes(dataset, config):
    """Finds boxes and labels that are wrong, doubtful, or hard to learn."""
    records = dataset.records
    if not records:
        missing = sum(p.kind == "missing image" for p in dataset.problems)
        detail = "there is no image"
        if missing:
            lost = count_of(missing, "annotated image was", "annotated images were")
            detail += (
                f": {lost} not found. Put the images at "
                "the paths that the annotations give, or pass the folder that holds "
                "both the images and the annotations"
            )
        return [Problem("empty dataset", "(no file)", detail)]
    owner = owners(records)
    sizes = np.array([record.image_size for record in records], float)[owner]
    boxes, labels = concat_field(records, "boxes_xywh"), concat_field(records, "labels")
    table = _Table(records, owner, sizes, boxes, labels)
    are_doubtful = any(p.kind == "box columns" for p in dataset.problems)
    text = suspect_box_format(table.boxes_xywh, table.sizes, are_doubtful)
    suspected = [Problem("suspected box format", "(all images)", text)] if text else []
    reason = why_nothing_to_learn(records)
    empty = [Problem("nothing to train on", "(all images)", reason)] if reason else []
    return [
        *empty,
        *_find_clipped(table),
        *suspected,
        *_find_labels_and_ids(table, len(dataset.class_names)),
        *_find_twins_of_boxes(records),
        *_find_classes(boxes_per_class(dataset), dataset.class_names),
        *([] if config is None else _find_tiny(table, config.image_size)),
    ]


def _find_clipped(table):
    _, usable = clip_boxes_xywh(table.boxes_xywh, table.sizes)
    out = reach_out(table.boxes_xywh, table.sizes)
    for row in np.flatnonzero(usable & (out > _ROUNDING)):
        box = describe_box(table.boxes_xywh[row])
        detail = f"{box}: {out[row]:.4g} pixels out of the image"
        yield table.problem("clipped box", row, detail)


def _find_labels_and_ids(table, num_classes):
    for row in np.flatnonzero((table.labels < 0) | (table.labels >= num_classes)):
        detail = f"label {table.labels[row]}, but there are only {num_classes} classes"
        yield table.problem("bad label", row, detail)
    ids = concat_field(table.records, "annotation_ids")
    _, first = np.unique(ids, return_index=True)
    for row in np.setdiff1d(np.arange(len(ids)), first):
        detail = f"id {ids[row]} belongs to another annotation too"
        yield table.problem("duplicate annotation id", row, detail)


def _find_twins_of_boxes(records):
    """Yields a problem for each box that nearly coincides with one of its class."""
    for record in records:
        if len(set(record.labels.tolist())) == len(record.labels):
            continue
        boxes, usable = clip_boxes_xywh(record.boxes_xywh, record.image_size)
        rows = np.flatnonzero(usable & ~record.is_crowd)
        iou = box_ops.pairwise_iou(boxes[rows], boxes[rows])
        same = record.labels[rows][:, None] == record.labels[rows]
        # Each repeated box once, no matter with how many others it coincides.
        for second in np.flatnonzero(np.triu(same & (iou >= _TWIN_IOU), 1).any(axis=0)):
            detail = f"{describe_box(record.boxes_xywh[rows[second]])} occurs twice"
            yield _problem_of(record, "duplicate box", detail)


def _find_classes(counts, class_names):
    """Yields problems for classes with no or few boxes, or with nearly equal names."""
    # Unicode has two forms of an accented letter: one or two characters (NFC, NFD).
    plain = [unicodedata.normalize("NFKC", name).casefold() for name in class_names]
    plain = [" ".join(name.split()) for name in plain]
    most = counts.argmax()
    for label, name in enumerate(class_names):
        found = {}
        if counts[label] == 0:
            found["unused class"] = f"class {name!r} has no box"
        elif counts[label] * _IMBALANCE <= counts[most]:
            found["class imbalance"] = (
                f"{name!r} has {count_of(counts[label], 'box', 'boxes')}, "
                f"{class_names[most]!r} has {counts[most]:,}: more images with "
                f"{name!r} help most; "
                "`effdet-keras train --balance auto` trains on the present ones more "
                "often"
            )
        if plain[label] in plain[:label]:
            first = class_names[plain.index(plain[label])]
            found["similar class names"] = f"{first!r} and {name!r} are two classes"
        for kind, detail in found.items():
            yield Problem(kind, "(all images)", detail)


def _find_tiny(table, image_size):
    boxes, rows = input_boxes(table.records, image_size)
    sides = boxes[:, 2:] - boxes[:, :2]
    for i in np.flatnonzero(sides.min(axis=1, initial=np.inf) < _TINY):
        height, width = sides[i]
        detail = f"{width:.1f} wide, {height:.1f} high on the network's input"
        yield table.problem("tiny box", rows[i], detail)


def describe_box(box_xywh):
    left, top, width, height = box_xywh.tolist()
    return f"left {left:g}, top {top:g}, width {width:g}, height {height:g}"
