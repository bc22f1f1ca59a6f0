"""Files that are written whole or not at all."""

import contextlib
import os


@contextlib.contextmanager
def replacing(path):
    """Gives a path to write to, and puts that file in the place of `path`.

    It is flushed to the disk and then renamed: at every moment `path` is either
    the whole old file or the whole new one, whatever happens to the process. If
    the block raises, `path` stays as it was.

    Args:
        path: `pathlib.Path`. Its folder is made if need be.

    Yields:
        `pathlib.Path` in the same folder, with the same ending.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "notes.txt")
        >>> with replacing(path) as partial:
        ...     _ = partial.write_text("all of it")
        >>> path.read_text()
        'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always one name, so that what a kill leaves behind is overwritten.
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        yield partial
        _flush(partial, os.O_RDWR)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    # The rename itself. Some systems and network drives refuse: it is only
    # for a loss of power, not for a kill.
    with contextlib.suppress(OSError):
        _flush(path.parent, os.O_RDONLY)


def _flush(path, flags):
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
