"""From a run or an archive to a repository, with what is known of its data."""

import json
import os
import pathlib

from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras.commands.open_model import archive_of
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.sharing.push import push_archive
from effdet_keras.weights.archive import checkpoint_file, read_entry
from effdet_keras.weights.checkpoint_files import BEST_FILE, LAST_FILE


def share_model(model, address, **options):
    """Pushes the best checkpoint of a run, or an archive; see `push_archive`.

    Args:
        model: string, path or address of a run or archive.
        address: string, `hf://owner/name`.
        **options: `license`, `private`, `overwrite` of `push_archive`.

    Returns:
        string, the address of the commit.
    """
    archive = archive_of(model)
    if os.fspath(archive) == os.fspath(model):
        path = checkpoint_file(model, BEST_FILE)
        data, numbers = None, _metrics(path)
    else:
        archive = path_of(archive)
        has_best = (archive / BEST_FILE).is_file()  # not of a run that never evaluates
        path = local_copy(archive / (BEST_FILE if has_best else LAST_FILE))
        data, numbers = _data(archive.parent), _numbers(archive.parent, path)
    return push_archive(path, address, data=data, numbers=numbers, **options)


def _data(run):
    """The splits of a run's data, with the last part of its path as their name."""
    described = _read(run / "data.json")
    if described is None:
        return None
    data = RunConfiguration.read(run / "configuration.yaml").data
    # The rest of the path is of the machine that trained.
    return {**described, "name": pathlib.PurePath(data).name if data else None}


def _numbers(run, checkpoint):
    """The numbers of a run's end; or those of its checkpoint, if it is of another."""
    numbers = _read(run / "numbers.json")
    info = read_entry(checkpoint) or {}
    if numbers is not None and numbers.get("epoch") == info.get("epoch"):
        return numbers
    return info.get("metrics")


def _metrics(checkpoint):
    return (read_entry(checkpoint) or {}).get("metrics")


def _read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
