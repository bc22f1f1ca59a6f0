"""The images of a shard: their names, which never change, and where they are."""

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator

from effdet_keras._internal.remote_path import RemotePath, path_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard `number` of `count`, counted from 1.

    Example:
        >>> shard = Shard.parse("2/16")
        >>> shard.number, shard.count
        (2, 16)
        >>> sum(Shard(n, 3).has("a.jpg") for n in (1, 2, 3))
        1
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Reads "2/16".

        Raises:
            ValueError: If it is not of this format, or out of range.
        """
        number, _, count = text.partition("/")
        is_number = number.isdecimal() and count.isdecimal()
        if is_number and 1 <= int(number) <= int(count) <= 99_999:
            return cls(int(number), int(count))
        raise InvalidValueError(
            "A shard is I/N, with I from 1 to N, such as 1/16 to 16/16. "
            f"Received: {text!r}"
        )

    def has(self, name: str) -> bool:
        """Whether an image is of this shard: by its name alone.

        More images in the folder change nothing for those that were there.
        """
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def sources_of(inputs: Iterable[str | os.PathLike], shard: Shard) -> dict[str, str]:
    """The images of a shard.

    An image in a folder has its path from that folder as its name, with `/`; folders in
    it are looked through, but for those whose names begin with a dot. An image that is
    given by itself has its file name.

    Args:
        inputs: paths or addresses of folders and images.
        shard: `Shard`.

    Returns:
        Dict of name to path or address, in the order of the names.

    Raises:
        FileNotFoundError: If there is nothing of one of the names.
        ValueError: If something is no image by its ending, or two images have one
            name.
    """
    found = {}
    for given in inputs:
        for name, path in _images_of(path_of(given)):
            if not shard.has(name):
                continue
            if found.setdefault(name, path) != path:
                raise InvalidValueError(
                    f"'{found[name]}' and '{path}' would both be '{name}' in the "
                    "output. Give the folder that holds both."
                )
    return dict(sorted(found.items()))


def stamp_of(source: str) -> str:
    """What changes with an image: its bytes and time, or a storage's version."""
    path = path_of(source)
    if isinstance(path, RemotePath):
        return path.version()
    try:
        status = path.stat()
    except OSError:  # its row tells why
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def _images_of(path) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        is_remote = isinstance(path, RemotePath)
        yield from _below_address(path) if is_remote else _below(os.fspath(path))
    elif not path.is_file():
        raise FileNotFoundError(f"There is no image or folder '{path}'")
    elif not _is_image(path.name):
        raise InvalidValueError(
            f"'{path}' is no image by its ending ({', '.join(IMAGE_SUFFIXES)}): shards "
            "are of images and of folders of images"
        )
    else:
        yield path.name, str(path)


def _below(root):
    seen = set()  # links to folders are followed, also in circles: each folder once
    for folder, folders, files in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(
            (name for name in folders if not name.startswith(".")),
            key=lambda name: (os.path.islink(os.path.join(folder, name)), name),
        )
        inner = os.path.relpath(folder, root).replace(os.sep, "/")
        start = "" if inner == "." else f"{inner}/"
        for name in sorted(filter(_is_image, files)):
            yield f"{start}{name}", os.path.join(folder, name)


def _below_address(folder, start=""):
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _below_address(path, f"{start}{path.name}/")
        elif _is_image(path.name):
            yield f"{start}{path.name}", str(path)


def _is_image(name):
    is_hidden = name.startswith(".")
    return not is_hidden and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
