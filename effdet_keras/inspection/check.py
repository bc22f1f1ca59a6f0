"""`check`: finds what is wrong with a dataset before training does."""

from __future__ import annotations

import dataclasses
import os
import warnings

from effdet_keras._internal.whole_files import replacing
from effdet_keras.config import EfficientDetConfig
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.load import load, load_splits
from effdet_keras.data.problems import KINDS, Problem, Severity
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.inspection.boxes import find_in_boxes
from effdet_keras.inspection.coverage import (
    Coverage,
    find_hints,
    input_boxes,
    measure_coverage,
)
from effdet_keras.inspection.html_report import write_html
from effdet_keras.inspection.images import find_in_images, find_shared_images
from effdet_keras.inspection.text_report import write_text

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
# Problems with boxes that readers report but keep, so that evaluation sees them.
_KEPT_BY_READERS = ("empty box", "box outside")


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What `check` found. `print(report)` shows it, `save` writes it with images.

    Attributes:
        dataset: the `DetectionDataset` that was checked.
        problems: tuple of `Problem`, errors first. Each has `kind`, `file`,
            `detail` and `severity`.
        config: the `EfficientDetConfig` whose input and anchors boxes were measured
            on, or None.
        coverage: tuple of four `Coverage`: how well its anchors cover all,
            small, medium and large boxes. Empty without a config.
        hints: tuple of str: changes of the anchors that would cover more boxes.
        decoded: bool, whether the images were read to their end.
    """

    dataset: DetectionDataset
    problems: tuple[Problem, ...]
    config: EfficientDetConfig | None
    coverage: tuple[Coverage, ...]
    hints: tuple[str, ...]
    decoded: bool

    @property
    def ok(self) -> bool:
        """Whether no problem is an error."""
        return all(problem.severity is not Severity.ERROR for problem in self.problems)

    def by_kind(self) -> dict[str, list[Problem]]:
        """Returns a dict from each kind to its problems, errors first."""
        groups = {}
        for problem in self.problems:
            groups.setdefault(problem.kind, []).append(problem)
        return groups

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML file that holds everything, with sample images.

        Args:
            path: such as "report.html"; an existing file is replaced, once the new
                one is whole.

        Returns:
            `None`.

        Raises:
            OSError: If it cannot be written.
        """
        with replacing(path) as partial:
            partial.write_text(write_html(self), encoding="utf-8")

    def __str__(self):
        return write_text(self)


def check(
    dataset: DetectionDataset | str | os.PathLike[str],
    *,
    split: str | None = None,
    format: str | None = None,
    model: str | EfficientDetConfig | None = "efficientdet-d0",
    image_size: int | tuple[int, int] | None = None,
    decode: bool = True,
) -> CheckReport:
    """Looks for everything in a dataset that could stop or spoil a training.

    Reads every image as training does, in several threads. Each problem names the
    file that it is in, and the report says what training does about it. Found are:

    - images that are missing, broken, turned, duplicated, or of another size than
      annotated;
    - boxes that are empty, outside of their image, duplicated, tiny, or written in
      another box format than the one they were read in;
    - labels without a class, and classes without a box.

    It also measures how many boxes have an anchor with an IoU of 0.5 or more, and
    looks for anchors that would do better. It does not notice a JPEG file with
    damaged pixels that can still be decoded to its end.

    Args:
        dataset: `DetectionDataset`, or the path of a dataset, as for `load`.
        split: the split of the path to check, where there are several.
        format: the format of the path, as for `load`, where there are several.
        model: name of a model, or `EfficientDetConfig`. Boxes are measured on its
            input and its anchors. None leaves that out.
        image_size: int or `(height, width)` of the network's input in pixels.
            None takes the model's.
        decode: whether to read images to their end. False reads only their
            headers, which is faster and does not find files that are cut off.

    Returns:
        `CheckReport`.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        TypeError: If `dataset` or `model` is something else.
        ValueError: If the path holds no dataset, or the model is unknown.

    Example:
        >>> import numpy as np
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((64, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40], [4, 50, 20, 70]]],
        ...     [[0, 0]], ["cat"])
        >>> report = check(dataset)
        >>> report.ok, [(p.kind, p.file) for p in report.problems]
        (True, [('clipped box', 'image_id=1')])
        >>> report.coverage[0].num_boxes, report.coverage[0].share
        (2, 1.0)
    """
    config = _config(model, image_size)
    if isinstance(dataset, str | os.PathLike):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report says the same, and more
            dataset = load(dataset, split, format=format, on_error="skip")
    elif not isinstance(dataset, DetectionDataset):
        raise InvalidTypeError(
            "`check` expects a `DetectionDataset` or a path. "
            f"Received: dataset of type {type(dataset).__name__}"
        )
    problems = [*dataset.problems, *find_in_images(dataset.records, decode=decode)]
    problems += _find_in_boxes(dataset, config)
    coverage, hints = (), ()
    if config is not None:
        boxes, _ = input_boxes(dataset.records, config.image_size)
        coverage, hints = measure_coverage(boxes, config), find_hints(boxes, config)
    return CheckReport(
        dataset=dataset,
        problems=_sorted(problems),
        config=config,
        coverage=coverage,
        hints=hints,
        decoded=decode,
    )


def check_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    model: str | EfficientDetConfig | None = "efficientdet-d0",
    image_size: int | tuple[int, int] | None = None,
    decode: bool = True,
) -> dict[str, CheckReport]:
    """Checks every split of a dataset, and whether they share images.

    Args:
        path: file or folder, as for `load`.
        format, model, image_size, decode: as for `check`.

    Returns:
        Dict from split name to `CheckReport`. An image that is in two splits is
        reported as a "shared image" of the later one.

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reports say the same, and more
        datasets = load_splits(path, format=format, on_error="skip")
    shared = find_shared_images({name: d.records for name, d in datasets.items()})
    options = {"model": model, "image_size": image_size, "decode": decode}
    reports = {name: check(dataset, **options) for name, dataset in datasets.items()}
    return {
        name: dataclasses.replace(
            report, problems=_sorted([*report.problems, *shared[name]])
        )
        for name, report in reports.items()
    }


def _config(model, image_size):
    if isinstance(model, str):
        model = EfficientDetConfig.from_name(model)
    if model is not None and not isinstance(model, EfficientDetConfig):
        raise InvalidTypeError(
            "`model` must be the name of a model, an `EfficientDetConfig` (such as "
            "`model.config`) or None. "
            f"Received: model of type {type(model).__name__}"
        )
    if image_size is None:
        return model
    if model is None:
        raise InvalidValueError(
            "`image_size` is the input of a model. "
            f"Received: image_size={image_size!r} with model=None"
        )
    return model.replace(image_size=image_size)


def _find_in_boxes(dataset, config):
    found = find_in_boxes(
        dataset.records,
        dataset.class_names,
        num_left_out=_num_left_out(dataset),
        image_size=config and config.image_size,
    )
    told = {problem.kind for problem in dataset.problems} & set(_KEPT_BY_READERS)
    return [problem for problem in found if problem.kind not in told]


def _num_left_out(dataset):
    """How many boxes without area the reader reported and left out."""
    told = sum(problem.kind == "empty box" for problem in dataset.problems)
    kept = sum(
        int((record.boxes_xywh[:, 2:] <= 0).any(axis=1).sum())
        for record in dataset.records
    )
    return max(told - kept, 0)


def _sorted(problems):
    kinds = list(KINDS)

    def place(problem):
        return _ORDER.index(problem.severity), kinds.index(problem.kind)

    return tuple(sorted(problems, key=place))
