"""From what a user has (path, URL, folder, archive) to one file of weights."""

from __future__ import annotations

import contextlib
import difflib
import gzip
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
import zlib

from effdet_keras._internal.remote_path import fetch, local_copy, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.errors import InvalidTypeError, InvalidValueError, require
from effdet_keras.weights.checkpoint_files import checkpoint_in
from effdet_keras.weights.download import check_digest, download
from effdet_keras.weights.kinds.automl import STATE_FILE

CONFIG_NAME = "pipeline.config"  # beside checkpoints of the Object Detection API
_SUFFIXES = (".h5", ".hdf5", ".keras", ".pth", ".pt", ".pth.tar", ".safetensors")
# The two names under which a repository of the Hugging Face Hub has PyTorch's weights.
_HUB_SAFETENSORS, _HUB_PICKLE = "model.safetensors", "pytorch_model.bin"
_STATE = re.compile(r'^model_checkpoint_path:\s*"(.*)"', re.MULTILINE)
_INDEX = ".index"
# Folders of the Object Detection API's exporter, beside one called as `STATE_FILE`.
_SAVED_MODEL, _VARIABLES = "saved_model", "variables"
_LABEL_MAP = re.compile(r"label_map_path:\s*[\"'](?:[^\"']*[/\\])?(.+?)[\"']")
_DOWNLOAD = re.compile(r"(?:https?|file)://", re.IGNORECASE)
# What TensorFlow adds to the prefix of a checkpoint.
_PIECE = re.compile(r"\.(?:index|meta|data-\d{5}-of-\d{5})$")


@contextlib.contextmanager
def located(source, *, sha256=None, md5=None, verbose=1):
    """Finds the one file of weights that a source means."""
    is_source = isinstance(source, (str, os.PathLike))
    rule = "A source of weights is a path or a URL"
    require(is_source, rule, InvalidTypeError, source=source)
    source = os.fspath(source)
    has_digest = sha256 or md5
    with contextlib.ExitStack() as stack:
        if _DOWNLOAD.match(source):
            path = download(source, sha256=sha256, md5=md5, verbose=verbose)
        else:
            path = path_of(source).expanduser()
            if has_digest and (path.is_dir() or _index_of(path).is_file()):
                raise InvalidValueError(
                    f"A digest belongs to one file, and '{path}' is not a file: leave "
                    "out `sha256`."
                )
        path = _weights_at(path)
        if is_remote(path):
            path = _copied(path, stack)
        if has_digest:
            check_digest(path, sha256=sha256, md5=md5)
        if path.is_file() and is_tar_archive(path):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            unpack(path, folder)
            path = _weights_in(pathlib.Path(folder), f"The archive '{path}'")
        yield path


def is_there(path):
    """Whether a path is a file, a folder or the prefix of a TensorFlow checkpoint."""
    return path.exists() or _index_of(path).is_file()


def _copied(path, stack):
    """The weights at an address, a file or a prefix, on this machine."""
    if path.is_file():
        return local_copy(path)
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for piece in path.parent.glob(f"{path.name}.*"):
        fetch(str(piece), folder / piece.name)
    _copy_pipeline_config(path.parent, folder)
    return folder / path.name


def _copy_pipeline_config(found, folder):
    """Copies the Object Detection API's `pipeline.config`, and its label map."""
    above = (found, found.parent, found.parent.parent)
    levels = 3 if found.name == _VARIABLES else 2
    for place in above[:levels]:
        if not (place / CONFIG_NAME).is_file():
            continue
        fetch(str(place / CONFIG_NAME), folder / CONFIG_NAME)
        text = (folder / CONFIG_NAME).read_text("utf-8", errors="replace")
        for name in set(_LABEL_MAP.findall(text)):
            if (place / name).is_file():
                fetch(str(place / name), folder / name)
        return


