"""Images that are not where an annotation file says: paths of another machine.

A file names `C:\\Users\\me\\pets\\a.png`, and the image is `images/a.png` of the
dataset: the longest ending of the path that exists below the dataset is meant, if it is
one file. Nothing below the dataset is listed before a path turns out to be missing.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import os
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from effdet_keras._internal.remote_path import is_file, path_of
from effdet_keras._internal.whole_files import is_remote, path_in_address
from effdet_keras.data.formats.dataset_files import (
    NO_DATA_FOLDERS,
    split_in_name,
    split_roles,
    split_word_in,
    walk,
)
from effdet_keras.data.shared_images import is_copy
from effdet_keras.images import IMAGE_SUFFIXES

# The folder that the user named, while what is in it is read.
_root: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "dataset_root", default=None
)


@contextlib.contextmanager
def dataset_root(path: Any) -> Iterator[None]:
    """Context in which images are looked for below a folder, or around a file."""
    token = _root.set(root_around(path))
    try:
        yield
    finally:
        _root.reset(token)


# Folders beside the images, or around the folders of splits, that hold annotations.
ANNOTATION_FOLDERS = frozenset(
    """
    annotations annotation annots annot anns labels label json jsons xml xmls metadata
    """.split()
)
# Folders that are not the whole dataset, if a file in them is named.
_INNER_FOLDERS = ANNOTATION_FOLDERS | {
    "csv",
    "meta",
    "cfg",
    "config",
    "configs",
    "data",
}


def root_around(path: Any) -> Any:
    """The folder of a dataset: that of a file, or around its folder of annotations."""
    path = path_of(path)
    if not is_remote(path):
        path = path.absolute()
    if path.is_dir():
        return path
    folder = path.parent
    return folder.parent if folder.name.lower() in _INNER_FOLDERS else folder


def current_root(source: Any = None) -> Any:
    """The folder below which images of a file or folder may be; None if unknown."""
    root = _root.get()
    if root is None and source is not None:
        root = root_around(source)
    # Never the whole disk, nor all that a user has: an image of anything could fit.
    no_dataset = root is None or root.parent == root or root == pathlib.Path.home()
    return None if no_dataset else root


def path_parts(name: str) -> list[str]:
    """The folders and the file of a path of any machine, or of an address.

    Example:
        >>> path_parts(r"..\\media\\upload\\4\\x.png")
        ['media', 'upload', '4', 'x.png']
        >>> path_parts("https://host/up/x%20y.png?w=9")
        ['up', 'x y.png']
        >>> path_parts("/data/local-files/?d=pets/x.png")  # Label Studio
        ['pets', 'x.png']
    """
    name = name.strip().strip("'\"")
    if match := re.search(r"local-files/?\?(?:.*&)?d=([^&#]+)", name):
        name = urllib.parse.unquote(match[1])
    elif re.match(r"[a-z][a-z0-9+.-]+://", name, re.IGNORECASE):
        name = path_in_address(name)
    elif name.partition("?")[0].lower().endswith(IMAGE_SUFFIXES):
        name = name.partition("?")[0]  # the end of an address
    parts = re.split(r"[\\/]+", name)
    return [p for p in parts if p not in ("", ".", "..", "~") and p[1:] != ":"]


class ImageIndex:
    """The images below a folder, by their names: made when a path is missing.

    Args:
        root: folder of the dataset.
    """

    def __init__(self, root: Any):
        self.root = root
        self._paths = collections.defaultdict(list)  # parts below the root, by name
        # Thousands may be called `0001.jpg`, but few in a folder of one name too.
        self._in_folder = collections.defaultdict(list)
        self._stems = collections.defaultdict(list)
        is_there = not is_remote(root) or root.is_dir()
        for place, _, files in walk(root) if is_there else ():
            images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
            folders = place.parts[len(root.parts) :]
            for name in images:
                self._paths[name.lower()].append((*folders, name))
                if folders:
                    key = folders[-1].lower(), name.lower()
                    self._in_folder[key].append((*folders, name))
                stem = name.rpartition(".")[0].lower()
                self._stems[stem].append((*folders, name))

    def __iter__(self) -> Iterator[Any]:
        """The paths of all images."""
        for places in self._paths.values():
            yield from (_join(self.root, parts) for parts in places)

    def find(self, name: str, roles: Set[str] = frozenset()) -> Any:
        """The path of the image that a name of another machine means, or None.

        The longest ending that exists is taken where it is one image; copies, files of
        the same bytes, are one. Of several, that in the folder of a split with these
        roles is. An image of one split is never taken for one of another: nothing is
        found then.
        """
        parts = path_parts(name)
        if not parts:
            return None
        for last in dict.fromkeys((parts[-1], without_hash(parts[-1]))):
            candidates = self._paths.get(last.lower())
            if candidates is None and not last.lower().endswith(IMAGE_SUFFIXES):
                candidates = self._stems.get(last.lower())  # without its ending
            if candidates:
                wanted = [*parts[:-1], last]
                near = self._with_ending(wanted) if len(parts) > 1 else ()
                best = _longest(wanted, near, roles)
                return self._only(best or _longest(wanted, candidates, roles))
        return None

    def _only(self, places):
        """The path of the image at some places: copies are one image. Else None."""
        paths = [_join(self.root, parts) for parts in places]
        is_one = all(is_copy(str(paths[0]), str(path)) for path in paths[1:])
        return paths[0] if paths and is_one else None

    def _with_ending(self, parts):
        """The paths that may end in these parts: by the folder and the name."""
        name = parts[-1].lower()
        if len(parts) == 1:
            return self._paths.get(name, ())
        return self._in_folder.get((parts[-2].lower(), name), ())

    def find_stem(self, stem: str) -> Any:
        """The image with a name without suffix, if there is one; else None."""
        return self._only(self._stems.get(stem.lower(), ()))

    def has(self, ending: Sequence[str], roles: Set[str]) -> bool:
        """Whether there are images of these roles whose paths end like this."""
        return any(
            _common_ending(ending, path) == len(ending)
            and _fits(_roles_of(path[:-1]), roles)
            for path in self._with_ending(ending)
        )


def without_hash(name: str) -> str:
    """The name of a file before Label Studio put eight digits before it.

    Example:
        >>> without_hash("1a2b3c4d-cat.jpg")
        'cat.jpg'
    """
    return re.sub(r"^[0-9a-f]{8}-(?=.)", "", name)


def _longest(wanted, candidates, roles):
    """Of paths with the name that is wanted those with the longest ending."""
    named = split_roles(wanted[:-1]) or roles
    candidates = [c for c in candidates if _fits(_roles_of(c[:-1]), named)]
    lengths = [
        (_common_ending(wanted, c), _common_ending(wanted, c, case=True))
        for c in candidates
    ]
    longest = max(lengths, default=None)
    best = [c for c, length in zip(candidates, lengths) if length == longest]
    if len(best) > 1 and roles:
        best = [c for c in best if _roles_of(c[:-1]) == roles] or best
    if len(best) > 1:  # an image may also be among results, with boxes drawn on it
        best = [c for c in best if not any(map(_is_of_results, c[:-1]))]
    return best


@functools.lru_cache(maxsize=100_000)
def _roles_of(folders):
    """The roles of splits that folders mention, which many images share."""
    return frozenset(split_roles(folders))


def _is_of_results(folder):
    """Whether a folder has copies of images, or masks, but not the images."""
    words = set(re.split(r"[\W_]+", folder.lower()))
    return folder.lower() in NO_DATA_FOLDERS or not words.isdisjoint(_NO_IMAGES)


def may_have_images(folder: str) -> bool:
    """Whether a folder of this name may have images, rather than masks or labels.

    Example:
        >>> [may_have_images(n) for n in ("val_images", "val_masks", "val_labels")]
        [True, False, False]
    """
    words = set(re.split(r"[\W_]+", folder.lower()))
    return words.isdisjoint(ANNOTATION_FOLDERS) and not _is_of_results(folder)


_NO_IMAGES = frozenset("mask masks overlay overlays result results".split())


def _fits(roles, wanted):
    """Whether folders of these splits may hold an image of a path that names others."""
    return not roles or not wanted or bool(roles & wanted)


def _common_ending(wanted, path, case=False):
    """How many of the last parts of two paths are equal."""
    count = 0
    for one, other in zip(reversed(wanted), reversed(path)):
        if one != other and (case or one.lower() != other.lower()):
            break
        count += 1
    return count


_IMAGE_FOLDERS = ("images", "Images", "imgs", "img", "JPEGImages", "data")


class ImageLocator:
    """Finds the images that an annotation file names.

    A name may be the path of another machine, an address, or have a prefix that the
    tool added. The longest ending of it that exists near the file is taken, where that
    is one image.

    An image of one split is never taken for one of another.

    Args:
        file: path of the annotation file. Its name, or that of its folder, may be the
            name of a split, whose folder may hold the images.
        image_dir: folder of the images, or None for those near the file.
        subset: name of the split, where it is in the file.
    """

    def __init__(self, file: Any, image_dir: Any = None, subset: str | None = None):
        self._index = self._renamed = None
        self._roles = (
            _roles_of_source(file) if subset is None else split_roles([subset])
        )
        if image_dir is not None:
            self._root = path_of(image_dir)
            self._folders = [self._root]
            return
        folder = file.parent
        is_inner = folder.name.lower() in ANNOTATION_FOLDERS
        self._root = folder.parent if is_inner else folder
        split = subset or split_word_in(file.stem)
        names = [split, *(f"{f}/{split}" for f in _IMAGE_FOLDERS)] if split else []
        names += [file.stem, *_IMAGE_FOLDERS]
        # A folder `images` beside the folder of the file is near enough as well.
        # What is above an address may be no folder.
        bases = [folder] if is_remote(folder) else [folder, folder.parent]
        places = [base / name for base in bases for name in names]
        self._folders = list(dict.fromkeys([folder, self._root, *places]))
        if not is_remote(folder):
            self._folders = [place for place in self._folders if place.is_dir()]

    def find(self, name: str) -> Any:
        """The path of an image; where none is there, the one that was expected."""
        path = self._find(name)
        other = urllib.parse.unquote(name)  # some tools write a blank as %20
        if other == name or is_file(path):
            return path
        found = self._find(other)
        return found if is_file(found) else path

    def _find(self, name):
        parts = path_parts(name)
        if not parts:
            return self._folders[0]
        if "://" not in name:
            literal = self._folders[0] / name.strip().replace("\\", "/")
            if is_file(literal):  # with `..` in it, or absolute
                return literal
        roles = split_roles(parts[:-1]) or self._roles
        for start in range(len(parts)):
            ending = parts[start:]
            for folder in self._folders:
                path = folder / "/".join(ending)
                if is_file(path) and self._may_be_of(path, roles):
                    return path
            if self._images.has(ending, roles):
                break  # deeper below: shorter endings are not better
        expected = self._folders[0] / "/".join(parts)
        return self._images.find(name, self._roles) or expected

    def find_frame(self, stem: str) -> Any | None:
        """The image of a name without suffix, or None."""
        return self._images.find_stem(stem)

    def frames(self) -> list[tuple[int, str]]:
        """The numbers and names of images that are called as frames of a video are."""
        paths = list(self._images)
        matches = [(re.fullmatch(r"frame_(\d+)", p.stem), p.name) for p in paths]
        return sorted((int(match[1]), name) for match, name in matches if match)

    def find_renamed(self, name: str, rename: Callable[[str], str]) -> Any | None:
        """The one image whose name a tool has changed to this one, or None."""
        if self._renamed is None:
            self._renamed = collections.defaultdict(list)
            for path in self._images:
                self._renamed[rename(path.name)].append(path)
        found = self._renamed.get(name, ())
        return found[0] if len(found) == 1 else None

    def _may_be_of(self, path, roles):
        """Whether an image may be of one of these splits, by its folders."""
        return _fits(split_roles(path.parts[len(self._root.parts) : -1]), roles)

    @property
    def _images(self):
        """The images below the folder: listed when one is not where it should be."""
        if self._index is None:
            self._index = ImageIndex(self._root)
        return self._index


def find_moved(
    names: Sequence[Sequence[str]],
    source: Any,
    expected: Sequence[Any] = (),
    image_dir: Any = None,
) -> tuple[list[Any], Any]:
    """The images that names of another machine mean: a path or None for each.

    Args:
        names: for each image the names that it may have, most likely first.
        source: the annotation file, or the folder of the dataset.
        expected: the path at which each was expected, whose folders may name a split.
        image_dir: the folder to look below; None is that of the dataset.

    Returns:
        The paths, and the folder below which they were looked for, or None. Two images
        never get one path: both are None then.
    """
    root = current_root(source) if image_dir is None else path_of(image_dir)
    if root is None or not root.is_dir() or (is_remote(root) and not root.is_listed):
        return [None] * len(names), None
    index, roles_of_source = ImageIndex(root), _roles_of_source(path_of(source))
    paths = []
    for i, several in enumerate(names):
        folders = expected[i].parts[len(root.parts) : -1] if expected else ()
        roles = split_roles(folders) or roles_of_source
        tried = (index.find(name, roles) for name in several if name)
        paths.append(next((path for path in tried if path is not None), None))
    counts = collections.Counter(path for path in paths if path is not None)
    return [path if counts[path] == 1 else None for path in paths], root


def images_called(names: Sequence[str], source: Any) -> list[list[Any]]:
    """For each path all images of the dataset whose files have the name it ends in."""
    root = current_root(source)
    if not names or root is None or is_remote(root):
        return [[] for _ in names]
    by_name = collections.defaultdict(list)
    for path in ImageIndex(root):
        by_name[path.name].append(path)
    return [
        by_name.get(parts[-1], []) if (parts := path_parts(n)) else [] for n in names
    ]


def _roles_of_source(path):
    """The roles of the split that an annotation file, or its folder, names."""
    of_folder = split_in_name(path.parent.name) or ""
    name = path.stem if is_file(path) else split_in_name(path.name) or ""
    return split_roles([name]) or split_roles([of_folder])


# --- Folders and lists of images that a file names.


def find_folder(name: str, bases: Sequence[Any]) -> tuple[Any, bool]:
    """The folder or file that a `data.yaml` names, and whether it was moved.

    Looks at each base first, then for the longest ending of the path that exists in a
    base, then for it below the base, where it is one. An ending keeps the name of a
    split: `valid/images` is never `images` alone, which could be those of `train`. Of
    `../train/images`, as Roboflow writes it, `train/images` in a base comes first, and
    what lies outside of all bases last.

    Returns:
        Path or None; bool, whether the path is another than the file says.
    """
    clean = name.strip().strip("'\"").replace("\\", "/")
    texts = [name, name.replace("../", ""), clean, clean.replace("../", "")]
    if clean.startswith(".."):
        texts.reverse()
    places = [base / text for base in bases for text in dict.fromkeys(texts)]
    if clean.startswith(".."):
        places.sort(key=lambda place: is_outside(place, bases))
    for place in places:
        if place.exists():
            return place, False
    parts = path_parts(name)
    split_places = [i for i, part in enumerate(parts) if split_in_name(part)]
    longest = split_places[-1] + 1 if split_places else len(parts)
    endings = [parts[start:] for start in range(longest)]
    for base in bases:
        for ending in endings:
            place = _join(base, ending)
            if place.exists():
                return place, True
    for base in bases:
        if is_remote(base):
            continue
        below = list(_folders_below(base))
        for ending in endings:
            same = [p for p in below if list(p[-len(ending) :]) == ending]
            if len(same) == 1:
                return _join(base, same[0]), True
            if same:
                break
    return None, False


def is_outside(place: Any, bases: Sequence[Any]) -> bool:
    """Whether a path is in none of some folders of this machine, after all `..`.

    Example:
        >>> base = pathlib.Path("/data/pets")
        >>> [is_outside(base / p, [base]) for p in ("../train", "../pets/train")]
        [True, False]
    """
    if is_remote(place):
        return False
    folders = {pathlib.Path(os.path.abspath(base)) for base in bases}
    place = pathlib.Path(os.path.abspath(place))
    return folders.isdisjoint((place, *place.parents))


_DEPTH = 4  # folders below the one of a data.yaml


def _folders_below(base):
    """The parts of each folder below one, without those of models and caches."""
    for place, folders, _ in walk(base, depth=_DEPTH):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        if place != base:
            yield place.parts[len(base.parts) :]


def _join(folder, parts):
    return folder / "/".join(parts)
