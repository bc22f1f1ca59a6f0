"""Finds annotations that are suspicious to detectors that were not trained on them.

A detector that was trained on an annotation has learned it, right or wrong. So the
images are divided into folds, with near-duplicates in the same fold. Each fold is
judged by a detector that was trained on the other folds ("out of fold", as in confident
learning: Northcutt et al., 2021). Images that the run was not trained on are judged by
the run's own detector.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.whole_files import (
    atomic_folder,
    check_may_be_folder,
    local_path,
    write_text,
)
from effdet_keras.data.any_format import load_splits
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats.writing import encode_image
from effdet_keras.data.group_split import divide
from effdet_keras.data.record import load_image
from effdet_keras.data.split_groups import image_groups
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.evaluate import image_results
from effdet_keras.errors import (
    EffDetError,
    InvalidStateError,
    InvalidValueError,
    check_choice,
    first_line,
    printable,
)
from effdet_keras.extras.analysis import Suspect
from effdet_keras.extras.data_check.doubts import find_doubts
from effdet_keras.extras.label_next.tools import (
    FOLDER,
    IMAGES,
    TOOLS,
    Classes,
    ImageToLabel,
)
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.components import choose_splits
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import RunFolder, fingerprint, read_to_resume

LEAST_SUSPICION = 0.3
_FOLDS = "folds.json"


def write_suspects(
    run: str | os.PathLike[str],
    data: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    to: str = "coco",
    *,
    format: str | None = None,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    split: str | None = None,
    folds: int = 3,
    least_suspicion: float = LEAST_SUSPICION,
) -> list[Suspect]:
    """Writes the images with suspicious annotations for a labelling tool.

    `out` contains `images/` and the tool's file with corrected boxes, as the detectors
    suggest: missing boxes are added, classes and positions are changed. `suspects.csv`
    lists each change, the most suspicious first. It also lists annotations near which
    no detector found an object. These stay in the tool's file, because only a person
    can tell whether there is an object.

    Args:
        run: str or path, the folder of a run. Images that the run was not trained on
            are judged by its best checkpoint. The others are judged by detectors that
            are trained with the settings of the run. If the run's own data cannot be
            read any more, that applies to all images.
        data: str or path of a dataset. Whatever cannot be read is left out, with a
            warning.
        out: str or path, the folder to create. It appears only when it is complete, and
            not at all if nothing is suspicious. The trainings are in a folder beside
            it, whose name ends in "_folds".
        to: "labelstudio", "cvat", "labelme" or "coco", the labelling tool or format.
        format, unlabelled, reader_options: as for `load`, for `data`.
        split: str, the split of `data` to judge. None judges all splits.
        folds: int, at least 2, the number of detectors to train if some are needed.
        least_suspicion: float in [0, 1]. An annotation is listed if the probability
            that it is wrong is at least this; see `find_doubts`.

    Returns:
        List of `Suspect`, the most suspicious first.

    Raises:
        FileExistsError: If `out` exists.
        ValueError: If `run` is not the folder of a run, if its classes differ from
            those of `data`, if there are fewer images than folds, or if an argument is
            out of range.
        RuntimeError: If the folder of the trainings has trainings on other images or of
            another run.

    Example:
        >>> write_suspects("no such run", "cats", "suspects")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: 'no such run' is not the folder of a \