def _weights_at(path):
    """The file of weights, or the prefix of a checkpoint, that a path means."""
    if path.is_dir():
        return _weights_in(path, f"The folder '{path}'")
    if path.name == STATE_FILE and path.is_file():
        return _weights_in(path.parent, f"The folder '{path.parent}'")
    prefix = path.with_name(_PIECE.sub("", path.name))
    if _index_of(prefix).is_file() and (prefix != path or not path.exists()):
        return _whole_checkpoint(prefix)
    if not path.exists():
        raise FileNotFoundError(_missing(path))
    if prefix != path:
        raise FileNotFoundError(
            f"'{path}' is a piece of a TensorFlow checkpoint whose "
            f"'{_index_of(prefix).name}' is not beside it. Copy all of its files."
        )
    return path


def _weights_in(folder, label):
    """The file of weights in a folder that messages call `label`."""
    checkpoint = checkpoint_in(folder)
    if checkpoint is not None:
        return checkpoint
    prefix = _noted_prefix(folder)
    if prefix is not None:
        return _whole_checkpoint(prefix)
    exported = _in_exported_folder(folder)
    if exported is not None:
        return _weights_in(exported, label)
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    prefixes = [name.removesuffix(_INDEX) for name in names if name.endswith(_INDEX)]
    files = [name for name in _files_of_weights(names) if (folder / name).is_file()]
    candidates = prefixes + files
    if len(candidates) > 1:
        raise InvalidValueError(
            f"{label} holds several checkpoints: {', '.join(candidates)}. Name one: "
            "give its own path (of an archive, unpacked)."
        )
    if prefixes:
        return _whole_checkpoint(folder / prefixes[0])
    if candidates:
        return folder / candidates[0]
    subfolders = [folder / name for name in names if (folder / name).is_dir()]
    if len(subfolders) == 1:
        return _weights_in(subfolders[0], label)
    raise InvalidValueError(
        f"{label} holds no weights: neither a TensorFlow checkpoint (.index) nor a "
        f"file that ends in {', '.join(_SUFFIXES)}. It holds: {_listed(names)}"
    )


def _files_of_weights(names):
    """Those that are files of weights; of the hub's two of the same weights, one."""
    files = [name for name in names if name.lower().endswith(_SUFFIXES)]
    if _HUB_SAFETENSORS in files or _HUB_PICKLE not in names:
        return files
    return [*files, _HUB_PICKLE]


def _in_exported_folder(folder):
    """The folder of the checkpoint in what the Object Detection API exports."""
    if any(folder.glob(f"*{_INDEX}")):
        return None
    for name in (STATE_FILE, _SAVED_MODEL, _VARIABLES):
        inner = folder / name
        if inner.is_dir() and any(inner.rglob(f"*{_INDEX}")):
            return inner
    return None


def _noted_prefix(folder):
    """The checkpoint that the file `checkpoint` names, if it is in this folder."""
    state = folder / STATE_FILE
    if not state.is_file():
        return None
    match = _STATE.search(state.read_text(errors="replace"))
    if match is None:
        return None
    # The path may be one of another machine: only its last part counts.
    prefix = folder / re.split(r"[/\\]", match[1])[-1]
    return prefix if _index_of(prefix).is_file() else None


def _index_of(prefix):
    return prefix.with_name(prefix.name + _INDEX)


def _whole_checkpoint(prefix):
    """The prefix, if all files of its data are there."""
    names = [p.name for p in prefix.parent.iterdir()]
    data = re.compile(re.escape(prefix.name) + r"\.data-(\d{5})-of-(\d{5})")
    matches = [match for match in map(data.fullmatch, names) if match]
    if not matches or len(matches) < int(matches[0][2]):
        total = int(matches[0][2]) if matches else 1
        raise FileNotFoundError(
            f"Of the TensorFlow checkpoint '{prefix}', {len(matches)} of {total} data "
            f"files ('{prefix.name}.data-...') are there. Copy all of its files."
        )
    return prefix


