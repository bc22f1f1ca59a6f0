"""The names of TFRecord files: splits, and shards such as `-00000-of-00002`."""

from __future__ import annotations

import collections
import glob
import itertools
import os
import pathlib
import re
import warnings

from effdet_keras._internal.local_paths import is_remote, local_path
from effdet_keras.errors import InvalidValueError

_SUFFIX, _NUMBER = r"\.(?:tfrecords?|tfrec|record)", r"-\d{1,9}-of-\d{1,9}"
_SHARD = re.compile(
    rf"(?P<split>.+?)(?:{_SUFFIX}{_NUMBER}|{_NUMBER}{_SUFFIX}|{_NUMBER}|{_SUFFIX})"
    r"(?:\.gz)?"
)


def tfrecord_splits(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Finds the TFRecord files of a folder, by split.

    The split of `train-00000-of-00002.tfrecord` and of `train.record` is
    "train". A folder without such files, but with folders that have some, has
    these as its splits.

    Args:
        folder: str or path.

    Returns:
        Dict of name to sorted list of paths as str; empty without such files.

    Raises:
        NotADirectoryError: If it is no folder.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "valid-00000-of-00001.tfrecord").touch()
        >>> list(tfrecord_splits(folder))
        ['valid']
    """
    splits = _splits_of(pathlib.Path(folder))
    if not splits:
        inner = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        found = {path.name: _splits_of(path) for path in inner}
        splits = {
            name: sorted(itertools.chain.from_iterable(inner_splits.values()))
            for name, inner_splits in found.items()
            if inner_splits
        }
    return splits


def _splits_of(folder):
    splits = collections.defaultdict(list)
    for path in sorted(folder.iterdir()):
        match = _SHARD.fullmatch(path.name)
        if match and path.is_file():
            splits[match["split"]].append(str(path))
    return dict(splits)


def find_files(files):
    """The paths that `files` stands for, in order."""
    if not isinstance(files, str | os.PathLike):
        if not files:
            raise InvalidValueError(
                f"`files` must name some. Received: files={files!r}"
            )
        return [path for entry in files for path in find_files(entry)]
    if is_remote(files):
        local_path(files, "A TFRecord file")  # raises
    files = os.fspath(files)
    if os.path.isdir(files):
        return _only_split(files)
    paths = [files] if os.path.exists(files) else sorted(glob.glob(files))
    if not paths:
        raise FileNotFoundError(
            "`files` must be a file, a pattern that matches some, or a folder. "
            f"Received: files={files!r}, which matches nothing"
        )
    return paths


def describe_files(files, paths):
    """Returns what messages call the files."""
    if isinstance(files, str | os.PathLike):
        return repr(os.fspath(files))
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if paths[1:] else "")


def _only_split(folder):
    splits = tfrecord_splits(folder)
    if not splits:
        raise FileNotFoundError(
            "The folder must have files such as `train-00000-of-00002.tfrecord` or "
            f"`train.record` in it. Received: files={folder!r}, which has none"
        )
    if len(splits) > 1:
        raise InvalidValueError(
            "A folder must have the files of one split. "
            f"Received: files={folder!r} with {sorted(splits)}. Pass a pattern, such "
            f"as {os.path.join(folder, min(splits))}*"
        )
    return next(iter(splits.values()))


def split_of_files(paths):
    """The split that the names of the files say, or None if these differ."""
    matches = [_SHARD.fullmatch(os.path.basename(path)) for path in paths]
    splits = {match and match["split"] for match in matches}
    return splits.pop() if len(splits) == 1 else None


def warn_of_missing(paths, reader):
    """Warns of shards that the names of the others speak of."""
    groups = collections.defaultdict(set)
    for path in paths:
        folder, name = os.path.split(path)
        match = re.search(_NUMBER, name)
        if match:
            number, total = (int(i) for i in re.findall(r"\d+", match.group()))
            groups[folder, name.replace(match.group(), ""), total].add(number)
    for (_, name, total), numbers in groups.items():
        if len(numbers) < total:
            warnings.warn(
                f"{reader}: {len(numbers)} of the {total} files of {name!r} are there, "
                "and read",
                stacklevel=3,
            )