run...
    """
    if data is None or out is None:
        raise InvalidValueError(
            "To find annotations that may be wrong, give a run, a dataset and a new "
            "folder: `effdet-keras inspect RUN DATA --suspects FOLDER`."
        )
    check_choice("to", to, TOOLS)
    check_whole_number("folds", folds, "[2, inf)")
    check_number("least_suspicion", least_suspicion, "[0, 1]")
    out = local_path(out, "`out`")
    if out.exists():
        raise FileExistsError(f"'{out}' already exists. Give the path of a new folder.")
    check_may_be_folder(out.parent)
    folder = RunFolder(run)
    if not folder.has_run:
        raise InvalidValueError(
            f"'{os.fspath(run)}' is not the folder of a run of `effdet-keras train`, "
            "whose configuration says how to train on the folds."
        )
    splits = load_splits(
        data,
        format=format,
        on_error="skip",
        unlabelled=unlabelled,
        reader_options=reader_options,
    )
    if split is not None:
        check_choice("split", split, splits)
        splits = {split: splits[split]}
    first, *others = splits.values()
    dataset = first.concatenate(*others)
    judge = _Judge(folder, dataset, out.with_name(f"{out.name}_folds"), folds)
    suspects = find_doubts(judge.results())
    suspects = [s for s in suspects if s.suspicion >= least_suspicion]
    if suspects:
        _write(out, dataset, suspects, to, os.fspath(run))
    kinds = Counter(suspect.kind for suspect in suspects)
    listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none"
    print(f"Doubted annotations of {count_of(len(dataset), 'image')}: {listed}")
    return suspects


def fold_indices(
    dataset: DetectionDataset, num_folds: int, seed: int
) -> list[np.ndarray]:
    """Divides images into folds, with images that look alike in the same fold.

    A group of such images is cut only if it makes a fair division impossible.

    Args:
        dataset: `DetectionDataset`.
        num_folds: int, at least 2.
        seed: int. The same seed gives the same folds.

    Returns:
        List of `num_folds` int arrays, the indices of the images of each fold.

    Raises:
        ValueError: If there are fewer images than folds.
    """
    if len(dataset) < num_folds:
        raise InvalidValueError(
            f"{count_of(len(dataset), 'image is', 'images are')} too few for "
            f"{num_folds} folds: give fewer folds (`folds`, --folds), or more images."
        )
    grouping, left = image_groups(dataset.records), np.arange(len(dataset))
    folds = []
    for remaining in range(num_folds, 1, -1):
        division = divide(
            [dataset.records[i] for i in left],
            dataset.num_classes,
            grouping.subset(left),
            round(len(left) * (1 - 1 / remaining)),
            seed,
        )
        folds.append(left[division.in_second])
        left = left[~division.in_second]
    return [*folds, left]


class _Judge:
    """Detects objects in each image with a detector that was not trained on it."""

    def __init__(self, run, dataset, folder, num_folds):
        self.run, self.dataset = run, dataset
        self.folder, self.num_folds = folder, num_folds
        self.configuration = run.read_configuration()

    def results(self):
        """Returns the `ImageResult`s of all readable images, in the order of ids."""
        known = self._trained_on()
        is_known = np.array([_key(r) in known for r in self.dataset.records], bool)
        options = {"batch_size": self._batch_size(), "verbose": False}
        results = []
        if not is_known.all():
            new = self.dataset.subset(np.flatnonzero(~is_known))
            number = count_of(len(new), "image")
            print(f"The run judges {number} that it was not trained on.")
            model = EfficientDet.from_archive(self.run.archive)
            results += image_results(model, new, **options)
        if is_known.any():
            old = self.dataset.subset(np.flatnonzero(is_known))
            folds = fold_indices(old, self.num_folds, self.configuration.seed)
            pairs = [
                (old.subset(np.setdiff1d(np.arange(len(old)), fold)), old.subset(fold))
                for fold in folds
            ]
            self._begin([rest for rest, _ in pairs])
            for number, (rest, left_out) in enumerate(pairs, start=1):
                print(
                    f"Fold {number} of {self.num_folds}: training on {len(rest):,} "
                    f"images, to judge {len(left_out):,} others ...",
                    flush=True,
                )
                model = self._train_fold(rest, left_out, number)
                results += image_results(model, left_out, **options)
        results = self._without_unreadable_images(results)
        return sorted(results, key=lambda result: result.image_id)

    def _without_unreadable_images(self, results):
        """Leaves out the results of images that cannot be read, and warns of them."""
        record_of = {record.image_id: record for record in self.dataset.records}
        unreadable = {}
        for result in results:
            if not len(result.boxes):
                try:
                    load_image(record_of[result.image_id])
                except (ValueError, OSError) as error:
                    unreadable[result.image_id] = first_line(error)
        if unreadable:
            image_id, reason = next(iter(unreadable.items()))
            warnings.warn(
                f"{count_of(len(unreadable), 'image')} cannot be read, so their "
                f"annotations are not judged, such as '{record_of[image_id].name}': "
                f"{reason}",
                stacklevel=2,
            )
        return [result for result in results if result.image_id not in unreadable]

    def _begin(self, training_parts):
        """Records the training images of each fold, or checks that they are the same.

        A finished detector of other folds may have been trained on the very images that
        it is to judge.
        """
        settings = {n: v for n, v in self._fields().items() if n != "verbose"}
        parts = enumerate(training_parts, start=1)
        description = {
            "num_folds": self.num_folds,
            "fields": json.loads(json.dumps(settings)),
            "training_images": {str(k): fingerprint(part) for k, part in parts},
        }
        path = self.folder / _FOLDS
        if path.is_file():
            read_to_resume(path, description, "search for suspects")
            return
        if RunFolder(self.folder / "1").has_run:
            raise InvalidStateError(
                f"'{self.folder}' has trainings, but no {_FOLDS} that says which "
                "images they were trained on. Remove that folder, or give another one "
                "to write to."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(description, indent=1) + "\n")

    def _trained_on(self):
        """Returns the keys of the images that the run was trained on.

        To be safe, all images count as such if the run's data is unknown or unreadable.
        """
        configuration, records = self.configuration, self.dataset.records
        if configuration.data is not None or configuration.train_file_pattern:
            try:
                records = choose_splits(configuration).train.records
            except (EffDetError, OSError) as error:
                warnings.warn(
                    f"What '{self.run.path}' was trained on cannot be read, so all "
                    "images are judged by detectors that are trained without them: "
                    f"{first_line(error)}",
                    stacklevel=2,
                )
        return {_key(record) for record in records}

    def _train_fold(self, train, left_out, number):
        """Returns the detector of a fold, trained now or in an earlier call."""
        out = RunFolder(self.folder / f"{number}")
        if out.finished.is_file():
            return EfficientDet.from_archive(out.archive)
        datasets = {"train": train, "val": left_out}
        options = {"out": out.path, "resume": out.has_run}
        return fine_tune(datasets, **options, **self._fields()).model

    def _fields(self):
        """Returns the settings of each training: those of the run, without its data."""
        fields = self.configuration.to_dict()
        for name in ("data", "train_file_pattern", "val_file_pattern", "format"):
            del fields[name]
        fields |= {"train_split": "auto", "validation_split": "auto"}
        return fields | {"test_split": None, "class_names": None, "verbose": 0}

    def _batch_size(self):
        size = self.configuration.batch_size
        return 8 if size == "auto" else size


def _key(record):
    """Returns a key of an image: its file, its part of a larger file, or its name."""
    if isinstance(record.image, str):
        return os.path.realpath(record.image)
    return (
        str(record.image) if not isinstance(record.image, np.ndarray) else record.name
    )


def _write(out, dataset, suspects, to, model):
    """Writes the images of suspects, the tool's file and the table of suspects.

    The names of the images are in the order of suspicion.
    """
    by_id = {record.image_id: record for record in dataset.records}
    of_image = defaultdict(list)
    for suspect in suspects:
        of_image[suspect.image_id].append(suspect)
    names, images = {}, []
    with atomic_folder(out) as folder:
        (folder / IMAGES).mkdir()
        for place, (image_id, doubts) in enumerate(of_image.items(), start=1):
            record = by_id[image_id]
            content, suffix = encode_image(record)
            stem = pathlib.PurePosixPath(record.name.replace("\\", "/")).stem
            # The number gives the order, and tells images of the same name apart.
            name = f"{place:04d}_{stem}{suffix}"
            (folder / IMAGES / name).write_bytes(content)
            names[image_id] = name
            found, gain = _proposal(record, doubts, dataset), doubts[0].suspicion
            images.append(ImageToLabel(name, record.image_size, found, gain))
        classes = Classes(dataset.class_names, dataset.category_ids)
        text = TOOLS[to](folder, images, classes, model, None)
        write_text(
            folder / "suspects.csv", _table(suspects, names, dataset.class_names)
        )
    print(printable(text.replace(FOLDER, str(out.resolve()))))


def _proposal(record, suspects, dataset):
    """Returns the boxes of an image as the detectors suggest, as `Detections`."""
    annotated = record.boxes_xywh[:, [1, 0, 3, 2]].copy()
    annotated[:, 2:] += annotated[:, :2]
    boxes, labels = annotated.tolist(), record.labels.tolist()
    scores = [1.0] * len(boxes)
    for suspect in suspects:
        if suspect.kind == "missing":
            boxes.append(list(suspect.found_box))
            labels.append(suspect.found_label)
            scores.append(suspect.score)
            continue
        off = np.abs(annotated - suspect.box).sum(axis=1)
        index = int(np.argmin(np.where(record.labels == suspect.label, off, np.inf)))
        scores[index] = max(1.0 - suspect.suspicion, 0.0)
        if suspect.kind == "wrong class":
            labels[index] = suspect.found_label
        elif suspect.kind == "loose box":
            boxes[index] = list(suspect.found_box)
    return Detections(
        np.array(boxes, float).reshape(-1, 4),
        np.array(scores),
        np.array(labels, int),
        class_names=dataset.class_names,
        category_ids=dataset.category_ids,
    )


def _table(suspects, names, class_names):
    """Returns the text of suspects.csv."""

    def name_of(label):
        return "" if label is None else class_names[label]

    def numbers(box):
        return "" if box is None else " ".join(f"{value:.1f}" for value in box)

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    columns = ["image", "written_as", "kind", "suspicion", "class", "found_class"]
    table.writerow([*columns, "score", "box_yxyx", "found_box_yxyx"])
    for one in suspects:
        described = one.name, names[one.image_id], one.kind, f"{one.suspicion:.3f}"
        classes = name_of(one.label), name_of(one.found_label), f"{one.score:.3f}"
        box = None if one.label is None else one.box
        table.writerow([*described, *classes, numbers(box), numbers(one.found_box)])
    return text.getvalue()
