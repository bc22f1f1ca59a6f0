"""Archives: model files that describe themselves, always whole even after a kill."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import zipfile
import zlib
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.keras_classes import register_keras_classes
from effdet_keras._internal.plain_values import plain
from effdet_keras._internal.processes import alone
from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras._internal.weights_h5 import check_finite, warn_unless_finite
from effdet_keras._internal.whole_files import is_remote, local_path, replacing
from effdet_keras._version import __version__
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    BEST_FILE,
    LAST_FILE,
    checkpoint_in,
    is_archive,
)

ARCHIVE_ENTRY = "archive.json"  # in the zip file, beside Keras' own entries
CONFIG_ENTRY = "config.json"  # one of these
CLASS_NAME = "effdet_keras>EfficientDet"  # in it
_FORMAT = 1  # rises when an older version could not read the entry
# What `zipfile` and `json` raise on damaged bytes.
ZIP_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
_PACKAGES = ("keras", "tensorflow", "jax", "torch", "numpy")


class DamagedFileError(InvalidValueError):
    """A checkpoint is not what was written."""

    def __init__(self, path, reason):
        super().__init__(f"'{path}' is damaged, or not a `.keras` file ({reason}).")


def write_archive(model, path, info=None):
    """Writes a model to a `.keras` file that says what it is."""
    path = local_path(path, "The path of an archive")
    rule = "The path of an archive must end in '.keras'"
    require(path.suffix == ".keras", rule, path=str(path))
    check_finite(model, f"The checkpoint '{path}' was not written")
    text = json.dumps(_described(model, info or {}), indent=1)
    with replacing(path) as partial, alone():
        model.save(partial)
        with zipfile.ZipFile(partial, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(ARCHIVE_ENTRY, text)


def copy_archive(source, path):
    """Copies an archive, as safely as `write_archive` writes one."""
    with replacing(path) as partial:
        shutil.copyfile(source, partial)


def read_archive_info(path: str | os.PathLike) -> dict[str, Any]:
    """Reads what an archive tells about itself, without loading the model.

    Args:
        path: path of a file of `write_archive`, or of a folder of
            `CheckpointArchive` or of a run, of which it reads `best.keras`.

    Returns:
        Dict with `config`, `class_names`, `category_ids`, `score_settings`,
        `versions`, `backend`, `created`, `random_state`, and what the writer noted:
        `CheckpointArchive` notes `epoch`, `metrics`, `monitor`, `mode` and
        `evaluated_weights`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, of another kind, or of a newer
            version of this package.

    Example:
        >>> read_archive_info("nowhere.keras")
        Traceback (most recent call last):
            ...
        FileNotFoundError: There is no checkpoint 'nowhere.keras'
    """
    path = checkpoint_file(path, BEST_FILE)
    info = read_entry(path)
    if info is None:
        raise InvalidValueError(
            f"'{path}' is a Keras file without '{ARCHIVE_ENTRY}': `CheckpointArchive` "
            "did not write it. `EfficientDet.from_archive` may load it all the same."
        )
    return info


def load_archive(path, *, resume=False):
    """Loads the model of an archive, compiled as it was."""
    path = checkpoint_file(path, LAST_FILE if resume else BEST_FILE)
    info = read_entry(path, check_all=True) or {}
    register_keras_classes()
    model = keras.saving.load_model(path)
    averages = getattr(model, "averages", None)
    if resume:
        for variable, value in zip(_random_state(model), info.get("random_state", [])):
            variable.assign(value)
        if "place" in info:
            model.go_on_from(info["place"])
    if averages is not None:
        averages.settle() if resume else averages.adopt()
    warn_unless_finite(model, path)
    return model


def _random_state(model):
    """The variables of all seed generators, in the order they were made."""
    return [v for v in model.variables if v.name == "seed_generator_state"]


def _described(model, info):
    packages = {name: _version(name) for name in _PACKAGES}
    settings = getattr(model, "score_settings", None)
    own = {
        "format": _FORMAT,
        "config": model.config.to_dict(),
        "class_names": model.class_names,
        "category_ids": model.category_ids,
        "score_settings": settings.to_dict() if settings is not None else None,
        "versions": {
            "effdet_keras": __version__,
            "python": platform.python_version(),
            **{name: version for name, version in packages.items() if version},
        },
        "backend": keras.backend.backend(),
        "random_state": [ops.convert_to_numpy(v) for v in _random_state(model)],
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return plain({**own, **info})


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def checkpoint_file(path, name_in_folder):
    """The path of a checkpoint, of which a folder has several."""
    path = path_of_checkpoint(path)
    if path.is_dir():
        folder, path = path, checkpoint_in(path, name_in_folder)
        if path is None:
            raise FileNotFoundError(
                f"There is no checkpoint in '{folder}': neither '{BEST_FILE}' nor "
                f"'{LAST_FILE}', nor one of them in '{ARCHIVE_FOLDER}'."
            )
    elif not path.exists():
        raise FileNotFoundError(f"There is no checkpoint '{path}'")
    return local_copy(path)


def path_of_checkpoint(path):
    """The path of a file or folder, on this machine or at an address."""
    if is_remote(path):
        return path_of(path)
    return local_path(path, "The path of a checkpoint")


def read_entry(path, check_all=False):
    """The content of `archive.json`, or None in a file of `model.save`."""
    info = None
    with open(path, "rb") as file:
        try:
            archive = zipfile.ZipFile(file)
            names = archive.namelist()
            if ARCHIVE_ENTRY in names:
                info = json.loads(archive.read(ARCHIVE_ENTRY))
            broken = archive.testzip() if check_all else None
        except ZIP_DAMAGES as error:
            raise DamagedFileError(path, error) from error
        if broken is not None:
            raise DamagedFileError(path, f"bad checksum of '{broken}'")
        rule = f"'{path}' is a zip file, but not a checkpoint of Keras"
        require(CONFIG_ENTRY in names, rule, entries=names[:3])
        if info is not None:
            version, written_by = info["format"], info["versions"]["effdet_keras"]
            if version > _FORMAT:
                raise InvalidValueError(
                    f"'{path}' was written by a newer effdet_keras ({written_by}; this "
                    f"is {__version__}). Upgrade to read it."
                )
    return info


def read_model(path):
    """The class and the arguments of the `EfficientDet` in a `.keras` file."""
    read_entry(path)  # refuses what is no file of Keras, or too new
    try:
        with zipfile.ZipFile(path) as archive:
            model = json.loads(archive.read(CONFIG_ENTRY))
            name = model["registered_name"] or model["class_name"]
    except (*ZIP_DAMAGES, LookupError, TypeError) as error:
        raise DamagedFileError(path, error) from error
    if name != CLASS_NAME:
        raise InvalidValueError(
            f"'{path}' holds a model of the class {name!r}, not of {CLASS_NAME!r}. "
            "Load it with `keras.saving.load_model`."
        )
    return model


# --- Thresholds and temperature put into an archive, whose weights stay as they are.


def store_score_settings(
    path: str | os.PathLike[str], settings: ScoreSettings
) -> pathlib.Path:
    """Stores thresholds and temperature in a `.keras` file of an `EfficientDet`.

    The model that `from_archive` or `Predictor.load` makes of the file then has them as
    its `score_settings`, and so has its export. Nothing else in the file changes:
    weights, averages and optimizer are copied byte by byte. It is replaced whole or not
    at all.

    Args:
        path: path of a `.keras` file, or of a folder of `CheckpointArchive` or of a
            run, of which `best.keras` is meant.
        settings: `ScoreSettings`, in the order of the model's labels.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: If the file is of another kind, damaged, or has another number of
            classes than `settings`.
        FileNotFoundError: If it is not there.

    Example:
        >>> import tempfile
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> path = f"{tempfile.mkdtemp()}/cats.keras"
        >>> model.save(path)
        >>> _ = store_score_settings(path, ScoreSettings([0.4], temperature=1.5))
        >>> EfficientDet.from_archive(path).score_settings
        ScoreSettings(thresholds=(0.4,), temperature=1.5)
    """
    path = file_for_score_settings(path)
    config = read_model(path)
    info = read_entry(path, check_all=True)  # what is damaged is not copied
    num_classes = config["config"]["config"]["num_classes"]
    thresholds = len(settings.thresholds)
    rule = f"The model in '{path}' needs a threshold for each of {num_classes} classes"
    require(thresholds == num_classes, rule, thresholds=thresholds)
    config["config"]["score_settings"] = settings.to_dict()
    changed = {CONFIG_ENTRY: json.dumps(config)}
    if info is not None:
        info["score_settings"] = settings.to_dict()
        changed[ARCHIVE_ENTRY] = json.dumps(info, indent=1)
    with (
        replacing(path) as partial,
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(partial, "w") as new,
    ):
        for entry in old.infolist():
            new.writestr(entry, changed.get(entry.filename) or old.read(entry))
    return path


def file_for_score_settings(path: str | os.PathLike[str]) -> pathlib.Path:
    """Finds the file that `store_score_settings` would change."""
    path = local_path(path, "The path of an archive")
    if not is_archive(path):
        raise InvalidValueError(
            "Thresholds are stored in a `.keras` file, or in the best checkpoint of a "
            f"run or a folder of `CheckpointArchive`. Received: '{path}'. Store them "
            "in the model it was exported from, and export that again."
        )
    path = checkpoint_file(path, BEST_FILE)
    read_model(path)  # refuses another's
    return path
