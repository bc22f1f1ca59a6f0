"""Archives: model files that describe themselves.

An archive is written atomically: even a killed process leaves no incomplete file.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import io
import json
import os
import pathlib
import platform
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.compiled_keys import DTYPE_POLICY, STEPS_DONE
from effdet_keras._internal.keras_classes import register_keras_classes
from effdet_keras._internal.plain_values import to_jsonable
from effdet_keras._internal.processes import single_process
from effdet_keras._internal.remote_path import (
    WholeFileError,
    dropping_unreadable_copy,
    local_copy,
    path_of,
)
from effdet_keras._internal.unpacking import UnpackedSizeError, open_zip
from effdet_keras._internal.weights_h5 import (
    check_finite,
    check_hdf5_file,
    warn_unless_finite,
)
from effdet_keras._internal.whole_files import (
    atomic_write,
    copy_file,
    is_remote,
    local_path,
)
from effdet_keras._version import __version__
from effdet_keras.errors import InvalidStateError, InvalidValueError, require
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    BEST_FILE,
    LAST_FILE,
    checkpoint_in,
    is_archive,
)

ARCHIVE_ENTRY = "archive.json"  # our entry in the zip file, in addition to Keras' own
WEIGHTS_ENTRY = "model.weights.h5"  # entry of Keras
CONFIG_ENTRY = "config.json"  # entry of Keras
CLASS_NAME = "effdet_keras>EfficientDet"  # the registered name in `CONFIG_ENTRY`
_FORMAT = 1  # is increased when older versions cannot read a new `ARCHIVE_ENTRY`
# The exceptions that `zipfile` and `json` raise for damaged files.
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
    """A checkpoint is damaged, or is not a `.keras` file."""

    def __init__(self, path, reason):
        super().__init__(f"'{path}' is damaged, or is not a `.keras` file ({reason}).")


def write_archive(model, path, info=None):
    """Writes a model to a `.keras` file that describes itself, in `archive.json`.

    Args:
        model: `EfficientDet`.
        path: path of the file, which must end in ".keras".
        info: dict of further metadata, or None. It overrides the usual metadata.

    Raises:
        ValueError: If the path does not end in ".keras", or is not on this machine.
        NonFiniteLossError: If a weight is NaN or infinite.
    """
    path = local_path(path, "The path of an archive")
    rule = "The path of an archive must end in '.keras'"
    require(path.suffix == ".keras", rule, path=str(path))
    check_finite(model, f"The checkpoint '{path}' was not written")
    text = json.dumps(_metadata(model, info or {}), indent=1)
    with atomic_write(path) as partial, single_process():
        model.save(partial)
        with zipfile.ZipFile(partial, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(ARCHIVE_ENTRY, text)


def copy_archive(source, path):
    """Copies an archive atomically, as `write_archive` writes one."""
    with atomic_write(path) as partial:
        copy_file(source, partial)


def read_archive_info(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the metadata of an archive without loading the model.

    Args:
        path: path of a file of `write_archive`; or path of a folder of
            `CheckpointArchive` or of a run, and then `best.keras` in it is read
            (`last.keras` if there is no best).

    Returns:
        Dict with `config`, `class_names`, `category_ids`, `score_settings`,
        `versions`, `backend`, `created`, `random_state`, and the metadata that the
        writer added: `CheckpointArchive` adds `epoch`, `metrics`, `monitor`, `mode` and
        `evaluated_weights`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, is not an archive, or was written by a newer
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
            f"'{path}' is a Keras file that `CheckpointArchive` did not write: it "
            f"contains no '{ARCHIVE_ENTRY}'. `EfficientDet.from_archive` may be able "
            "to load it nevertheless."
        )
    return info


def load_archive(path, *, resume=False):
    """Loads the model of an archive, compiled as it was when it was saved.

    With `resume=True` the model is prepared to continue its training: a folder means
    its last checkpoint instead of its best, and precision, optimizer and random state
    are restored.
    """
    path = checkpoint_file(path, LAST_FILE if resume else BEST_FILE)
    info = read_entry(path, check_all=True) or {}
    _check_weights_entry(path)
    register_keras_classes()
    model = _load_to_resume(path, info) if resume else keras.saving.load_model(path)
    averages = getattr(model, "averages", None)
    if averages is not None:
        averages.finish_load() if resume else averages.commit()
    warn_unless_finite(model, path)
    return model


def _load_to_resume(path, info):
    """Loads a model to continue its training: precision, optimizer and random state.

    Weights and optimizer belong together. An archive whose optimizer cannot be loaded
    is rejected, because its training would start from the beginning in the same folder.
    """
    compiled = _compile_config(path)
    with _dtype_policy(compiled.get(DTYPE_POLICY)), warnings.catch_warnings():
        # Instead of this warning, `resume_training` raises an error that says what to
        # do.
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        model = keras.saving.load_model(path)
    for variable, value in zip(_random_state(model), info.get("random_state", [])):
        variable.assign(value)
    if hasattr(model, "resume_training"):  # it is an `EfficientDet`
        position = info.get("training_position", {})
        steps = compiled.get(STEPS_DONE, position.get("total_steps"))
        model.resume_training(path, info, steps)
    return model


def _compile_config(path):
    """Returns the compile config in a `.keras` file; {} if it was not compiled."""
    with open_zip(path) as archive:
        return json.loads(archive.read(CONFIG_ENTRY)).get("compile_config") or {}


@contextlib.contextmanager
def _dtype_policy(policy: dict | None) -> Iterator[None]:
    """Returns a context that sets the dtype policy; None keeps the current policy."""
    if policy is None:  # the file does not store its policy
        yield
        return
    before = keras.config.dtype_policy()
    policy = keras.dtype_policies.deserialize(policy)
    if policy.name != before.name:
        print(
            f"The training continues with the dtype policy '{policy.name}' that it "
            f"began with. The policy of this process, '{before.name}', applies only to "
            "new models.",
            flush=True,
        )
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _check_weights_entry(path):
    """Raises an error if the HDF5 file in an archive refers to other files."""
    with open_zip(path) as archive:
        if WEIGHTS_ENTRY in archive.namelist():
            check_hdf5_file(io.BytesIO(archive.read(WEIGHTS_ENTRY)), path)


def _random_state(model):
    """Returns the variables of all seed generators, in the order of creation."""
    return [v for v in model.variables if v.name == "seed_generator_state"]


def _metadata(model, info):
    """Returns the metadata of an archive, ready for JSON; `info` takes precedence."""
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
    return to_jsonable({**own, **info})


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def checkpoint_file(path, name_in_folder):
    """Returns the local path of a checkpoint; a folder means `name_in_folder` in it.

    Raises:
        FileNotFoundError: If there is no checkpoint.
    """
    path = path_of_checkpoint(path)
    if path.is_dir():
        folder, path = path, checkpoint_in(path, name_in_folder)
        if path is None:
            raise FileNotFoundError(
                f"There is no checkpoint in '{folder}': neither '{BEST_FILE}' nor "
                f"'{LAST_FILE}' is in it or in its subfolder '{ARCHIVE_FOLDER}'."
            )
    elif not path.exists():
        raise FileNotFoundError(f"There is no checkpoint '{path}'")
    return local_copy(path)


def path_of_checkpoint(path):
    """Returns the path of a file or folder, on this machine or at a remote address."""
    if is_remote(path):
        return path_of(path)
    return local_path(path, "The path of a checkpoint")


def read_entry(path, check_all=False, file=None):
    """Reads `archive.json` of a `.keras` file; None if `model.save` wrote the file.

    Args:
        path: path of the file.
        check_all: bool, whether to check the checksums of all entries.
        file: the opened file, or None to open `path`. With a `file`, `path` is for
            messages only, because another file may have replaced it meanwhile.

    Raises:
        ValueError: If the file is damaged, is not a checkpoint of Keras, or was written
            by a newer version of this package.
    """
    info = None
    is_open = file is not None
    with contextlib.ExitStack() as stack:
        if not is_open:
            stack.enter_context(dropping_unreadable_copy(pathlib.Path(path)))
            file = stack.enter_context(open(path, "rb"))
        try:
            with open_zip(file, path) as archive:
                names = archive.namelist()
                if ARCHIVE_ENTRY in names:
                    info = json.loads(archive.read(ARCHIVE_ENTRY))
                broken = archive.testzip() if check_all else None
        except UnpackedSizeError:
            raise
        except ZIP_DAMAGES as error:
            raise DamagedFileError(path, error) from error
        if broken is not None:
            raise DamagedFileError(path, f"bad checksum of '{broken}'")
        rule = f"'{path}' is a zip file, but not a checkpoint of Keras"
        require(CONFIG_ENTRY in names, rule, entries=names[:3])
        if info is not None:
            version, written_by = info["format"], info["versions"]["effdet_keras"]
            if version > _FORMAT:
                raise WholeFileError(
                    f"'{path}' was written by a newer effdet_keras ({written_by}; this "
                    f"is {__version__}). Upgrade to read it."
                )
            _rename_old_entries(info)
    return info


def _rename_old_entries(info):
    """Renames `place` of an older archive to `training_position`, in place."""
    if "place" in info:
        info["training_position"] = rename_position_fields(info.pop("place"))


def rename_position_fields(fields):
    """Renames the fields of a training position that an older version wrote."""
    new_names = {
        "steps": "total_steps",
        "means": "metrics",
        "callbacks": "callback_states",
    }
    return {new_names.get(name, name): value for name, value in fields.items()}


def read_model(path, file=None):
    """Reads the class and the arguments of the `EfficientDet` in a `.keras` file."""
    read_entry(path, file=file)  # rejects files that are not Keras', or too new
    try:
        with open_zip(path if file is None else file, path) as archive:
            model = json.loads(archive.read(CONFIG_ENTRY))
            name = model["registered_name"] or model["class_name"]
    except UnpackedSizeError:
        raise
    except (*ZIP_DAMAGES, LookupError, TypeError) as error:
        raise DamagedFileError(path, error) from error
    if name != CLASS_NAME:
        raise WholeFileError(
            f"'{path}' contains a model of the class {name!r}, but a {CLASS_NAME!r} is "
            "needed. Load it with `keras.saving.load_model`."
        )
    return model


# --- Thresholds and temperature in an archive, stored without changing its weights.


def store_score_settings(
    path: str | os.PathLike[str],
    settings: ScoreSettings,
    *,
    weights_digest: str | None = None,
) -> pathlib.Path:
    """Stores thresholds and temperature in a `.keras` file of an `EfficientDet`.

    The model that `from_archive` or `Predictor.load` loads from the file then has them
    as its `score_settings`. So do exports of this model. Nothing else in the file
    changes: weights, averages and optimizer are copied byte by byte. The file is
    replaced atomically.

    Args:
        path: path of a `.keras` file; or path of a folder of `CheckpointArchive` or of
            a run, and then `best.keras` in it is changed (`last.keras` if there is no
            best).
        settings: `ScoreSettings`, in the order of the model's labels.
        weights_digest: string, the result of `digest_of_weights(path)` before the
            evaluation that chose `settings`. None if no other process writes the file.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: If the file is not a `.keras` file of an `EfficientDet`, is damaged,
            or has a different number of classes than `settings`.
        RuntimeError: If the weights are not those of `weights_digest`, or the file is
            replaced during the call, for example by a training. The file is then not
            changed.
        FileNotFoundError: If there is no such file.

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
    # The file is opened once, so that all reads see the same file even if another one
    # replaces it meanwhile.
    with atomic_write(path) as partial, open(path, "rb") as file:
        if weights_digest not in (None, _digest_of_weights(file)):
            raise _replaced_meanwhile(path)
        config = read_model(path, file)
        # An error for a damaged file leaves it unchanged.
        info = read_entry(path, check_all=True, file=file)
        _check_number(path, settings, config)
        config["config"]["score_settings"] = settings.to_dict()
        changed = {CONFIG_ENTRY: json.dumps(config)}
        if info is not None:
            info["score_settings"] = settings.to_dict()
            changed[ARCHIVE_ENTRY] = json.dumps(info, indent=1)
        with open_zip(file, path) as old, zipfile.ZipFile(partial, "w") as new:
            for entry in old.infolist():
                content = changed.get(entry.filename) or old.read(entry)
                new.writestr(entry, content)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise _replaced_meanwhile(path)
    return path


