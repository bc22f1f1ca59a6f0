"""Which checkpoint of a folder a training goes on from, where some are damaged."""

from __future__ import annotations

import os
import pathlib
import warnings
from typing import Any

from effdet_keras._internal.local_paths import (
    is_remote,
    local_path,
    shown_address,
)
from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.archive import DamagedFileError, load_archive, read_entry
from effdet_keras.weights.checkpoint_files import (
    BEST_FILE,
    BEST_OF_BEFORE_FILE,
    DAMAGED,
    LAST_FILE,
    PREVIOUS_FILE,
    folder_of_checkpoints,
)


def load_to_resume(path: str | os.PathLike) -> Any:
    """The model of a checkpoint, to go on with; see `load_archive`.

    Args:
        path: path or address of a file, or of a folder of `CheckpointArchive` or of a
            run: of that the last checkpoint, or where it is damaged the newest that is
            whole.

    Returns:
        `EfficientDet`.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If the file, or all those of a folder, are damaged.
    """
    path = folder_of_checkpoints(_path_of_checkpoint(path))
    # A folder of one file at an address, such as one of a hub, is not of a training.
    if path.is_dir() and (not is_remote(path) or (path / LAST_FILE).exists()):
        found, damages = checkpoint_to_resume(path)
        if damages:
            warnings.warn(going_on_from_another(found, damages), stacklevel=3)
        path = found or path / LAST_FILE
    return load_archive(path, resume=True)


def going_on_from_another(path: Any, damages: list[str]) -> str:
    """What to say of the result of `checkpoint_to_resume` with damages."""
    return f"{' '.join(damages)} The training goes on from '{_shown(path)}'."


def checkpoint_to_resume(
    folder: str | os.PathLike,
) -> tuple[Any, list[str]]:
    """The last checkpoint in a folder, or where it is damaged the newest that is whole.

    Args:
        folder: path or address of a folder of `CheckpointArchive`; it need not be
            there.

    Returns:
        `(path, damages)`: the path of the file (`pathlib.Path`, or of an address
        `RemotePath`), None where there is no checkpoint; and
        a text for each damaged file that would have come before it.

    Raises:
        ValueError: If there are checkpoints and all of them are damaged; names each.

    Example:
        >>> import tempfile
        >>> checkpoint_to_resume(tempfile.mkdtemp())
        (None, [])
    """
    folder = _path_of_checkpoint(folder)
    damages: list[str] = []
    if (folder / LAST_FILE).exists() and _is_whole(folder / LAST_FILE, damages):
        return folder / LAST_FILE, []
    others = [path for path in folder.glob("*.keras") if _may_follow(path)]
    moments = {path: _moment(path) for path in others if _is_whole(path, damages)}
    if moments:
        last_but_one = moments.get(folder / PREVIOUS_FILE, ("", 0, 0))
        # A clock that was set back makes older files, of fewer steps, look newer.
        ahead = [
            path
            for path, moment in moments.items()
            if moment >= last_but_one and moment[1] >= last_but_one[1]
        ]
        return max(ahead, key=moments.get), damages
    if damages:
        raise InvalidValueError(
            f"No checkpoint in '{_shown(folder)}' can be read, so the training cannot "
            f"go on. {' '.join(damages)}"
        )
    return None, []


def set_aside_damaged(folder: pathlib.Path) -> None:
    """Gives damaged checkpoints other names, and says so: nothing takes their place.

    Args:
        folder: path of a folder of `CheckpointArchive` that this process has.
    """
    for name in (LAST_FILE, PREVIOUS_FILE, BEST_FILE):
        path = folder / name
        if path.exists() and not _is_whole(path, []):
            print(f"'{path}' is damaged, and is '{_set_aside(path).name}' now.")


def _set_aside(path):
    number, aside = 1, path.with_name(path.stem + DAMAGED + path.suffix)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.stem}{DAMAGED}-{number}{path.suffix}")
    os.rename(path, aside)
    return aside


def _path_of_checkpoint(path):
    if is_remote(path):
        return path_of(path)
    return local_path(path, "The path of a checkpoint")


def _shown(path):
    return shown_address(path) if is_remote(path) else path


def _may_follow(path):
    """Whether it is a checkpoint of the training whose last one is damaged."""
    name = path.name
    is_other = name in (LAST_FILE, BEST_OF_BEFORE_FILE) or name.startswith(".")
    return not is_other and DAMAGED not in name


def _is_whole(path, damages):
    try:
        read_entry(local_copy(path), check_all=True)
    except DamagedFileError as error:
        damages.append(DamagedFileError(_shown(path), error.reason).in_short)
        return False
    return True


def _moment(path) -> tuple[Any, ...]:
    """What is larger for a newer checkpoint."""
    info = read_entry(local_copy(path)) or {}
    steps = info.get("place", {}).get("steps", 0)
    # Files of one second differ by the rest.
    return info.get("created", ""), steps, info.get("epoch", 0)
