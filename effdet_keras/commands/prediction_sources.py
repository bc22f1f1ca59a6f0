"""What `effdet-keras predict` reads, and the names of what it writes."""

import collections
import os
import pathlib
from collections.abc import Iterable, Iterator

from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES, list_images

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")

# The path of a file, the number of a camera, or the address of a stream.
Source = pathlib.Path | int | str


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
        elif "://" in str(given):
            sources.append(str(given))
        elif path.is_file():
            sources.append(path)
        else:
            raise FileNotFoundError(f"There is no image, folder or video '{given}'")
    return list(dict.fromkeys(sources))


def is_video(source: Source) -> bool:
    """Whether a source gives frames: a video, a camera or a stream."""
    if isinstance(source, pathlib.Path):
        return source.suffix.lower() in VIDEO_SUFFIXES
    return True


def drawn_files(sources: Iterable[Source], out: str | os.PathLike) -> dict:
    """The file that each source is drawn into.

    Args:
        sources: as of `find_sources`.
        out: folder for the files.

    Returns:
        Dict of source to path.

    Raises:
        ValueError: If a file would replace a source, or two sources would be drawn
            into one file.
    """
    out = pathlib.Path(out)
    targets = {source: out / _drawn_name(source) for source in sources}
    read = {source.resolve() for source in targets if isinstance(source, pathlib.Path)}
    taken = {}
    for source, target in targets.items():
        if target.resolve() in read:
            raise InvalidValueError(
                f"'{target}' is one of the files that are read, and would be "
                f"overwritten. Give another folder. Received: out='{out}'"
            )
        if target in taken:
            raise InvalidValueError(
                f"'{taken[target]}' and '{source}' would both be drawn into '{target}'."
                " Give them in two runs with two folders."
            )
        taken[target] = source
    return targets


def _drawn_name(source):
    if isinstance(source, int):
        return f"camera-{source}.mp4"
    if not isinstance(source, pathlib.Path):
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
    if len(set(names.values())) < len(images):
        paths = {image: image.resolve() for image in images}
        root = os.path.commonpath([path.parent for path in paths.values()])
        names = {i: path.relative_to(root).as_posix() for i, path in paths.items()}
    uses = collections.Counter()
    for video in filter(is_video, sources):
        name = pathlib.Path(_drawn_name(video)).stem
        uses[name] += 1
        names[video] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names


def frame_name(name: str, frame: int) -> str:
    """The file name of a frame.

    Example:
        >>> frame_name("street", 12)
        'street-frame-000012.jpg'
    """
    return f"{name}-frame-{frame:06d}.jpg"


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