def _missing(path):
    """Says how far the path is right, and what is near."""
    parent = path.parent
    if not parent.is_dir():
        return f"There is no '{path}': its folder '{parent}' does not exist"
    names = sorted(item.name for item in parent.iterdir())
    near = difflib.get_close_matches(path.name, names, n=5, cutoff=0.5)
    hint = (
        f"Did you mean: {', '.join(near)}?" if near else f"There is: {_listed(names)}"
    )
    return f"There is no '{path}'. {hint}"


def _listed(names, most=8):
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more


# --- Tar archives (`.tar`, `.tar.gz`), unpacked without trusting what they hold.

_GZIP_MAGIC = b"\x1f\x8b"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_BLOCK = tarfile.BLOCKSIZE
_MAX_SHARE = 0.9  # of the free disk space, that an archive may fill
_MAX_MEMBERS = 10_000  # a checkpoint has four
_MAX_READ = 1 << 24  # bytes at once: `tarfile` itself reads by 64 kB
# What `tarfile` and `gzip` raise on damaged bytes.
_DAMAGES = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(LookupError, ValueError, OverflowError, MemoryError, RecursionError),
)


def is_tar_archive(path):
    """Whether a file is a tar or gzip file, by its first bytes."""
    head = _head_of(path)
    is_tar = head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)
    return is_tar or head.startswith(_GZIP_MAGIC)


def _head_of(path):
    with open(path, "rb") as file:
        return file.read(_BLOCK)


def unpack(path, folder):
    """Writes the files of a `.tar` or `.tar.gz` into an empty folder."""
    open_archive = gzip.open if _head_of(path).startswith(_GZIP_MAGIC) else open
    limit = int(_MAX_SHARE * shutil.disk_usage(folder).free)
    try:
        with (
            open_archive(path, "rb") as stream,
            tarfile.open(fileobj=_CheckedReads(stream), mode="r:") as archive,
        ):
            total = _write_members(archive, pathlib.Path(folder), limit)
            _check_rest(stream, archive.offset, limit - total)
    except _Refused as error:
        raise InvalidValueError(
            f"The archive '{path}' is not unpacked: {error}. Unpack it by hand if you "
            "trust it, and give the path of the checkpoint in it."
        ) from None
    except _DAMAGES as error:
        raise InvalidValueError(
            f"The archive '{path}' is damaged or truncated ({error}). Fetch or copy it "
            "again."
        ) from error


class _Refused(Exception):
    """An archive that could do harm; the text says why."""


class _CheckedReads:
    """A file of which no header can make `tarfile` read all into memory."""

    def __init__(self, file):
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size):
        if not 0 <= size <= _MAX_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


def _write_members(archive, folder, limit):
    """Writes the plain files, each checked before; returns their bytes."""
    total = 0
    for count, member in enumerate(archive):
        target = folder / member.name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise _Refused(f"its member {member.name!r} would be written elsewhere")
        if not (member.isfile() or member.isdir()) or member.issparse():
            raise _Refused(
                f"its member {member.name!r} is no plain file (link, device)"
            )
        total += member.size
        if total > limit or count >= _MAX_MEMBERS:
            raise _Refused(
                f"it holds {count + 1} files of {total / 1e9:.1f} GB or more, and at "
                f"most {_MAX_MEMBERS} of {limit / 1e9:.1f} GB are for it on this disk"
            )
        if member.isfile():  # folders are made with the files in them
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.extractfile(member) as data, open(target, "wb") as file:
                shutil.copyfileobj(data, file)
    return total


def _check_rest(stream, end, limit):
    """An archive ends in a block of zeros; gzip's checksum comes after all."""
    stream.seek(end)
    if stream.read(_BLOCK) != bytes(_BLOCK):
        raise tarfile.ReadError("a header is wrong")
    while chunk := stream.read(_MAX_READ):
        limit -= len(chunk)
        if limit < 0:
            raise _Refused("what follows its files would fill this disk")
