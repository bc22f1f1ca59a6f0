"""Finds the class names of a YOLO dataset in the files where tools put them."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    DEPTH,
    NO_DATA_FOLDERS,
    role_of_split,
    visible_files,
    walk,
)
from effdet_keras.data.formats.image_paths import current_root
from effdet_keras.data.formats.label_map import read_label_map
from effdet_keras.data.formats.yolo_places import (
    IMAGE_FOLDERS,
    Layout,
    label_places,
    places_of,
)
from effdet_keras.data.formats.yolo_texts import NAME_FILES, is_label_file
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

# First line of LabelMe's labels.txt; YOLO does not use its numbers.
_LABELME = "__ignore__"
_TEXTS = (".txt", ".names", ".labels")  # suffixes of lists with one name per line
_MIN_ASCII = 3  # least number of ASCII characters per other letter
_WINDOWS = "cp1252"  # the encoding of Western Europe
_NUMBER_AND_NAME = re.compile(r"(?:^|(?<=\s))(\d+):(\S.*?)\s*(?=\s\d+:|$)")


# Encodings of other scripts, and the letters beyond ASCII that names in them have. Text
# that fits several of them is not read. Frequent characters of Big5 that fit GB 2312
# fit Korean too.
_CHINESE = "gb2312"  # the part of GBK and GB 18030 that has all frequent characters
_SCRIPTS = {
    _CHINESE: r"[\u3400-\u9fff]",
    "shift_jis": r"[\u3040-\u30ff\u3400-\u9fff]",
    "euc_kr": r"[\uac00-\ud7a3]",
    "cp1251": r"[\u0410-\u044f]",
}
_NAME_FOLDERS = (
    "",
    "labels",
    "images",
    "dataset",
    "data",
    "cfg",
    "config",
    "annotations",
)


def names_of_yaml(content: dict, file: Any) -> tuple[str, ...]:
    """Returns the `names` of a data.yaml, or an empty tuple if it has none.

    Args:
        content: content of the file. `names` is a list, or a dict by number from 0. A
            dict whose colons have no space behind them is text for YAML.
        file: path of the file, for the error.

    Raises:
        ValueError: If `names` is neither.

    Example:
        >>> names_of_yaml({"names": {1: "dog", 0: "cat"}}, "data.yaml")
        ('cat', 'dog')
        >>> names_of_yaml({"names": "0:cat 1:guide dog"}, "data.yaml")
        ('cat', 'guide dog')
    """
    names = content.get("names")
    if names is None:
        return ()
    if isinstance(names, str):
        pairs = _NUMBER_AND_NAME.findall(names)
        if pairs and [number for number, _ in pairs] == [*map(str, range(len(pairs)))]:
            names = [name for _, name in pairs]
    if isinstance(names, dict):
        numbers = {int(k) if str(k).isdecimal() else k: v for k, v in names.items()}
        if set(numbers) == set(range(len(numbers))):
            names = [numbers[i] for i in range(len(numbers))]
    are_names = isinstance(names, list) and all(isinstance(n, str) for n in names)
    rule = (
        "`names` of a data.yaml must be a list of class names, or a dict of them by "
        "number from 0"
    )
    reading.require_content(are_names, rule, file, names)
    return tuple(names)


class FoundNames(NamedTuple):
    """The class names of a dataset, as found in files.

    Attributes:
        names: the names; empty if no file has them.
        file: the file that has them, or None.
        names_of: the names of each split, if the lists of the splits differ.
        notes: see the notes of `Layout`.
    """

    names: tuple[str, ...] = ()
    file: Any = None
    names_of: Mapping[str, tuple[str, ...]] = {}
    notes: Sequence[tuple] = ()


def names_of_layout(
    places: Iterable[Any],
    folder: Any,
    splits: dict[str, list],
    pairs: Mapping[Any, Any],
) -> FoundNames:
    """Returns the class names of a layout.

    Args:
        places, folder: see `find_names`.
        splits: the places of the images of each split.
        pairs: see `label_folders` of `Layout`.

    Raises:
        ValueError: If folders of one split have lists that differ.
    """
    names, file = find_names(places, folder)
    if file is None:
        return FoundNames()
    notes = [*_note_of_beyond(file, folder), *_note_of_other_names(names, file, folder)]
    notes += _note_of_encoding(file)
    own = _own_folders(splits, pairs)
    if all(file.parent not in f for places in own.values() for f in places):
        return FoundNames(names, file, {}, notes)  # one list for all splits
    lists = {split: _first_lists(places) for split, places in own.items()}
    found = [item for own in lists.values() for item in own]
    if go_together([names for names, _ in found]):
        longest = max([*found, (names, file)], key=lambda pair: len(pair[0]))
        return FoundNames(*longest, {}, notes)
    for split, own in lists.items():
        if not go_together([names for names, _ in own]):
            (one, first), (other, second) = _that_differ(own)
            raise InvalidValueError(
                f"The folders of the split {split!r} have lists of class names that "
                f"differ: {str(first)!r} has {reprlib.repr(list(one))}, "
                f"{str(second)!r} has {reprlib.repr(list(other))}. If the numbers "
                f"mean the same in both, write one classes.txt into {str(folder)!r}; "
                "otherwise load each folder by itself"
            )
    (one, first), (other, second) = _that_differ(found)
    detail = (
        f"the splits have lists of class names that differ: {str(first)!r} has "
        f"{reprlib.repr(list(one))}, {str(second)!r} has {reprlib.repr(list(other))}. "
        "Each split is read with its own list. If the numbers mean the same in both, "
        f"write one classes.txt into {str(folder)!r}"
    )
    notes.append(("lists of class names", str(folder), detail))
    longest = {s: max((n for n, _ in own), key=len) for s, own in lists.items() if own}
    return FoundNames(names, file, longest, notes)


def _own_folders(splits, pairs):
    """Returns, for each split and place, the nearby folders that no other split has."""
    near = {
        split: [label_places([place], pairs) for place in places_of({split: places})]
        for split, places in splits.items()
    }
    uses = collections.Counter(
        folder for places in near.values() for folder in set(itertools.chain(*places))
    )
    return {
        split: [[f for f in folders if uses[f] == 1] for folders in places]
        for split, places in near.items()
    }


def _first_lists(places):
    """Returns the first list of class names of each place, with its file."""
    lists = [
        next((found for folder in folders for found in lists_in(folder)), None)
        for folders in places
    ]
    return list(dict.fromkeys(filter(None, lists)))


def _that_differ(lists):
    """Returns the first two pairs `(names, file)` whose names contradict each other."""
    return next(
        pair
        for pair in itertools.combinations(lists, 2)
        if not go_together([names for names, _ in pair])
    )


def _note_of_encoding(file):
    """Returns a note if the encoding of a list of names is only a guess."""
    encoding = _text_of(file)[1] if file.suffix.lower() in _TEXTS else None
    if encoding is None:
        return []
    detail = (
        f"{str(file)!r} is not in UTF-8, so it is read in the encoding {encoding}. If "
        "the names are wrong, save the file again with the encoding UTF-8"
    )
    return [("lists of class names", str(file.parent), detail)]


def _note_of_beyond(file, folder):
    """Returns a note if a list of names is outside the folder that the user named."""
    root = current_root(folder)
    if is_remote(file) or root is None or root in file.absolute().parents:
        return []
    if file.parent.absolute() != folder.absolute().parent:
        return []  # the list of the folder of txt files
    if role_of_split(folder.name) or folder.name.lower() in IMAGE_FOLDERS:
        return []  # here the folder around it is the dataset
    detail = (
        f"the names of the classes are those of {str(file)!r}, outside of "
        f"{str(root)!r}. If they belong to another dataset, pass `class_names`, or "
        "write a classes.txt with a name in each line"
    )
    return [("lists of class names", str(folder), detail)]


def _note_of_other_names(names, file, folder):
    """Returns a note if another list in the same folder has other names.

    A longer list does not count: it may belong to a model that the training began with,
    such as COCO's names.
    """
    if is_remote(file) or file.parent.absolute() in folder.absolute().parents:
        return []  # above the dataset there may be lists of other datasets

    def folded(names):
        return tuple(re.sub(r"[\s_-]+", " ", name).casefold() for name in names)

    for others, other in lists_in(file.parent):
        is_short = len(others) <= len(names)
        is_other = not go_together([folded(names), folded(others)])
        if other != file and is_short and is_other:
            detail = (
                f"the names of the classes are those of {str(file)!r}: "
                f"{reprlib.repr(list(names))}. {other.name!r} beside it has other "
                f"names: {reprlib.repr(list(others))}. If those are the right ones, "
                "pass them as `class_names`, or rename the file with the wrong names"
            )
            return [("lists of class names", str(file.parent), detail)]
    return []


def find_names(places: Iterable[Any], folder: Any) -> tuple[tuple[str, ...], Any]:
    """Returns the class names in the first list of names that is found.

    Args:
        places: folders of the dataset, most likely first.
        folder: folder of the dataset. The folders around it, up to the one that the
            user named, may have the list too, and so may the one around that, which is
            tried last.

    Returns:
        The names, and the file that has them; or an empty tuple and None.
    """
    root, around = current_root(folder), []
    if root is not None and not is_remote(folder):
        folder = folder.absolute()
        around = [p for p in folder.parents if p == root or root in p.parents]
    folders = [base / name for base in (folder, *around) for name in _NAME_FOLDERS]
    folders = [p for p in (*places, *folders) if p != folder.parent or p in around]
    folders = list(dict.fromkeys(folders))
    # Files with other names come later: a `coco.names` in the folder may be that of a
    # model.
    lists = itertools.chain(
        *(_usual_lists_in(place, NAME_FILES) for place in folders),
        *map(_other_lists_in, folders),
        _usual_lists_in(folder.parent, NAME_FILES[:2]),  # outside of the dataset
    )
    return next(lists, ((), None))


def longer_list(folders: Iterable[Any], layout: Layout, number: float) -> Any:
    """Returns a file near folders of images that names a number's class, or None."""
    places = label_places(folders, layout.label_folders)
    if layout.yaml is not None:  # several yaml files may describe the same images
        places = [*places, layout.yaml.parent]
    lists = itertools.chain(*map(lists_in, places))
    return next((file for names, file in lists if len(names) > number), None)


