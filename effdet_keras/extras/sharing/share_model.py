"""From a run or an archive to a repository, with what is known of its data."""

import json
import pathlib

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.extras.sharing.push import push_archive
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.weights.archive import checkpoint_file, read_entry
from effdet_keras.weights.checkpoint_files import BEST_FILE, CONFIGURATION_FILE


def share_model(model, address, **options):
    """Pushes the best checkpoint of a run, or an archive; see `push_archive`."""
    path = checkpoint_file(model, BEST_FILE)
    run = path_of(model) if is_remote(model) else local_path(model, "MODEL")
    numbers = _numbers(run, path)
    return push_archive(path, address, data=_data(run), numbers=numbers, **options)


def _data(run):
    """The splits of a run's data, with the last part of its path as their name."""
    described = _read(run / "data.json")
    if described is None or not (run / CONFIGURATION_FILE).is_file():
        return None
    data = RunConfiguration.read(run / CONFIGURATION_FILE).data
    # The rest of the path is of the machine that trained.
    return {**described, "name": pathlib.PurePath(data).name if data else None}


def _numbers(run, checkpoint):
    """The numbers of a run's end; or those of its checkpoint, if it is of another."""
    numbers = _read(run / "numbers.json")
    info = read_entry(checkpoint) or {}
    if numbers is not None and numbers.get("epoch") == info.get("epoch"):
        return numbers
    return info.get("metrics")


def _read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
