"""What the files in a folder of checkpoints are called, and where a run has them."""

import re

BEST_FILE = "best.keras"
BEST_OF_BEFORE_FILE = "best.previous.keras"  # of the training before this one
LAST_FILE = "last.keras"
PREVIOUS_FILE = "last.previous.keras"  # the last but one
STEP_FILE = re.compile(r"step-(\d+)\.keras")  # a kept copy, by the steps trained
# Of the training before this one: what of it was newer than its best, and its copies.
EARLIER_FILE = re.compile(r"(last|step-\d+)\.earlier\.keras")
ARCHIVE_FOLDER = "archive"  # in the folder of a run
CONFIGURATION_FILE = "configuration.yaml"  # makes a folder that of a run


def folder_of_checkpoints(path):
    """The folder of checkpoints that a path means: of a run, `archive` in it."""
    if not path.is_dir() or _has_checkpoint(path):
        return path
    inner = path / ARCHIVE_FOLDER
    return inner if inner.is_dir() else path


def step_of(path):
    """The steps in the name of a kept copy; None of another file."""
    match = STEP_FILE.fullmatch(path.name)
    return None if match is None else int(match[1])


def step_copies(folder):
    """The copies that `CheckpointArchive(keep=...)` kept in a folder, oldest first."""
    if not folder.is_dir():
        return []
    copies = [path for path in folder.iterdir() if step_of(path) is not None]
    return sorted(copies, key=step_of)


def earlier_name(name):
    """The name of a checkpoint of the training before: `last.earlier.keras`."""
    return f"{name.removesuffix('.keras')}.earlier.keras"


def checkpoint_in(path, name=BEST_FILE):
    """The checkpoint that a folder means."""
    folder = folder_of_checkpoints(path)
    files = (folder / each for each in (name, BEST_FILE, LAST_FILE))
    return next((file for file in files if file.is_file()), None)


def is_archive(path):
    """Whether Keras opens it: a `.keras` file, a run, or a folder of checkpoints."""
    if path.suffix == ".keras" or (path / CONFIGURATION_FILE).is_file():
        return True
    return _has_checkpoint(folder_of_checkpoints(path))


def _has_checkpoint(folder):
    return any((folder / name).exists() for name in (BEST_FILE, LAST_FILE))