def longer_list_below(folder: Any, number: float) -> Any:
    """Returns a file anywhere below a folder that names a number's class, or None.

    Only files count whose own names say that they are lists of class names.
    """
    for place, folders, files in walk(folder, depth=DEPTH):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        for name in filter(files.__contains__, NAME_FILES):
            with contextlib.suppress(ValueError, OSError):
                if len(names_in_file(place / name)) > number:
                    return place / name
    return None


def empty_lists(folder: Any) -> list[Any]:
    """Returns the files near a folder that are named as lists of names, but are empty.

    See `find_names` for the folders.
    """
    root = current_root(folder)
    places = [
        base / name for base in (folder, root or folder) for name in _NAME_FOLDERS
    ]
    files = (file for p in dict.fromkeys(places) for file in visible_files(p, *_TEXTS))
    return [
        file
        for file in files
        if (file.name in NAME_FILES or file.suffix == ".names")
        and is_label_file(file) is None
    ]


# A list of names may have so many more names than there are classes with boxes.
_MAX_MORE = 100
_MAY_NAME = re.compile(r"class|name|categor", re.IGNORECASE)


def lists_that_may_name(folders: Iterable[Any], count: int) -> list[Any]:
    """Returns the txt files whose own name says that they may hold `count` names."""
    found = []
    for file in (f for folder in folders for f in visible_files(folder, ".txt")):
        if not _MAY_NAME.search(file.stem) or is_label_file(file):
            continue
        try:
            lines = list(filter(None, map(str.strip, _text_of(file)[0].splitlines())))
        except (ValueError, OSError):  # another encoding, or a broken link
            continue
        is_likely = count <= len(lines) <= count + _MAX_MORE
        if is_likely and not any(map(_is_no_name, lines)):
            found.append(file)
    return found


