"""From a run or an archive to a repository, with what is known of its data."""

import json
import pathlib

from effdet_keras.commands.open_model import archive_of
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.sharing.push import push_archive
from effdet_keras.weights.archive import BEST_FILE, checkpoint_file, read_archive_info


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
    path = checkpoint_file(archive, BEST_FILE)
    is_run = pathlib.Path(archive) != pathlib.Path(model)
    data, numbers = _of_run(pathlib.Path(archive).parent) if is_run else (None, None)
    if numbers is None:
        info = read_archive_info(path)
        numbers = info.get("metrics")
    return push_archive(path, address, data=data, numbers=numbers, **options)


def _of_run(folder):
    """What the files of a run say of its data, and of its best checkpoint."""
    data, numbers = (_read(folder / f"{name}.json") for name in ("data", "numbers"))
    if data is not None:
        from_file = _read_configuration(folder)
        data = {**data, "name": from_file}
    return data, numbers


def _read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _read_configuration(folder):
    """The last part of the path of the data: the rest is of this machine alone."""
    data = RunFolder(folder).read_configuration().data
    return pathlib.PurePath(str(data)).name if data else None