def _check_number(path, settings, config):
    num_classes = config["config"]["config"]["num_classes"]
    thresholds = len(settings.thresholds)
    rule = (
        f"The model in '{path}' needs one threshold for each of its {num_classes} "
        "classes"
    )
    require(thresholds == num_classes, rule, thresholds=thresholds)


def _replaced_meanwhile(path):
    return InvalidStateError(
        f"'{path}' was replaced while it was evaluated, as a running training does: "
        "the thresholds were not chosen for the weights that it contains now. Nothing "
        "was stored. Evaluate it again when no program writes to it, or evaluate a "
        "copy."
    )


def digest_of_weights(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of the weights in a `.keras` file, as hexadecimal digits.

    It changes when a training replaces the file, but not when thresholds are stored.

    Args:
        path: path of the file or of a folder, as for `store_score_settings`.

    Raises:
        ValueError: If the file is not a `.keras` file of an `EfficientDet`, or damaged.
        FileNotFoundError: If there is no such file.

    Example:
        >>> digest_of_weights("nowhere.keras")
        Traceback (most recent call last):
            ...
        FileNotFoundError: There is no checkpoint 'nowhere.keras'
    """
    with open(file_for_score_settings(path), "rb") as file:
        return _digest_of_weights(file)


def _digest_of_weights(file):
    """Returns the digest of all entries except `config.json` and `archive.json`.

    `store_score_settings` changes these two.
    """
    digest = hashlib.sha256()
    try:
        with open_zip(file, file.name) as archive:
            for name in sorted(archive.namelist()):
                if name in (CONFIG_ENTRY, ARCHIVE_ENTRY):
                    continue
                digest.update(name.encode())
                with archive.open(name) as entry:
                    for block in iter(lambda: entry.read(2**20), b""):
                        digest.update(block)
    except UnpackedSizeError:
        raise
    except ZIP_DAMAGES as error:
        raise DamagedFileError(file.name, error) from error
    return digest.hexdigest()


def file_for_score_settings(path: str | os.PathLike[str]) -> pathlib.Path:
    """Finds the file that `store_score_settings` would change."""
    path = local_path(path, "The path of an archive")
    if not is_archive(path):
        raise InvalidValueError(
            "Thresholds can be stored only in a `.keras` file, a run or a folder of "
            f"`CheckpointArchive` (in its best checkpoint). Received: '{path}'. Store "
            "them in the model that was exported to this path, and export that model "
            "again."
        )
    path = checkpoint_file(path, BEST_FILE)
    read_model(path)  # rejects files of other models
    return path
