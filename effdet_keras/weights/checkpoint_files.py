"""What the files in a folder of checkpoints are called."""

BEST_FILE = "best.keras"
BEST_OF_BEFORE_FILE = "best.previous.keras"  # of the training before this one
LAST_FILE = "last.keras"
PREVIOUS_FILE = "last.previous.keras"  # the last but one
DAMAGED = ".damaged"  # in the name of a file that was set aside


def is_archive(path):
    """Whether Keras opens it: a `.keras` file, or a folder of `CheckpointArchive`.

    Args:
        path: `pathlib.Path`.

    Returns:
        bool.
    """
    files = (path / BEST_FILE, path / LAST_FILE)
    return path.suffix == ".keras" or any(file.exists() for file in files)
