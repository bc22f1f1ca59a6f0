"""Names of the files in a folder of checkpoints, and their place in a run's folder."""

import re

BEST_FILE = "best.keras"
BEST_OF_BEFORE_FILE = "best.previous.keras"  # best checkpoint of the previous training
LAST_FILE = "last.keras"
PREVIOUS_FILE = "last.previous.keras"  # the checkpoint before the last one
STEP_FILE = re.compile(r"step-(\d+)\.keras")  # a kept copy, with its number of steps
# Checkpoints of the previous training that are newer than its best, and kept copies.
EARLIER_FILE = re.compile(r"(last|step-\d+)\.earlier\.keras")
ARCHIVE_FOLDER = "archive"  # in the folder of a run
CONFIGURATION_FILE = "configuration.yaml"  # a folder with this file is that of a run


def folder_of_checkpoints(path):
    """Returns the folder of checkpoints; for a run's folder, `archive` in it."""
    if not path.is_dir() or _has_checkpoint(path):
        return path
    inner = path / ARCHIVE_FOLDER
    return inner if inner.is_dir() else path


def step_of(path):
    """Returns the number of steps in the name of a kept copy; None for other files."""
    match = STEP_FILE.fullmatch(path.name)
    return None if match is None else int(match[1])


def step_copies(folder):
    """Returns the copies that `CheckpointArchive(keep=...)` kept, oldest first."""
    if not folder.is_dir():
        return []
    copies = [path for path in folder.iterdir() if step_of(path) is not None]
    return sorted(copies, key=step_of)


def earlier_name(name):
    """Returns the name for a checkpoint of the previous training.

    It is `last.earlier.keras` for `last.keras`.
    """
    return f"{name.removesuffix('.keras')}.earlier.keras"


def checkpoint_in(path, name=BEST_FILE):
    """Returns the path of checkpoint `name` in a folder, or of the best or last one.

    None if the folder has no checkpoint.
    """
    folder = folder_of_checkpoints(path)
    files = (folder / each for each in (name, BEST_FILE, LAST_FILE))
    return next((file for file in files if file.is_file()), None)


def is_archive(path):
    """Whether a path is a `.keras` file, a run's folder, or a folder of checkpoints."""
    if path.suffix == ".keras" or (path / CONFIGURATION_FILE).is_file():
        return True
    return _has_checkpoint(folder_of_checkpoints(path))


def _has_checkpoint(folder):
    return any((folder / name).exists() for name in (BEST_FILE, LAST_FILE))
