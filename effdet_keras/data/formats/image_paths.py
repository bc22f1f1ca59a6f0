"""Finds images whose paths in an annotation file are those of another machine.

If a file names `C:\\Users\\me\\pets\\a.png`, the image may be `images/a.png` in the
dataset. The longest ending of the path that exists below the dataset is used, if it
means one file. The files below a dataset are listed only once a path turns out to be
missing.
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
    has_word,
    split_in_name,
    split_roles,
    split_word_in,
    visible_folders,
    walk,
    words_in_name,
)
from effdet_keras.data.shared_images import is_copy
from effdet_keras.images import IMAGE_SUFFIXES

# The folder that the user named, while the dataset in it is read.
_root: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "dataset_root", default=None
)


@contextlib.contextmanager
def dataset_root(path: Any) -> Iterator[None]:
    """Context in which images are looked for below a folder, or around a file.

    Args:
        path: the file or folder that the user named.
    """
    token = _root.set(root_around(path))
    try:
        yield
    finally:
        _root.reset(token)


# The images that entries of any split name, while missing ones are looked for among the
# others in the folders of all splits.
_named: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar(
    "named_images", default=None
)


@contextlib.contextmanager
def searching_all_splits(named: set[str]) -> Iterator[None]:
    """Context in which a missing image may be in the folder of another split.

    Args:
        named: paths of the images that an entry of any split names. They are not used.
            Those that are found are added.
    """
    token = _named.set(named)
    try:
        yield
    finally:
        _named.reset(token)


def named_images() -> set[str] | None:
    """Returns the set of `searching_all_splits`, or None outside of that context."""
    return _named.get()


# Names of folders of annotations, beside the images or around the folders of splits.
ANNOTATION_FOLDERS = frozenset(
    """
    annotations annotation annots annot anns labels label json jsons xml xmls metadata
    """.split()
)
# Names of folders that are not the whole dataset, even if the user names a file in
# them.
_INNER_FOLDERS = ANNOTATION_FOLDERS | {
    "csv",
    "meta",
    "cfg",
    "config",
    "configs",
    "data",
}


def root_around(path: Any) -> Any:
    """Returns the folder of the dataset that a file or folder belongs to.

    It is the folder itself, or that of the file, or the one around a folder of
    annotations that has the file.
    """
    path = path_of(path)
    if not is_remote(path):
        path = path.absolute()
    if path.is_dir():
        return path
    folder = path.parent
    return folder.parent if folder.name.lower() in _INNER_FOLDERS else folder


def current_root(source: Any = None) -> Any:
    """Returns the folder below which images may be looked for, or None.

    It is the `dataset_root` that is set, or else that around `source`. It is never the
    whole disk, nor the home folder of the user.
    """
    root = _root.get()
    if root is None and source is not None:
        root = root_around(source)
    # Never the whole disk, nor the home folder: some unrelated image there could fit.
    no_dataset = root is None or root.parent == root or root == pathlib.Path.home()
    return None if no_dataset else root


def path_parts(name: str) -> list[str]:
    """Returns the folders and the file name in a path of any system, or an address.

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
        name = name.partition("?")[0]  # without the query of an address
    parts = re.split(r"[\\/]+", name)
    return [p for p in parts if p not in ("", ".", "..", "~") and p[1:] != ":"]


