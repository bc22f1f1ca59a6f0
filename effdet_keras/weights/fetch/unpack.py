"""Tar archives (`.tar`, `.tar.gz`), unpacked without trusting what they hold."""

import contextlib
import gzip
import pathlib
import shutil
import tarfile
import zlib

from effdet_keras.errors import InvalidValueError

_GZIP_MAGIC = b"\x1f\x8b"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_BLOCK = tarfile.BLOCKSIZE
_MAX_SHARE = 0.9  # of the free disk space, that an archive may fill
_MAX_MEMBERS = 10_000  # a checkpoint has four
_MAX_READ = 1 << 24  # bytes at once: `tarfile` itself reads by 64 kB
# What `tarfile` and `gzip` raise on damaged bytes.
_DAMAGES = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, OverflowError, RecursionError),
)


def is_tar_archive(path):
    """Whether a file is a tar or gzip file, by its first bytes.

    Args:
        path: path of a file.

    Returns:
        Bool.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
        ...     _ = file.write(b"an error page of a server"), file.flush()
        ...     is_tar_archive(file.name)
        False
    """
    with open(path, "rb") as file:
        head = file.read(_BLOCK)
    is_tar = head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)
    return is_tar or head.startswith(_GZIP_MAGIC)


def unpack(path, folder):
    """Writes the files of a `.tar` or `.tar.gz` into an empty folder.

    Only plain files are written, with our permissions and times, and only inside
    the folder. An archive with anything else is refused, for the files of a
    checkpoint need nothing else: links, devices, absolute names, names with `..`.
    (`tarfile`'s own `filter="data"` lets some links pass, mends names instead
    of telling, and is missing in early versions of Python 3.11.) So is one that
    would fill the disk. The end of the archive and gzip's checksum, which
    `tarfile` does not read, are checked.

    Args:
        path: path of the archive.
        folder: path of an existing folder of ours alone. After an error it may
            hold a part of the files.

    Raises:
        ValueError: If the file is no archive, is damaged or truncated, or holds
            what is refused.
        OSError: If a file cannot be read or written.

    Example:
        >>> import pathlib, tarfile, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path, out = pathlib.Path(folder, "d0.tgz"), pathlib.Path(folder, "out")
        ...     _ = pathlib.Path(folder, "model.index").write_text("names"), out.mkdir()
        ...     with tarfile.open(path, "w:gz") as archive:
        ...         archive.add(f"{folder}/model.index", "d0/model.index")
        ...     unpack(path, out)
        ...     (out / "d0" / "model.index").read_text()
        'names'
    """
    if not is_tar_archive(path):
        raise InvalidValueError(
            f"'{path}' is no tar or tar.gz file: its first bytes are of another kind. "
            "It may be an error page of a server: look into it, and fetch it again."
        )
    limit = int(_MAX_SHARE * shutil.disk_usage(folder).free)
    try:
        with (
            _decompressed(path) as stream,
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
    """A file that gives all that is asked for, and no more than is honest.

    Of a forged header, `tarfile` would believe any size; of a truncated list of
    headers, it would fail in ways of its own.
    """

    def __init__(self, file):
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size):
        if not 0 <= size <= _MAX_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError("its end is missing")
        return data


@contextlib.contextmanager
def _decompressed(path):
    with open(path, "rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        if not is_gzip:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            yield stream


def _write_members(archive, folder, limit):
    """Writes the plain files, each checked before; returns their bytes."""
    total = 0
    for count, member in enumerate(archive):
        _check_member(member)
        total += member.size
        if total > limit or count >= _MAX_MEMBERS:
            raise _Refused(
                f"it holds {count + 1} files of {total / 1e9:.1f} GB or more, and at "
                f"most {_MAX_MEMBERS} of {limit / 1e9:.1f} GB are for it on this disk"
            )
        if member.isdir():
            continue  # made with the files in it
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.extractfile(member) as data, open(target, "wb") as file:
            shutil.copyfileobj(data, file)
    return total


def _check_member(member):
    windows = pathlib.PureWindowsPath(member.name)  # splits at "/" and at "\"
    if windows.anchor or ".." in windows.parts or "\0" in member.name:
        raise _Refused(f"its member {member.name!r} would be written elsewhere")
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
    if not (is_file or member.isdir()) or member.issparse():
        raise _Refused(f"its member {member.name!r} is no plain file (link, device)")
    if member.size < 0:
        raise tarfile.ReadError(f"a member of {member.size} bytes")


def _check_rest(stream, end, limit):
    """An archive ends in a block of zeros; gzip's checksum comes after all."""
    stream.seek(end)
    if stream.read(_BLOCK) != bytes(_BLOCK):
        raise tarfile.ReadError("a header is wrong")
    while chunk := stream.read(_MAX_READ):
        limit -= len(chunk)
        if limit < 0:
            raise _Refused("what follows its files would fill this disk")
