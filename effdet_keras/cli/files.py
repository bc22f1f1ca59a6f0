"""Resolves the paths of a command: a model to open, a dataset, files to write."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import (
    check_may_be_folder,
    check_may_be_written,
    is_remote,
    local_path,
)
from effdet_keras.data.formats.dataset_files import role_of_split, visible_files
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.runtime import read_report
from effdet_keras.images import IMAGE_SUFFIXES
from effdet_keras.network.config import MODEL_NAMES
from effdet_keras.predictor import Predictor
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    CONFIGURATION_FILE,
    is_archive,
)

if TYPE_CHECKING:
    from effdet_keras.data.dataset import DetectionDataset
    from effdet_keras.data.known_formats import Source
    from effdet_keras.model.efficientdet import EfficientDet


def open_any_model(
    model: str,
    threads: int | None = None,
    *,
    runtime: str | None = None,
    precision: str = "float32",
) -> Predictor:
    """Opens a model of any kind, or fetches a published model by its name."""
    runtime = None if runtime == "keras" else runtime
    if is_published(model):
        live = open_live_model(model)
        threads = None if runtime is None else threads
        options = {"num_threads": threads, "precision": precision}
        return Predictor(live, runtime=runtime, **options)
    return Predictor.load(model, threads, runtime=runtime, precision=precision)


def open_live_model(model: str) -> EfficientDet:
    """Opens an archive or a run, or fetches a published model by its name."""
    keras.require(f"Opening '{model}'")
    from effdet_keras.model.efficientdet import EfficientDet

    if is_published(model):
        return EfficientDet.from_preset(model, weights="coco")
    return EfficientDet.from_archive(model)


def is_published(model: str) -> bool:
    """Returns whether it is the name of a published model, and not of a file."""
    return model in MODEL_NAMES and not pathlib.Path(model).exists()


# --- A dataset as given by flags: path, split and format.

# The splits to evaluate on if none is named. The first one that exists is used.
EVALUATION_SPLITS = ("test", "valid", "validation", "val")


@dataclasses.dataclass(frozen=True)
class DatasetSource:
    """The location of a dataset, and which part of it to read."""

    flag: str
    path: str | None
    split: str | None = None
    format: str | None = None
    unlabelled: str | None = None
    on_error: str | None = None  # None is "auto", or the value a run was trained with
    reader_options: Mapping[str, Any] | None = None

    def __post_init__(self):
        if self.path is None and self.split:
            raise InvalidValueError(
                f"The split {self.split!r} is given without a dataset: "
                f"add `{self.flag} DATA`."
            )

    def load(self, preferred: tuple[str, ...]) -> DetectionDataset:
        """Reads the requested split, or else the first preferred one that exists."""
        from effdet_keras.data.any_format import read_found

        return read_found(
            self.found,
            self.path,
            self.chosen_split(preferred),
            on_error=self.on_error or "auto",
            unlabelled=self.unlabelled,
        )

    @functools.cached_property
    def found(self) -> Source:
        """The dataset that `find` finds at the path."""
        from effdet_keras.data.find_dataset import find

        return find(self.path, self.format, self.reader_options)

    def takes(self, reader_options: Mapping[str, Any]) -> bool:
        """Returns whether the reader of the dataset accepts these options."""
        other = dataclasses.replace(self, reader_options=reader_options)
        with contextlib.suppress(InvalidValueError):
            return bool(other.found)
        return False

    def chosen_split(self, preferred: tuple[str, ...]) -> str:
        """Returns the requested split, or else the first preferred one that exists."""
        if self.split is not None:
            return self.split
        names = list(self.found.readers)
        found = [name for name in preferred if name in names]
        roles = [role_of_split(name) for name in preferred]
        found = found or [
            n for role in roles for n in names if role_of_split(n) == role
        ]
        if not found and len(names) > 1:
            raise InvalidValueError(
                f"`{self.flag} {self.path}` has the splits {', '.join(names)}, but "
                f"none with a name such as {', '.join(preferred)}: give the name of "
                "the split to use."
            )
        return (found or names)[0]

    def is_folder_of_images(self) -> bool:
        """Returns whether the path is a folder with images directly in it."""
        folder = path_of(self.path)
        files = folder.iterdir() if folder.is_dir() else ()
        return any(file.suffix.lower() in IMAGE_SUFFIXES for file in files)


# --- Output paths: a command never overwrites its inputs or, by default, other files.


def check_outputs(
    outputs: Iterable[str | os.PathLike | None],
    inputs: Iterable[str | os.PathLike] = (),
    *,
    models: Iterable[str | os.PathLike] = (),
    overwrite: bool = False,
) -> None:
    """Raises an error for output paths that are not allowed; call it before any work.

    In the folder of a dataset, only reports and detections of an earlier command may be
    replaced. In the folder of a model, the files that are read stay.

    Args:
        outputs: paths to write; None entries are ignored.
        inputs: paths of files and folders of data that the command reads.
        models: paths of models that the command opens.
        overwrite: bool, whether outputs may exist already.

    Raises:
        ValueError: If a path is given for two outputs, or is an input.
        NotADirectoryError: If an output would be below a file.
        FileExistsError: If an output exists and `overwrite` is False.
        OSError: If an output cannot be written: the folder is read-only or full.
    """
    outputs = [pathlib.Path(path) for path in outputs if path is not None]
    there = [str(path) for path in outputs if os.path.lexists(path)]
    # There may be many inputs, and no output replaces one if none exists.
    read = {os.path.realpath(path): path for path in inputs} if there else {}
    written = set()
    for path in outputs:
        check_may_be_folder(path.parent)
        place = os.path.realpath(path)
        if place in written:
            raise InvalidValueError(
                f"'{path}' is given for two outputs, and the second would replace the "
                "first. Give another path."
            )
        written.add(place)
        if place in read or any(_is_of_model(path, model) for model in models):
            raise InvalidValueError(
                f"'{path}' is one of the input files and would be overwritten. Give "
                "another path."
            )
        folders = read.keys() & set(map(str, pathlib.Path(place).parents))
        if folders and path.is_file() and not _is_report(path):
            raise InvalidValueError(
                f"'{path}' is in the input '{read[min(folders)]}', and is neither a "
                "report nor detections of an earlier command: an input file might be "
                "overwritten. Give another path."
            )
    if there and not overwrite:
        raise FileExistsError(
            f"{', '.join(map(repr, there[:3]))}: existing files are not overwritten. "
            "Give another path, or add --overwrite."
        )
    # There may be many files in one folder.
    for path in {_folder_of(path): path for path in outputs}.values():
        if not is_remote(path):
            check_may_be_written(local_path(path, "The path of an output"))


def _folder_of(path):
    return path if path.is_dir() else path.parent


def image_files(dataset: DetectionDataset) -> Iterator[str]:
    """Yields the paths of a dataset's images, and of all images in their folders.

    The folders may have images of other splits, which no output may replace either.
    """
    folders = set()
    for image in (r.image for r in dataset.records if isinstance(r.image, str)):
        yield image
        folders.add(os.path.dirname(image))
    for folder in folders:
        if not is_remote(folder):  # no output is written there
            yield from map(str, visible_files(pathlib.Path(folder), *IMAGE_SUFFIXES))


# Keys of the JSON reports of `inspect`, of `eval`, and of `benchmark --targets`.
_KEYS_OF_REPORTS = ({"effdet_keras", "exit_status"}, {"environment"}, {"explanations"})


def _is_report(path):
    """Returns whether a command has written a file: a report, or `eval --json`."""
    if path.suffix.lower() == ".html":  # no format of data
        return True
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return False
    if isinstance(content, list):
        return all(isinstance(x, dict) and {"bbox", "score"} <= {*x} for x in content)
    keys = {*content} if isinstance(content, dict) else set()
    return any(known <= keys for known in _KEYS_OF_REPORTS)


def _is_of_model(path, model):
    """Returns whether a file is read to open a model, or belongs to its run."""
    path, model = (pathlib.Path(os.path.realpath(x)) for x in (path, model))
    if path == model:
        return True
    if model in path.parents and path.is_file() and not is_archive(model):
        files = read_report(model).get("files")  # None: it has no list of its files
        return files is None or path.relative_to(model).as_posix() in files
    places = (model, *model.parents[:3])
    run = next((x for x in places if (x / CONFIGURATION_FILE).is_file()), None)
    of_run = () if run is None else (run / CONFIGURATION_FILE, run / "data.json")
    folders = (model, *(place / ARCHIVE_FOLDER for place in (model, run) if place))
    return path in of_run or (path.suffix == ".keras" and path.parent in folders)