class ImageIndex:
    """Index of the images below a folder, by their names.

    It is made only once a path is missing.

    Args:
        root: folder of the dataset.
    """

    def __init__(self, root: Any):
        self.root = root
        # Name in lower case -> parts of paths below the root.
        self._paths = collections.defaultdict(list)
        # Thousands of images may be called `0001.jpg`, but few of them are in folders
        # of the same name too.
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
        """Yields the paths of all images."""
        for places in self._paths.values():
            yield from (_join(self.root, parts) for parts in places)

    def find(self, name: str, roles: Set[str] = frozenset()) -> Any:
        """Returns the path of the image that another machine's path means, or None.

        The longest ending of the name that exists is used, if it means one image.
        Copies, which are files with the same bytes, count as one. Among several images,
        the one in the folder of a split with these roles is used. An image of one split
        is never taken for one of another; then the result is None.

        Args:
            name: path or address in the annotations. Its suffix may be missing.
            roles: roles of the split, as `split_roles` returns them.
        """
        parts = path_parts(name)
        if not parts:
            return None
        for last in dict.fromkeys((parts[-1], without_hash(parts[-1]))):
            candidates = self._paths.get(last.lower())
            if candidates is None and not last.lower().endswith(IMAGE_SUFFIXES):
                candidates = self._stems.get(last.lower())  # the name has no suffix
            if candidates:
                wanted = [*parts[:-1], last]
                near = self._with_ending(wanted) if len(parts) > 1 else ()
                best = _longest(wanted, near, roles)
                return self._only(best or _longest(wanted, candidates, roles))
        return None

    def _only(self, places):
        """Returns the path if the places are one image and its copies, else None."""
        paths = [_join(self.root, parts) for parts in places]
        is_one = all(is_copy(str(paths[0]), str(path)) for path in paths[1:])
        return paths[0] if paths and is_one else None

    def _with_ending(self, parts):
        """Returns the paths that may end in these parts, by the folder and the name."""
        name = parts[-1].lower()
        if len(parts) == 1:
            return self._paths.get(name, ())
        return self._in_folder.get((parts[-2].lower(), name), ())

    def find_stem(self, stem: str) -> Any:
        """Returns the only image with this name without suffix, or None."""
        return self._only(self._stems.get(stem.lower(), ()))

    def has(self, ending: Sequence[str], roles: Set[str]) -> bool:
        """Returns whether images of these roles have paths that end in these parts."""
        return any(
            _common_ending(ending, path) == len(ending)
            and _fits(_roles_of(path[:-1]), roles)
            for path in self._with_ending(ending)
        )


def without_hash(name: str) -> str:
    """Removes the eight digits and the hyphen that Label Studio puts before a name.

    Example:
        >>> without_hash("1a2b3c4d-cat.jpg")
        'cat.jpg'
    """
    return re.sub(r"^[0-9a-f]{8}-(?=.)", "", name)


def _longest(wanted, candidates, roles):
    """Returns the candidates that share the longest ending with the wanted path."""
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
    if len(best) > 1:  # results may have a copy of the image with boxes drawn on it
        best = [c for c in best if not any(map(may_be_of_results, c[:-1]))]
    return best


@functools.lru_cache(maxsize=100_000)
def _roles_of(folders):
    """Returns the roles of the splits that folders mention.

    Many images share their folders, so the results are cached.
    """
    return frozenset(split_roles(folders))


def _is_of_results(folder):
    """Returns whether a folder has results or masks rather than the original images."""
    words = set(re.split(r"[\W_]+", folder.lower()))
    return folder.lower() in NO_DATA_FOLDERS or not words.isdisjoint(_NO_IMAGES)


def may_be_of_results(folder: str) -> bool:
    """Returns whether a folder may have results, so that another one is preferred.

    Example:
        >>> [may_be_of_results(n) for n in ("masks", "train_output", "train_images")]
        [True, True, False]
    """
    words = re.split(r"[\W_]+", folder.lower())
    return _is_of_results(folder) or not _OUTPUTS.isdisjoint(words)


_OUTPUTS = frozenset(("output", "outputs"))


def may_have_images(folder: str) -> bool:
    """Returns whether a folder of this name may have images, not masks or labels.

    Example:
        >>> [may_have_images(n) for n in ("val_images", "val_masks", "val_labels")]
        [True, False, False]
    """
    words = set(re.split(r"[\W_]+", folder.lower()))
    return words.isdisjoint(ANNOTATION_FOLDERS) and not _is_of_results(folder)


_NO_IMAGES = frozenset(
    """
    mask masks overlay overlays result results pred preds predicted prediction
    predictions detected
    """.split()
)


def _fits(roles, wanted):
    """Returns whether folders of `roles` may hold an image of a split with `wanted`."""
    return not roles or not wanted or bool(roles & wanted)


def _common_ending(wanted, path, case=False):
    """Returns how many of the last parts of two paths are equal."""
    count = 0
    for one, other in zip(reversed(wanted), reversed(path)):
        if one != other and (case or one.lower() != other.lower()):
            break
        count += 1
    return count


