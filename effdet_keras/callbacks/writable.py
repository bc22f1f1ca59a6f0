"""Whether a folder can be written to: found out before training, not after it."""

import os
import pathlib
import tempfile


def require_writable(folder, caller):
    """Makes a folder and writes a file in it, which is removed again.

    Args:
        folder: path of a folder on this machine.
        caller: str, who wants to write, for the message.

    Raises:
        OSError: If it cannot be made or written to; of the kind that the system
            raised, such as `PermissionError`.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> require_writable(f"{folder}/runs/cats", "`CheckpointArchive`")
        >>> os.listdir(f"{folder}/runs/cats")
        []
    """
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno,
            f"{caller} must be able to write to its folder ({error.strerror}); name "
            "another one, or change its permissions. Received",
            os.fspath(folder),
        ) from error