def lists_in(folder: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the names in each list of classes in a folder, and its file.

    The most likely list comes first.
    """
    yield from _usual_lists_in(folder, NAME_FILES)
    yield from _other_lists_in(folder)


def _usual_lists_in(folder, file_names):
    """Yields the items of `lists_in` whose files have one of these names."""
    for name in file_names:
        file = folder / name
        if file.is_file() and (names := names_in_file(file)):
            yield names, file


def _other_lists_in(folder):
    """Yields the items of `lists_in` whose files are known only by their suffix."""
    for file in visible_files(folder, ".names", ".labels", ".pbtxt"):
        if names := names_in_file(file):
            yield names, file
    known = []  # downloadable datasets of a program; their names are seldom meant
    for file in visible_files(folder, ".yaml", ".yml"):
        names, is_known = _names_in_yaml(file)
        if names and is_known:
            known.append((names, file))
        elif names:
            yield names, file
    yield from known


def go_together(lists: Iterable[Sequence[str]]) -> bool:
    """Returns whether no number has two different names in some lists.

    LabelImg writes a list into each folder, which grows with the classes used there.

    Example:
        >>> go_together([["cat"], ["cat", "dog"]]), go_together([["cat"], ["dog"]])
        (True, False)
    """
    longest = max(lists, key=len, default=())
    return all(names == longest[: len(names)] for names in lists)


def _names_in_yaml(file):
    """Returns the names in a yaml file, and whether it has a download address."""
    try:
        content = load_yaml(read_text(file))
        is_dict = isinstance(content, dict)
        names = names_of_yaml(content, file) if is_dict else ()
        return names, is_dict and "download" in content
    except InvalidValueError:
        return (), False


def names_in_file(file: Any) -> tuple[str, ...]:
    """Returns the class names in a file, by number from 0, or an empty tuple."""
    if file.suffix.lower() == ".json":
        return _names_in_notes(file)
    if file.suffix.lower() == ".pbtxt":
        names = read_label_map(file)
        return tuple(names[i] for i in sorted(names)) if _are_counted(names) else ()
    # Blank lines between names are kept: without them, the labels would be shifted.
    lines = [line.strip() for line in _text_of(file)[0].rstrip().splitlines()]
    if file.name == "labels.txt" and lines[:1] == [_LABELME]:
        return ()
    is_certain = file.name in NAME_FILES[:2]
    if not is_certain and (is_label_file(file) or any(_is_no_name(n) for n in lines)):
        return ()
    return tuple(_without_numbers(lines))


_NUMBERED = re.compile(r"(\d+)(?:\s*[:.,)]\s*|\s+)(\S.*)")


def _without_numbers(lines):
    """Returns names without the number of each line, if all lines begin with theirs.

    Example:
        >>> _without_numbers(["0 cat", "1 dog"]), _without_numbers(["0 cat", "2 dogs"])
        (['cat', 'dog'], ['0 cat', '2 dogs'])
    """
    matches = [_NUMBERED.fullmatch(line) for line in lines]
    if len(lines) < 2 or not all(matches):
        return lines
    numbers = [int(match[1]) for match in matches]
    are_lines = numbers in (list(range(len(lines))), list(range(1, len(lines) + 1)))
    return [match[2] for match in matches] if are_lines else lines


def _text_of(file):
    """Returns the text of a list of names, and its encoding if that is only a guess.

    Older programs for Windows write the encoding of the system's language.
    """
    try:
        return read_text(file), None
    except InvalidValueError:
        data = file.read_bytes()
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(_WINDOWS)
            others = [c for c in text if not c.isascii()]
            # Text of another alphabet would decode to nothing but accented letters, or
            # to signs.
            if all(map(str.isalpha, others)) and _MIN_ASCII * len(others) < len(text):
                return text, _WINDOWS
        if [name for name in _SCRIPTS if _may_be_in(data, name)] == [_CHINESE]:
            return data.decode(_CHINESE), _CHINESE
        raise


def _may_be_in(data, encoding):
    """Returns whether all letters beyond ASCII of a text are those of its script."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return re.fullmatch(rf"([\x00-\x7f]|{_SCRIPTS[encoding]})*", text) is not None


def _are_counted(names):
    return bool(names) and set(names) == set(range(1, len(names) + 1))


def _is_no_name(line):
    return line.lower().endswith(IMAGE_SUFFIXES) or len(line) > 100


def _names_in_notes(file):
    """Returns the `categories` in the `notes.json` of Label Studio's YOLO export."""
    try:
        content = json.loads(read_text(file))
        pairs = {item["id"]: str(item["name"]) for item in content["categories"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    names = tuple(pairs[i] for i in sorted(pairs))
    return names if sorted(pairs) == list(range(len(pairs))) else ()