_ANNOTATION_WORDS = "|".join(sorted(ANNOTATION_FOLDERS))  # words, see `has_word`
_IMAGE_FOLDERS = ("images", "Images", "imgs", "img", "JPEGImages", "data")


def _image_folders_beside(folder):
    """Returns `images_test` for `labels_test`, the folder of annotation files."""
    words = words_in_name(folder.name)
    if is_remote(folder) or not words or not has_word(folder.name, _ANNOTATION_WORDS):
        return []
    return [
        place
        for place in visible_folders(folder.parent)
        if words_in_name(place.name) == words and has_word(place.name, "images?|imgs?")
    ]


class ImageLocator:
    """Finds the images that an annotation file names.

    A name may be a path of another machine or an address, or have a prefix that the
    tool added. The longest ending of it that exists near the file is used, if it means
    one image.

    An image of one split is never taken for one of another.

    Args:
        file: path of the annotation file. If its name, or that of its folder, means a
            split, the folder of that split may hold the images.
        image_dir: folder of the images, or None to look near the file.
        subset: name of the split, if the file gives it.
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
        # A folder `images` beside the folder of the file is near enough too. What is
        # above an address may be no folder.
        bases = [folder] if is_remote(folder) else [folder, folder.parent]
        places = [base / name for base in bases for name in names]
        places += _image_folders_beside(folder)
        self._folders = list(dict.fromkeys([folder, self._root, *places]))
        if not is_remote(folder):
            self._folders = [place for place in self._folders if place.is_dir()]

    def find(self, name: str) -> Any:
        """Returns the path of an image, or the expected path if it does not exist.

        Args:
            name: name of the image in the annotations: a path or an address.
        """
        path = self._find(name)
        other = urllib.parse.unquote(name)  # some tools write a space as %20
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
            if is_file(literal):  # a name that has `..` in it, or is absolute
                return literal
        roles = split_roles(parts[:-1]) or self._roles
        for start in range(len(parts)):
            ending = parts[start:]
            for folder in self._folders:
                path = folder / "/".join(ending)
                if is_file(path) and self._may_be_of(path, roles):
                    return path
            if self._images.has(ending, roles):
                break  # an image deeper below fits better than shorter endings here
        expected = self._folders[0] / "/".join(parts)
        return self._images.find(name, self._roles) or expected

    def find_frame(self, stem: str) -> Any | None:
        """Returns the image with this name without suffix, or None."""
        return self._images.find_stem(stem)

    def frames(self) -> list[tuple[int, str]]:
        """Returns the numbers and names of the images that are frames of a video.

        Their names are `frame_000000` and so on.
        """
        paths = list(self._images)
        matches = [(re.fullmatch(r"frame_(\d+)", p.stem), p.name) for p in paths]
        return sorted((int(match[1]), name) for match, name in matches if match)

    def find_renamed(self, name: str, rename: Callable[[str], str]) -> Any | None:
        """Returns the only image that `rename` gives this name, or None.

        Args:
            name: name in the annotations, which the tool has changed.
            rename: function from the name of a file to the changed name.
        """
        if self._renamed is None:
            self._renamed = collections.defaultdict(list)
            for path in self._images:
                self._renamed[rename(path.name)].append(path)
        found = self._renamed.get(name, ())
        return found[0] if len(found) == 1 else None

    def _may_be_of(self, path, roles):
        """Returns whether an image in these folders may be of one of these roles."""
        return _fits(split_roles(path.parts[len(self._root.parts) : -1]), roles)

    @property
    def _images(self):
        """The index of the images below the folder, made when an image is missing."""
        if self._index is None:
            self._index = ImageIndex(self._root)
        return self._index


def find_moved(
    names: Sequence[Sequence[str]],
    source: Any,
    expected: Sequence[Any] = (),
    image_dir: Any = None,
    *,
    any_split: bool = False,
) -> tuple[list[Any], Any]:
    """Finds images that are not at their paths in the annotations.

    Args:
        names: for each image the names that it may have, most likely first.
        source: the annotation file, or the folder of the dataset.
        expected: the path at which each image was expected; its folders may name a
            split.
        image_dir: the folder to look below. None means that of the dataset.
        any_split: whether an image may be in the folder of another split than that of
            the source.

    Returns:
        List of a path or None for each image; and the folder below which they were
        looked for, or None. Two images never get the same path: both are None then.
    """
    root = current_root(source) if image_dir is None else path_of(image_dir)
    if root is None or not root.is_dir() or (is_remote(root) and not root.is_listed):
        return [None] * len(names), None
    index, roles_of_source = ImageIndex(root), _roles_of_source(path_of(source))
    paths = []
    for i, several in enumerate(names):
        folders = expected[i].parts[len(root.parts) : -1] if expected else ()
        roles = split_roles(folders) or roles_of_source
        roles = frozenset() if any_split else roles
        tried = (index.find(name, roles) for name in several if name)
        paths.append(next((path for path in tried if path is not None), None))
    counts = collections.Counter(path for path in paths if path is not None)
    return [path if counts[path] == 1 else None for path in paths], root


def images_called(names: Sequence[str], source: Any) -> list[list[Any]]:
    """Returns for each name all images of the dataset with the same file name.

    Args:
        names: paths from the annotations.
        source: the annotation file, or the folder of the dataset.

    Returns:
        List of lists of paths.
    """
    root = current_root(source)
    if not names or root is None or is_remote(root):
        return [[] for _ in names]
    by_name = collections.defaultdict(list)
    for path in ImageIndex(root):
        by_name[path.name].append(path)
    return [
        by_name.get(parts[-1], []) if (parts := path_parts(n)) else [] for n in names
    ]


# Roboflow writes `a_jpg.rf.<hash>.jpg`. Each export has other hashes.
_EXPORTED = re.compile(r"(.+)\.rf\.[0-9a-z]+\.\w+", re.IGNORECASE)


def images_of_other_exports(
    names: Sequence[str], source: Any, image_dir: Any = None
) -> list[list[Any]]:
    """Returns for each name all images that differ from it only in Roboflow's hash.

    Images of other splits do not count.

    Args:
        names: paths from the annotations.
        source: the annotation file, or the folder of the dataset.
        image_dir: the folder to look below. None means that of the dataset.

    Returns:
        List of lists of paths.
    """
    names = [parts[-1] if (parts := path_parts(name)) else "" for name in names]
    exported = [_EXPORTED.fullmatch(name) for name in names]
    root = current_root(source) if image_dir is None else path_of(image_dir)
    if not any(exported) or root is None or is_remote(root):
        return [[] for _ in names]
    roles, by_stem = _roles_of_source(path_of(source)), collections.defaultdict(list)
    for path in ImageIndex(root):
        match = _EXPORTED.fullmatch(path.name)
        folders = path.parts[len(root.parts) : -1]
        if match and _fits(_roles_of(folders), roles):
            by_stem[match[1].lower()].append(path)
    return [by_stem.get(match[1].lower(), []) if match else [] for match in exported]


def _roles_of_source(path):
    """Returns the roles of the split that an annotation file, or its folder, names."""
    of_folder = split_in_name(path.parent.name) or ""
    name = path.stem if is_file(path) else split_in_name(path.name) or ""
    return split_roles([name]) or split_roles([of_folder])


# --- Folders and lists of images that a `data.yaml` names.


def find_folder(name: str, bases: Sequence[Any]) -> tuple[Any, bool]:
    """Finds the folder or file that a `data.yaml` names.

    The path is tried in each base first. Then the longest ending of the path that
    exists in a base is used, and then an ending that exists once below a base. An
    ending always keeps the name of a split: `valid/images` never becomes `images`
    alone, which could be those of `train`. For `../train/images`, as Roboflow writes
    it, `train/images` in a base is tried first, and paths outside of all bases last.

    Args:
        name: path in the `data.yaml`.
        bases: folders that it may be relative to, most likely first.

    Returns:
        Path or None; and whether the path was found only by an ending.
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
    """Returns whether a path, after resolving `..`, is in none of some local folders.

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


_DEPTH = 4  # levels of folders below a base in which an ending is looked for


def _folders_below(base):
    """Yields the parts of each folder below one, without those of models and caches."""
    for place, folders, _ in walk(base, depth=_DEPTH):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        if place != base:
            yield place.parts[len(base.parts) :]


def _join(folder, parts):
    return folder / "/".join(parts)
