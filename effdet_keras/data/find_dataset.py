"""Finds the datasets in a file or folder, and the format of each."""

from __future__ import annotations

import collections
import dataclasses
import functools
import glob
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from effdet_keras._internal.remote_path import exists, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.choose_dataset import (
    EVALUATION,
    SHOWN,
    are_versions,
    choose,
    is_divided,
)
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats.annotation_files import annotation_folders
from effdet_keras.data.formats.dataset_files import (
    DEEPEST,
    DEPTH,
    NO_DATA_FOLDERS,
    listing_once,
    names_in,
    role_of_split,
    split_folders,
    split_names,
    visible_folders,
    walk,
)
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS, dataset_root
from effdet_keras.data.formats.tfrecord import pattern_readers, tfrecord_splits
from effdet_keras.data.formats.unknown import (
    describe_other_files,
    describe_unknown_files,
)
from effdet_keras.data.formats.yolo_layout import find_layout
from effdet_keras.data.formats.yolo_places import has_image, places_of
from effdet_keras.data.known_formats import (
    FORMATS,
    WITH_ONE_FILE,
    Source,
    own_files,
    read_splits,
)
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.images import IMAGE_SUFFIXES

_MAX_FOLDERS = 500  # the most folders that are searched in a tree


def find(
    path: str | os.PathLike[str],
    format: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> Source:
    """Finds the dataset that a path stands for.

    The dataset is in the folder itself, or in one folder per split. If there is none,
    or only splits to evaluate on, the folders below are searched as well.

    Args:
        path: str or path of a file or folder, a remote address, or a pattern of
            TFRecord files.
        format: str, a key of `FORMATS`. None tries all formats.
        reader_options: dict of options that only the reader of one format takes, see
            `load`.

    Returns:
        `Source`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no dataset is found, or several of different images, or none
            whose reader takes `reader_options`.
    """
    if format is not None:
        check_choice("format", format, FORMATS, ", or None to detect it")
    name = os.fspath(path)
    path = path_of(path)
    # The name of the folder "." may be the name of a split.
    if path.name in ("", ".."):
        path = path if is_remote(path) else pathlib.Path(os.path.abspath(path))
    formats = list(FORMATS) if format is None else [format]
    is_host = path.parent == path
    if is_remote(path) and not path.is_listed and (is_host or not path.suffix):
        path.iterdir()  # raises an error that says what to do
    if not exists(path):
        if glob.has_magic(name) and not is_remote(name):
            source = _find_by_pattern(name, format)
            if reader_options:
                text = _describe_options([source.format], reader_options)
                raise InvalidValueError(text)
            return source
        raise FileNotFoundError(
            f"There is no dataset {name!r}: it must be the path of a file or a folder"
        )
    with dataset_root(path), listing_once():
        found, notes = find_in(path, formats)
        if path.is_dir() and not _has_training(found):
            below, notes_below = find_below(path, formats, notes_above=notes)
            folders = split_folders(path)
            read = {(s.format, p) for s in found for p in folders.values()}
            below = [s for s in below if (s.format, s.path) not in read]
            below = [s for s in below if not _is_annotation_folder_of(s, found)]
            if below:
                found = [_named_by_folder(source, folders) for source in found]
            found += below
            notes += notes_below
        if not found:
            raise InvalidValueError(_describe_unknown(path, formats, notes))
        known = {(source.format, source.path) for source in found}
        beside = {
            (s.format, s.path): s
            for source in found
            for s in _find_in_annotations(source, formats, known)
        }
        found += [s for place, s in beside.items() if place not in known]
        inner = _find_inside(found, formats) if path.is_dir() else []
    found = [dataclasses.replace(source, root=path) for source in found]
    inner = [dataclasses.replace(source, root=path) for source in inner]
    if reader_options:
        formats = [source.format for source in (*found, *inner)]
        found, inner = (_with_options(s, reader_options) for s in (found, inner))
        if not found and not inner:
            raise InvalidValueError(_describe_options(formats, reader_options))
        found, inner = found or inner, inner if found else []
    is_one = len(found) == 1 and not inner
    return found[0] if is_one else choose(found, inner, path)


def _with_options(sources, options):
    """Returns the datasets whose readers take the options, with the options bound."""
    return [
        dataclasses.replace(
            source,
            readers={
                split: functools.partial(read, **options)
                for split, read in source.readers.items()
            },
        )
        for source in sources
        if options.keys() <= set(FORMATS[source.format].reader_options)
    ]


def _describe_options(formats, options):
    """Returns the error text for options that no reader of these formats takes."""
    taken = [
        f"{format.title} takes {', '.join(format.reader_options)}"
        for format in FORMATS.values()
        if format.reader_options
    ]
    titles = dict.fromkeys(FORMATS[format].title for format in formats)
    return (
        f"The reader of {' or '.join(titles)} does not take these `reader_options`: "
        f"{'; '.join(taken)}. Received: reader_options={dict(options)}"
    )


def _has_training(found):
    """Returns whether a split is not just for evaluation.

    If all are, the training split may be in a folder below.
    """
    names = [name for source in found for name in source.readers]
    return any(role_of_split(name) not in EVALUATION for name in names)


def _lacks_names_or_images(source):
    """Returns whether a YOLO dataset has no class names, or none of its images.

    Its images are those in the places that the data.yaml gives. Another format of the
    same images may have names, and a folder below may have images.
    """
    if source.format != "yolo":
        return False
    layout = find_layout(source.path)
    return not layout.names or not any(map(has_image, places_of(layout.splits)))


def _has_empty_records(source):
    """Returns whether a dataset is TFRecord files without a byte, as placeholders."""
    if source.format != "tfrecord":
        return False
    files = [*itertools.chain(*tfrecord_splits(source.path, below=False).values())]
    return bool(files) and not any(map(os.path.getsize, files))


def _find_inside(found, formats):
    """Finds the datasets below those found, unless one of these has splits.

    A dataset below may have the same images with the splits of their author, such as
    the csv files of `data/`. Or it may be complete, although images of the dataset
    above are missing. A YOLO dataset that lacks names or images counts as one without
    splits here, and so do empty TFRecord files. Below a dataset with splits, only csv
    files in `data` are found: often they have the same boxes, and a line says how they
    differ. So do the csv or xml files from which a script makes TFRecord files.
    """
    places = dict.fromkeys(source.path for source in found if source.path.is_dir())
    if any(
        is_divided(s) and not _lacks_names_or_images(s) and not _has_empty_records(s)
        for s in found
    ):
        if all(source.format == "tfrecord" for source in found):
            wanted = [name for name in formats if name in ("csv", "voc")]
            below = [find_below(p, wanted, everywhere=False)[0] for p in places]
            return [*itertools.chain(*below)]
        tables = [f for p in places for f in visible_folders(p) if f.name == "data"]
        wanted = [name for name in formats if name == "csv"]
        return [s for folder in tables for s in _find_own(folder, wanted)[0]]
    inner = [s for p in places for s in find_below(p, formats, everywhere=False)[0]]
    inner = [s for s in inner if not _is_annotation_folder_of(s, found)]
    inner = [
        s for s in inner if not _is_of_own_tests(s.path.name, split_folders(s.path))
    ]
    return [*itertools.chain(*map(_find_in_splits, [*found, *inner])), *inner]


def _is_annotation_folder_of(source, found):
    """Returns whether a source is a found one again, by its annotation folder alone."""
    is_inner = source.path.name.lower() in ANNOTATION_FOLDERS
    return is_inner and any(
        (s.format, *s.readers) == (source.format, *source.readers) for s in found
    )


def _find_in_annotations(source, formats, known):
    """Finds datasets in an annotation folder beside annotation files of `source`.

    An annotation folder is called `annotations` or the like. The reader of `source`
    takes the files of only one of the two places. Another format is searched for only
    if it was not found in the folder itself, because its reader looks into the
    annotation folder as well. `known` holds pairs of the format and the path of each
    dataset found.
    """
    if source.format not in WITH_ONE_FILE or not source.path.is_dir():
        return []
    folders = annotation_folders(source.path)
    if not folders or not own_files(source):
        return []
    formats = [
        name
        for name in formats
        if name in WITH_ONE_FILE
        and (name == source.format or (name, source.path) not in known)
    ]
    return [s for folder in folders for s in _find_own(folder, formats)[0]]


def _find_in_splits(source):
    """Finds a dataset in split folders, below a dataset that has no splits.

    An example is a json file in each of `train` and `val`, and one in the parent folder
    from before the images were divided. YOLO is skipped: its own reader knows such
    folders, and its files may name only some of them.
    """
    is_yolo = source.format == "yolo"
    if is_yolo or len(source.readers) != 1 or not source.path.is_dir():
        return []
    readers = {}
    for split, folder in split_folders(source.path).items():
        for inner in _find_own(folder, [source.format])[0]:
            if len(inner.readers) != 1:
                return []  # it is unclear which split is meant
            (readers[split],) = inner.readers.values()
    divided = dataclasses.replace(source, readers=readers)
    return [divided] if is_divided(divided) else []


def _find_by_pattern(pattern, format):
    """Finds the TFRecord files of a pattern; no other format takes a pattern."""
    rule = (
        f"A pattern such as {pattern!r} is only for TFRecord files: leave `format` out"
    )
    require(format in (None, "tfrecord"), rule, format=format)
    readers = pattern_readers(pattern)
    if not readers:
        raise InvalidValueError(
            f"No file that matches {pattern!r} has the name of a TFRecord file, such "
            "as 'train-00000-of-00032.tfrecord' or 'train.record'."
        )
    path = pathlib.Path(pattern)
    return Source("tfrecord", path, readers, path.parent)


_Note = tuple[str, str]  # a format, and why no dataset of this format was found


def find_in(path: Any, formats: list[str]) -> tuple[list[Source], list[_Note]]:
    """Finds the datasets of a path, at most one per format.

    A folder may hold a dataset itself, or one per split in folders such as `train` and
    `valid`, or both in two formats. The folder of a split may have subfolders that
    together are the split, such as `train/0` and `train/1`.

    Args:
        path: path of a file or folder.
        formats: list of str, the formats to look for.

    Returns:
        List of `Source`, and a list of pairs of a format and the reason why no dataset
        of that format was found.
    """
    found, notes = _find_own(path, formats)
    if not path.is_dir():
        return found, notes
    others = [name for name in formats if name not in {s.format for s in found}]
    readers = collections.defaultdict(dict)
    folders = split_folders(path)
    for split, folder in folders.items():
        inner, inner_notes = _find_own(folder, others)
        notes += inner_notes
        for source in inner:
            if len(source.readers) == 1:
                (readers[source.format][split],) = source.readers.values()
        if not inner and not any(split in source.readers for source in found):
            for format, read in _find_parts(split, folder, formats).items():
                readers[format][split] = read
    # A reader that knows split folders itself does not read splits in subfolders.
    for i, source in enumerate(found):
        if all(role_of_split(split) is not None for split in source.readers):
            more = readers.pop(source.format, {})
            found[i] = dataclasses.replace(source, readers={**source.readers, **more})
    known = [source.format for source in found]
    found += [
        Source(format, path, _by_split(splits), path)
        for format, splits in readers.items()
        if format not in known
    ]
    return found, notes


def _by_split(readers):
    """Returns the readers of folders by split.

    Folders such as `train_images` and `train_annotations` have the same split, so their
    own names stand for it, until it is known that only one of them is a dataset.
    """
    return dict(zip(split_names(list(readers)), readers.values()))


def _named_by_folder(source, folders):
    """Returns a dataset with the folder of its only split as its path, if possible.

    This is for a dataset with a single split, to evaluate on, beside another dataset:
    the message then names the folder that the user can pass.
    """
    split, *others = source.readers
    folder = folders.get(split)
    is_test = not others and role_of_split(split) in EVALUATION
    if folder is None or not is_test or not _find_own(folder, [source.format])[0]:
        return source
    return dataclasses.replace(source, path=folder)


def _find_parts(split, folder, formats):
    """Returns readers, by format, for a split that is spread over subfolders.

    A format counts if every subfolder with images is a dataset of that format without
    splits. YOLO is left out: its own reader knows such folders, and the class numbers
    may mean something else in each.
    """
    places = visible_folders(folder)
    if len(places) > _MAX_FOLDERS:  # one folder per class, as for classification
        return {}
    formats = [name for name in formats if name != "yolo"]
    with_images, parts = set(), collections.defaultdict(dict)
    for place in places:
        if place.name.lower() in NO_DATA_FOLDERS:
            continue
        if count_images(place):
            with_images.add(place)
        for source in _find_own(place, formats)[0]:
            if len(source.readers) == 1:
                (parts[source.format][place],) = source.readers.values()
    if _is_of_own_tests(split, [place.name for place in with_images]):
        return {}
    return {
        format: functools.partial(_read_joined, readers)
        for format, readers in parts.items()
        if with_images <= readers.keys()
    }


def _is_of_own_tests(folder, splits):
    """Returns whether a folder's splits are a program's own tests: `test/training`."""
    roles = {role_of_split(split) for split in splits}
    return role_of_split(folder) == "test" and roles == {"train"}


def _read_joined(readers, **options):
    """Reads a split that is spread over subfolders as one dataset.

    Args:
        readers: dict from subfolder to the function that reads it.
        **options: keyword arguments for these functions.

    Raises:
        ValueError: If two subfolders have the same images: they are versions of one
            dataset then.
    """
    parts, _ = read_splits(readers, **options)
    for (one, first), (other, second) in itertools.combinations(parts.items(), 2):
        if are_versions(first.records, second.records):
            raise InvalidValueError(
                f"{str(one)!r} and {str(other)!r} have images of the same names that "
                "look alike: they are versions of one dataset, not parts of it. Pass "
                "one of these folders"
            )
    names = ", ".join(repr(place.name) for place in parts)
    print(f"  {str(next(iter(parts)).parent)!r} is read from its folders {names}")
    first, *others = parts.values()
    return first.concatenate(*others)


def _find_own(path, formats):
    """Finds the datasets directly at a path, with results as those of `find_in`."""
    found, notes = [], []
    for format in formats:
        try:
            readers = FORMATS[format].readers(path)
        except (ValueError, OSError) as error:
            # For a folder, FileNotFoundError only means that it has another format.
            if path.is_file() or type(error) is not FileNotFoundError:
                notes.append((format, str(error)))
            continue
        except ImportError as error:  # the file may belong to another dataset
            if len(formats) == 1:
                raise
            notes.append((format, str(error)))
            continue
        if readers:
            found.append(Source(format, path, readers, path))
    if any(f.format == "tfds" for f in found):  # TFRecord files and a description
        found = [f for f in found if f.format != "tfrecord"]
    return found, notes


def find_below(
    path: Any,
    formats: list[str],
    everywhere: bool = True,
    notes_above: Sequence[_Note] = (),
) -> tuple[list[Source], list[_Note]]:
    """Finds the datasets in the folders below a folder, none of them inside another.

    Datasets far down count only if there is no dataset above them, nor anything that
    could be one, because they may be samples of a program. Datasets in folders of
    models, caches and the like count only if there are no others.

    Args:
        path: path of the folder.
        formats: list of str, the formats to look for.
        everywhere: bool, whether to look into folders of models, caches and the like
            if no other dataset is found.
        notes_above: the reasons why nothing is read from the folder itself.

    Returns:
        As `find_in`.
    """
    found, notes, left_out, count = [], [], [], 0
    level = [path]
    for depth in range(DEEPEST):
        if depth == DEPTH and (found or _may_hold_more(path, [*notes_above, *notes])):
            break
        inner = [folder for place in level for folder in _folders_of(place)]
        left_out += [
            folder for folder in inner if folder.name.lower() in NO_DATA_FOLDERS
        ]
        inner = [folder for folder in inner if folder not in left_out]
        inner = inner[: _MAX_FOLDERS - count]
        level = []
        for folder in inner:
            own, own_notes = find_in(folder, formats)
            found += own if depth < DEPTH else _with_most_images(own, path)
            notes += own_notes
            if not own:
                level.append(folder)
        count += len(inner)
    if found or not everywhere:
        return found, notes
    for folder in left_out[:_MAX_FOLDERS]:  # there is no dataset elsewhere
        own, _ = find_in(folder, formats)
        found += own or find_below(folder, formats, everywhere=False)[0]
    return found, notes


def _may_hold_more(path, notes):
    """Returns whether unreadable files found so far may be the dataset itself."""
    # A csv file does not count: it may be a table of anything.
    are_of_data = any(format != "csv" for format, _ in notes)
    return are_of_data or bool(describe_other_files(path))


def _with_most_images(sources, path):
    """Returns the datasets whose folder has most of the images below `path`."""
    if not sources:
        return []
    count = count_images(path)
    return [s for s in sources if 2 * count_images(s.path) > count]


def _folders_of(place):
    try:
        return visible_folders(place)
    except OSError:
        return []  # no permission to read it


def count_images(path: Any) -> int:
    """Returns the number of images in a folder and in the folders below it."""
    return sum(
        name.lower().endswith(IMAGE_SUFFIXES)
        for _, _, names in walk(path, depth=DEEPEST)
        for name in names
    )


def _describe_unknown(path, formats, notes):
    holds = "which is a file"
    if path.is_dir():
        folders, files = names_in(path)
        names = sorted([*(f"{name}/" for name in folders), *files])
        more = ", ..." if len(names) > SHOWN else ""
        count = count_images(path)
        if count:
            more += f" and {count_of(count, 'image')} in all"
        holds = f"which holds {', '.join(names[:SHOWN]) or 'nothing'}{more}"
    looked = ", ".join(FORMATS[format].title for format in formats)
    why = [f"{FORMATS[name].title}: {text}" for name, text in dict.fromkeys(notes)]
    troubles = f". Not readable: {'; '.join(why)}" if why else ""
    for text in (describe_unknown_files(path), describe_other_files(path)):
        troubles += f". {text}" if text else ""
    return (
        f"No dataset was found in {str(path)!r}, {holds}. Looked for {looked}, there "
        "and in the folders below. `ek.data.from_coco` and the other readers describe "
        f"the files of each format{troubles}"
    )
