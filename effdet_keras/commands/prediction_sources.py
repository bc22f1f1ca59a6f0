"""What `effdet-keras predict` reads, and the names of what it writes."""

import collections
import os
import pathlib
from collections.abc import Iterable, Iterator

from effdet_keras._internal.local_paths import is_remote
from effdet_keras._internal.remote_path import RemotePath, path_of
from effdet_keras.images import IMAGE_SUFFIXES, list_images

FRAME = "-frame-"  # between the name of a video and the number of a frame
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")

_OF_FILES = (pathlib.Path, RemotePath)
# The path or address of a file, the number of a camera, or the address of a stream.
Source = pathlib.Path | RemotePath | int | str


def find_sources(inputs: Iterable[str | os.PathLike]) -> list[Source]:
    """Lists single sources, each once; a folder stands for its images.

    Raises:
        FileNotFoundError: If there is nothing of one of the names.
    """
    sources = []
    for given in inputs:
        path = pathlib.Path(given)
        if path.is_dir():
            sources += list_images(path)
        elif str(given).isdigit() and not path.exists():
            sources.append(int(given))
        elif is_remote(given) and path_of(given).suffix.lower() in IMAGE_SUFFIXES:
            sources.append(path_of(given))
        elif "://" in str(given):
            sources.append(str(given))
        elif path.is_file():
            sources.append(path)
        else:
            raise FileNotFoundError(f"There is no image, folder or video '{given}'")
    return list(dict.fromkeys(sources))


def is_video(source: Source) -> bool:
    """Whether a source gives frames: a video, a camera or a stream."""
    if isinstance(source, _OF_FILES):
        return source.suffix.lower() in VIDEO_SUFFIXES
    return True


def drawn_files(sources: Iterable[Source], out: str | os.PathLike) -> dict:
    """The file that each source is drawn into.

    It has the source's name; where two have one, files are drawn into folders, by
    their paths from the folder that holds them all.

    Args:
        sources: as of `find_sources`.
        out: folder for the files.

    Returns:
        Dict of source to path.
    """
    names = {source: _drawn_name(source) for source in sources}
    files = [source for source in names if isinstance(source, _OF_FILES)]
    if _share_a_name(names.values()) and files:
        folders = _folders_below_all(files)
        names |= {file: folders[file] / names[file] for file in files}
    return {source: pathlib.Path(out, name) for source, name in names.items()}


def _drawn_name(source):
    if isinstance(source, int):
        return f"camera-{source}.mp4"
    if not isinstance(source, _OF_FILES):
        return "stream.mp4"
    if is_video(source):
        return f"{source.stem}.{'avi' if source.suffix.lower() == '.avi' else 'mp4'}"
    is_known = source.suffix.lower() in IMAGE_SUFFIXES
    return source.name if is_known else f"{source.name}.png"


def names_in_json(sources: Iterable[Source]) -> dict:
    """The name of each source in a COCO file: no two have the same.

    An image has its file name; where two of the images have one, all have their
    paths from the folder that holds them all. The name of a video is what the names of
    its frames begin with, see `frame_name`.

    Args:
        sources: as of `find_sources`.

    Returns:
        Dict of source to string.
    """
    sources = list(sources)
    images = [source for source in sources if not is_video(source)]
    names = {image: image.name for image in images}
    if _share_a_name(names.values()):
        folders = _folders_below_all(images)
        names = {i: (folders[i] / i.name).as_posix() for i in images}
    uses = collections.Counter()
    for video in filter(is_video, sources):
        name = pathlib.Path(_drawn_name(video)).stem
        uses[name] += 1
        names[video] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names


def _share_a_name(names):
    """Whether two names are one, also where upper and lower case are the same."""
    names = [str(name).casefold() for name in names]
    return len(set(names)) < len(names)


def _folders_below_all(files):
    """The folder of each file, seen from the folder that holds all of them."""
    folders = {file: _folder_of(file) for file in files}
    root = os.path.commonpath(folders.values())
    return {file: folder.relative_to(root) for file, folder in folders.items()}


def _folder_of(file):
    if isinstance(file, RemotePath):  # as if addresses were a folder of this machine
        return pathlib.Path("/", *file.parent.parts[1:])
    return file.resolve().parent


def frame_name(name: str, frame: int) -> str:
    """The file name of a frame.

    Example:
        >>> frame_name("street", 12)
        'street-frame-000012.jpg'
    """
    return f"{name}{FRAME}{frame:06d}.jpg"


def batched(sources: Iterable[Source], batch_size: int) -> Iterator[list]:
    """Images in lists of up to `batch_size`; each video in a list of its own."""
    images = []
    for source in sources:
        if is_video(source):
            if images:
                yield images
            yield [source]
            images = []
        else:
            images.append(source)
            if len(images) == batch_size:
                yield images
                images = []
    if images:
        yield images
