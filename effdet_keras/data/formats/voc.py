"""Reads and writes datasets in Pascal VOC's format."""

from __future__ import annotations

import codecs
import collections
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import xml.etree.ElementTree
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import for_each, is_file, path_of
from effdet_keras._internal.whole_files import atomic_folder, is_remote
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading, writing
from effdet_keras.data.formats.annotation_files import (
    corners_of,
    hull_box,
    note_rotated,
    numbers_of,
    turned_corners,
)
from effdet_keras.data.formats.dataset_files import (
    first_to_train_on,
    role_of_split,
    split_in_name,
    split_word_in,
    splits_in_names,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.datumaro import is_labelme_xml
from effdet_keras.data.formats.image_paths import (
    current_root,
    may_be_of_results,
    may_have_images,
)
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.images import IMAGE_SUFFIXES

# Names of the folders of xml files and of images, in the order in which they are tried.
# The first name in each is VOC's own; many small datasets use `annotations/` and
# `images/`.
_XML_FOLDERS = (
    "annotations",
    "annotations/xmls",
    "annotation",
    "annots",
    "xml",
    "xmls",
    "labels",
    "",
)
_SETS = "ImageSets/Main"
_IMAGE_FOLDERS = ("jpegimages", "images", "image", "imgs", "img", "")


def from_voc(
    folder: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    one_based: bool = True,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a dataset in Pascal VOC's format: one xml file per image.

    Reads `Annotations/NAME.xml` and `JPEGImages/NAME.jpg` (or another image format).
    The image names of a split come from `ImageSets/Main/SPLIT.txt`, or else from
    `ImageSets/SPLIT.txt`, `Main/SPLIT.txt`, or lists such as `pet_train.txt` beside the
    folders. If `ImageSets/Main` only has a list for each class, with 1 or -1 behind the
    name of each image, the images of a split are those of all its lists. Also read are
    `annotations/` (or `annotations/xmls/`) with `images/`, and xml files and images
    side by side. `Annotations/` and `JPEGImages/` may contain subfolders instead of
    files, such as one per class. A note counts the xml files that are in none of the
    lists.

    The image of an xml file is the one with the same name. The `filename` in the file
    is used only if there is no such image, because it is often out of date. Tags may be
    in upper case or in an XML namespace, and the root element may have another name.
    One file may hold several `<annotation>` elements, each with the `filename` of its
    image.

    VOC counts pixels from 1 and includes the last one: a box from `xmin` to `xmax`
    covers `xmin - 1` to `xmax` here. A box that ends where it begins, or before that,
    is left out, and a warning counts such boxes. Difficult objects become crowds: they
    are not trained on, and evaluation ignores them, as VOC's own evaluation does.

    Args:
        folder: folder of the dataset, such as `VOCdevkit/VOC2012`.
        split: name of an image set, such as `"train"`. None reads every xml file.
        class_names: see `load`.
        one_based: whether pixel coordinates count from 1. Pass False for the files of
            tools that count from 0 and write the corners of the box.
        on_error: see `load`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the image names;
        `source_id` is the name without folder and suffix, or `folder/name` if xml files
        in two folders have the same name.

    Raises:
        FileNotFoundError: If the folder or an image is missing.
        ValueError: If there is no such split, if there is no object and `class_names`
            is None, or, depending on `on_error`, if an xml file cannot be read, a box
            is not four numbers in pixels, or a name is not in `class_names`.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_voc(dataset, folder)
        >>> print((folder / "Annotations" / "000000000001.xml").read_text())
        <annotation>
        ...
              <xmin>9</xmin>
        ...
        >>> from_voc(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    rule = "`one_based` must be True or False (true or false in a command)"
    require(one_based in (True, False), rule, one_based=one_based)
    folder = path_of(folder)
    problems = Problems(f"`from_voc` of {str(folder)!r}", on_error)
    xml_dir = _find_xml_dir(folder)
    if xml_dir is None:
        raise FileNotFoundError(f"`from_voc` found no xml file in {str(folder)!r}")
    files = _by_name(_xml_files(xml_dir))
    stems = set(files)
    sets = _image_sets(folder, stems)
    names = _names(folder, stems, sets, split)
    if not stems.issuperset(names):  # then the names come from the list of `split`
        lists = sets[reading.chosen_split(sets, split, folder)]
        names = _with_xml(names, files, lists[0], xml_dir, problems)
    if not sets:
        _note_other_lists(folder, xml_dir, problems)
    _note_unlisted(folder, stems, sets, split, problems)
    _note_other_xml(folder, xml_dir, stems, sets, split, problems)
    # The first folder that has an image named after an xml file is the image folder.
    inner = {place.name.lower(): place for place in visible_folders(folder)} | {
        "": folder
    }
    places = [*(inner[name] for name in _IMAGE_FOLDERS if name in inner), xml_dir]
    if xml_dir != folder and xml_dir.name.lower() in _IMAGE_FOLDERS:
        places = [xml_dir]
    is_deep = any(file.parent != xml_dir for file in files.values())
    images_of = _images_in_folders if is_deep else _images
    listed = ((place, images_of(place)) for place in places)
    keys = stems | {f"{file.parent.name}/{file.stem}" for file in files.values()}
    named = (pair for pair in listed if not keys.isdisjoint(pair[1]))
    image_dir, images = next(named, (None, {}))
    if image_dir is None:
        look = _images_beside if xml_dir == folder else _images_of_all
        image_dir, images = look(folder, stems, problems) or (places[0], {})
    shift = 1.0 if one_based else 0.0
    reader = _XmlReader(image_dir, images, shift, problems)
    found = for_each(lambda name: reader.read(files[name], name), names)
    found = [image for images in found for image in images]
    found = _without_empty_twins(found, folder, problems)
    note_rotated(problems, folder.name, reader.rotated)
    known = sorted({name for image in found for name in image.classes})
    classes = reading.named_classes(known, class_names)
    return reading.make_dataset(found, classes, problems, source=folder)


def _without_empty_twins(found, folder, problems):
    """Leaves out xml files without objects whose image has another file with objects.

    For example, the image was renamed after a tool had written the empty file.
    """
    if all(image.boxes for image in found):
        return found
    annotated = {str(image.image): image.place for image in found if image.boxes}
    empty = [i for i in found if not i.boxes and str(i.image) in annotated]
    if not empty:
        return found
    first = empty[0]
    verb = "has no object, and its" if len(empty) == 1 else "have no object, and their"
    detail = (
        f"{count_of(len(empty), 'xml file')} {verb} image has objects in another xml "
        f"file, such as {first.place!r} for {first.file_name!r}, which "
        f"{annotated[str(first.image)]!r} annotates"
    )
    problems.add_note("repeated annotation file", folder.name, detail)
    return [i for i in found if i.boxes or str(i.image) not in annotated]


def _images_beside(folder, stems, problems):
    """Returns the image folder beside a folder of xml files, and its images; or None.

    For example, `JPEGImages01` has the images of `Annotations01`. Without a folder of
    such a name, it is the only one that has images of most xml files. A warning says
    if these images are outside of the folder that the user named.
    """
    if is_remote(folder):
        return None
    folder = pathlib.Path(os.path.abspath(folder))
    number = re.search(r"[0-9_ -]*$", folder.name)[0]
    wanted = {f"{image}{number}" for image in _IMAGE_FOLDERS if image}
    beside = visible_folders(folder.parent)
    beside = [place for place in beside if may_have_images(place.name)]
    found = {place: _images(place) for place in beside}
    found = {
        place: images
        for place, images in found.items()
        if 2 * len(stems & images.keys()) > len(stems)
    }
    places = [p for p in found if p.name.lower() in wanted] or list(found)
    if len(places) != 1:
        return None
    root = current_root(folder)
    if root is None or root.absolute() not in places[0].absolute().parents:
        detail = f"its images are read from {str(places[0])!r}, beside that folder"
        problems.add("moved images", folder, detail)
    return places[0], found[places[0]]


def _images_of_all(folder, stems, problems):
    """Returns the only folder that has images of all xml files, and these; or None.

    This is for folders such as `train_images` and `test_images` that have images of the
    same names. Folders of results do not count. If no other folder has any of the
    images, they are looked for one by one.
    """
    if is_remote(folder):
        return None
    places = [p for p in visible_folders(folder) if not may_be_of_results(p.name)]
    found = {place: _images(place) for place in places}
    some = [place for place, images in found.items() if stems & images.keys()]
    places = [place for place in some if stems <= found[place].keys()]
    if len(places) != 1 or len(some) == 1:
        return None
    other = next(place for place in some if place != places[0])
    detail = (
        f"its images are read from {str(places[0])!r}, the only folder that has all of "
        f"them: {other.name!r}, for example, has images of only some of these names"
    )
    problems.add("moved images", folder, detail)
    return places[0], found[places[0]]


def _image_sets(folder, stems):
    """Returns the paths of the lists of image names of each split.

    Most splits have one list. `stems` are the names of the xml files without suffix.
    """
    sets = _lists_in(folder / _SETS)
    if sets:
        sets = {name: [path] for name, path in sets.items()}
        return sets | _splits_of_classes(sets, stems)
    # Some datasets lack the folder `Main`, or have `Main` without `ImageSets`. There,
    # only lists that are named after a split count.
    for place in (folder / "ImageSets", folder / "Main"):
        sets = _lists_in(place).items()
        sets = {n: [p] for n, p in sets if split_in_name(n) or n == "trainval"}
        if sets:
            return sets
    return _lists_beside(folder, stems)


def _lists_in(folder):
    """Returns the txt files in a folder by name, which is that of a split.

    Windows hides endings, so `val.txt.txt` is meant to be `val.txt`. It counts as that
    if there is no such file, or an empty one.
    """
    files = {path.stem: path for path in visible_files(folder, ".txt")}
    for name in [name for name in files if name.endswith(".txt")]:
        short = name.removesuffix(".txt")
        text = files[name].read_bytes().strip()
        meant = files[short].read_bytes().strip() if short in files else b""
        if not meant:
            files[short] = files.pop(name)
        elif text in (b"", meant):  # it adds nothing
            del files[name]
    return dict(sorted(files.items()))


_FLAG = re.compile(r".*\s(-1|0|1)")  # ends a line in a list of one class


def _splits_of_classes(sets, stems):
    """Returns the lists of splits that only have a list for each class; else {}.

    VoTT writes `cat_train.txt` and `dog_train.txt`, with 1 or -1 behind the name of
    each image, and no `train.txt`. The images of a split are those of all its lists. No
    image may be in two splits.
    """
    splits = collections.defaultdict(list)
    for name, (path,) in sets.items():
        split = name.rpartition("_")[2]
        is_split = role_of_split(split) is not None or split == "trainval"
        try:
            lines = filter(None, map(str.strip, read_text(path).splitlines()))
            is_of_class = is_split and all(map(_FLAG.fullmatch, lines))
        except (ValueError, OSError):  # it is reported when its split is read
            continue
        if is_of_class and split not in (name, *sets):
            splits[split].append(path)
    listed = [_names_in_lists(s, stems) for n, s in splits.items() if n != "trainval"]
    names = [name for names in listed for name in names]
    return dict(splits) if len(names) == len(set(names)) else {}


def _lists_beside(folder, stems):
    """Finds lists of image names, such as `pet_train.txt`, beside a dataset's folders.

    Any txt file may contain numbers or words. These files therefore count as lists only
    if together they name most images, if no image is in two lists that differ, and if
    one of them is for training.
    """
    files = {path.stem: path for path in visible_files(folder, ".txt")}
    lists = {}  # (names, role of the split) -> first file with these
    for stem, path in files.items():
        if not split_word_in(stem):
            continue
        try:
            lines = filter(None, map(str.strip, read_text(path).splitlines()))
            names = [_name_in_line(line) for line in lines]
        except (ValueError, OSError):  # not a text file
            continue
        if names and stems.issuperset(names):
            lists.setdefault((tuple(names), role_of_split(split_word_in(stem))), path)
    splits = splits_in_names(path.stem for path in lists.values())
    sets = {splits[p.stem]: [p] for p in lists.values() if p.stem in splits}
    different = {names for (names, _), p in lists.items() if p.stem in splits}
    listed = [name for names in different for name in names]
    is_whole = len(listed) == len(set(listed)) and 2 * len(listed) > len(stems)
    has_train = any(role_of_split(split) == "train" for split in sets)
    return sets if is_whole and has_train and len(sets) > 1 else {}


def _name_in_line(line):
    """Returns the image name in a line that holds nothing but its name or its path."""
    path = pathlib.PurePosixPath(line.replace("\\", "/"))
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else line


def _splits_of(sets):
    """Returns the sorted names of the image sets, without lists of single classes."""
    names = sets.keys()
    return sorted(n for n in names if n.rpartition("_")[2] not in names - {n})


def voc_readers(path):
    """Finds VOC folders; returns a dict from split to the function that reads it."""
    if not path.is_dir():
        return {}
    xml_dir = _find_xml_dir(path)
    if xml_dir is None:
        return {}
    stems = set(_by_name(_xml_files(xml_dir)))
    splits = _splits_of(_image_sets(path, stems)) or [None]
    return {
        split or reading.ONE_SPLIT: functools.partial(from_voc, path, split)
        for split in splits
    }


def count_names_in_no_other(
    folder: pathlib.Path, split: str, others: Sequence[str]
) -> tuple[int, int] | None:
    """Compares the lists of the image names of splits.

    Args:
        folder: path of a VOC folder.
        split: name of an image set.
        others: names of other image sets.

    Returns:
        Number of the names of `split` that no other list has, and of all its names.
        None if there are no such lists, or if they cannot be read.
    """
    xml_dir = _find_xml_dir(folder)
    if xml_dir is None:
        return None
    stems = set(_by_name(_xml_files(xml_dir)))
    sets = _image_sets(folder, stems)
    if not {split, *others} <= sets.keys():
        return None
    try:
        names = set(_names_in_lists(sets[split], stems))
        known = (_names_in_lists(sets[other], stems) for other in others)
        return len(names.difference(*known)), len(names)
    except (ValueError, OSError):
        return None


def _find_xml_dir(folder):
    """Returns the folder of the xml files, or None; folder names match in any case."""
    inner = {place.name.lower(): place for place in visible_folders(folder)}
    places = []
    for name in _XML_FOLDERS:
        first, _, rest = name.partition("/")
        place = inner.get(first, folder if not first else None)
        if place is not None:
            places.append(place / rest if rest else place)
    own = [place for place in places if _has_voc(visible_files(place, ".xml"))]
    if own and not inner.keys().isdisjoint(("imagesets", "main")):
        return own[0]  # the lists name the files of this folder
    if own:
        return _fullest(own[0], [inner[n] for n in _IMAGE_FOLDERS if n in inner])
    deep = (
        place
        for place in places
        if place != folder
        and _has_voc(_xml_files(place))
        and _have_own_images(folder, place)
    )
    return next(deep, None)


def _fullest(folder, others):
    """Returns the given folder, or an image folder with these and many more xml files.

    The image folder is chosen only if nothing is lost by it. It must have an xml file
    for each file of the given folder, at least 1.5 times as many xml files, and an
    image for each of them. In the files that both folders have, it must have at least
    as many objects in total. No other folder may have the images of the given folder.
    """
    first = {file.stem: file for file in visible_files(folder, ".xml")}
    others = [place for place in others if first.keys() <= _images(place).keys()]
    for other in others if len(others) == 1 else []:
        files = {file.stem: file for file in visible_files(other, ".xml")}
        is_more = files.keys() > first.keys() and 2 * len(files) >= 3 * len(first)
        if not is_more or not files.keys() <= _images(other).keys():
            continue
        counts = {name: _count_objects(file) for name, file in files.items()}
        known = sum(counts[name] or 0 for name in first)
        if None not in counts.values() and known >= sum(
            _count_objects(file) or 0 for file in first.values()
        ):
            return other
    return folder


def _count_objects(file):
    """Returns the number of objects in an xml file; None if it is not Pascal VOC's."""
    try:
        if not _is_voc(file):
            return None
        items = _annotations(_parse(file.read_bytes()))
    except (ValueError, OSError):
        return None
    return sum(len(item.findall("object")) for item in items)


def _have_own_images(folder, xml_dir):
    """Returns whether xml files of the same name in two folders have an image each."""
    twins = {name for name in _by_name(_xml_files(xml_dir)) if "/" in name}
    return not twins or any(
        twins <= _images_in_folders(place).keys() for place in visible_folders(folder)
    )


def _xml_files(folder):
    """Returns the xml files in a folder, or, if it has none, those in its subfolders.

    If a subfolder is named after a split, the subfolders are skipped, because each is a
    dataset of its own.
    """
    files = visible_files(folder, ".xml")
    inner = [] if files else visible_folders(folder)
    if any(split_in_name(place.name) for place in inner):
        return []
    return files + [file for place in inner for file in visible_files(place, ".xml")]


def _by_name(files):
    """Returns files by name without suffix; the folder precedes a repeated name."""
    counts = collections.Counter(file.stem for file in files)
    return {
        file.stem if counts[file.stem] == 1 else f"{file.parent.name}/{file.stem}": file
        for file in files
    }


_LOOKED_AT = 20  # number of xml files in a folder that are checked for VOC's tags
_OBJECT_TAG = re.compile(rb"<(?:\w+:)?(?:object|bndbox)[\s>]", re.IGNORECASE)
_ROOT_TAG = re.compile(rb"<(?:\w+:)?annotation[\s>]", re.IGNORECASE)
_ANY_TAG = re.compile(rb"<\w")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)


def _has_voc(files):
    """Returns whether xml files are Pascal VOC's, and not another program's."""
    return any(map(_is_voc, files[:_LOOKED_AT]))


def _is_voc(path):
    """Returns whether an xml file has the tags of VOC.

    LabelMe's xml files have these tags too, but no boxes. They do not count.
    """
    if is_labelme_xml(path):
        return False
    # Without the zero bytes between the letters of UTF-16. The text is searched and not
    # parsed, because a broken file may be one of VOC too.
    text = path.read_bytes().replace(b"\0", b"")
    if _OBJECT_TAG.search(text):
        return True
    text = _COMMENT.sub(b"", text)
    root = _ANY_TAG.search(text)  # the root decides for an image without objects
    return root is not None and bool(_ROOT_TAG.match(text, root.start()))


def _names(folder, stems, sets, split):
    """Returns the names of the images of a split, in the order of its list."""
    if split is None:
        return sorted(stems)
    split = reading.chosen_split(sets, split, folder)
    return _names_in_lists(sets[split], stems)


def _names_in_lists(files, stems):
    """Returns the image names in the lists of a split, each of them once."""
    lines = (line.strip() for file in files for line in read_text(file).splitlines())
    return list(dict.fromkeys(_name_in(line, stems) for line in lines if line))


def _with_xml(names, files, list_file, xml_dir, problems):
    """Returns the names in a list that have an xml file; reports the others."""
    known = [name for name in names if name in files]
    if not known:
        detail = (
            f"none of its {len(names):,} names, such as {names[0]!r}, is the name of "
            f"an xml file in {str(xml_dir)!r}, such as {min(files)!r}. Rename the "
            "entries or the files, or move the list away if its images have no xml "
            "file"
        )
        problems.add("unreadable annotation", list_file.name, detail)
        return []
    for name in names:
        if name not in files:
            detail = (
                f"a line of {str(list_file)!r} names it, but it is not in "
                f"{str(xml_dir)!r}"
            )
            problems.add("unreadable annotation", f"{name}.xml", detail)
    return known


def _note_unlisted(folder, stems, sets, split, problems):
    """Reports, when the training split is read, how many xml files are in no list.

    If there are `train` and `val`, `trainval` does not count as a split: see
    `load_splits`.
    """
    if split is None or is_remote(folder):
        return
    splits = _splits_of(sets)
    if {"train", "val"} <= set(splits):
        splits = [name for name in splits if name != "trainval"]
    if split != first_to_train_on(splits):
        return
    # VOC itself has lists of other tasks, such as `ImageSets/Segmentation/train.txt`.
    outer = folder / "ImageSets"
    inner = visible_folders(outer) if outer.is_dir() else []
    tasks = [place for place in inner if place.name != "Main"]
    lists = [*map(sets.get, splits), [f for p in tasks for f in p.glob("*.txt")]]
    try:
        left = sorted(stems.difference(*(_names_in_lists(f, stems) for f in lists)))
    except (ValueError, OSError):
        return  # an unreadable list is reported when its split is read
    if left:
        verb = "is" if len(left) == 1 else "are"
        detail = (
            f"{len(left):,} of {count_of(len(stems), 'xml file')} {verb} in none of "
            f"the lists {', '.join(splits)} of {str(sets[split][0].parent)!r}, and "
            f"{verb} not read, such as {left[0]!r}"
        )
        problems.add("unlisted images", folder, detail)


def _note_other_lists(folder, xml_dir, problems):
    """Reports json files named after splits, which may be lists in public datasets."""
    for place in dict.fromkeys((folder, xml_dir)):
        for file in visible_files(place, ".json"):
            if "split" in file.stem.lower():
                detail = (
                    f"{str(file)!r} may list the images of the splits, but is not "
                    "read: write the names of each split into "
                    "ImageSets/Main/train.txt, val.txt and so on"
                )
                problems.add("missing split", folder, detail)


def _note_other_xml(folder, xml_dir, stems, sets, split, problems):
    """Reports, when the training split is read, xml files in other folders, not read.

    Xml files that lie beside other images of their own are a dataset, which is reported
    elsewhere.
    """
    if split is not None and split != first_to_train_on(_splits_of(sets)):
        return
    used = (xml_dir, xml_dir.parent)
    known = {stem.rpartition("/")[2] for stem in stems}  # the last part of "cats/1"
    others = []
    for place in visible_folders(folder):
        files = [] if place in used else visible_files(place, ".xml")
        try:
            is_voc = _has_voc(files)
        except OSError:  # a broken link
            continue
        if not is_voc:
            continue
        own = {file.stem for file in files}
        left, has_images = own - known, not own.isdisjoint(_images(place))
        if 2 * len(left) > len(own) and not has_images:
            verb = "belongs" if len(left) == 1 else "belong"
            detail = (
                f"{count_of(len(left), 'xml file')} of {str(place)!r} {verb} to other "
                "images: not read. To read them, put them and their images into a "
                "folder of their own"
            )
            problems.add("unlisted images", place, detail)
        if left != own and (split_in_name(place.name) is None or not has_images):
            more = f" ({len(left):,} of other images)" if left else ""
            others.append(f"{place.name!r}{more}")
    if others:
        detail = (
            f"the xml files of {str(xml_dir)!r} are read, and not those for the same "
            f"images in {', '.join(others)}"
        )
        problems.add_note("repeated annotation file", folder.name, detail)


def _name_in(line, stems):
    """Returns the name of an image in a line of a list.

    A list for one class has a second column, 1 or -1: the images of both count. Other
    lists have the path of the image.
    """
    if line in stems:
        return line
    first = line.split()[0]
    path = pathlib.PurePosixPath(line.replace("\\", "/"))
    known = (first, path.stem, f"{path.parent.name}/{path.stem}")
    return next((name for name in known if name in stems), first)


def _images(image_dir):
    """Returns the path of each image by its name without suffix."""
    return {path.stem: path for path in visible_files(image_dir, *IMAGE_SUFFIXES)}


def _images_in_folders(image_dir):
    """Returns the images as `_images` does, with subfolders; also by "folder/name"."""
    images = visible_files(image_dir, *IMAGE_SUFFIXES)
    for place in visible_folders(image_dir):
        images += visible_files(place, *IMAGE_SUFFIXES)
    by_folder = {f"{path.parent.name}/{path.stem}": path for path in images}
    return by_folder | _by_name(images)


def write_voc(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a new folder in Pascal VOC's format.

    The folder contains `Annotations/NAME.xml`, `JPEGImages/NAME.jpg` or `.png`, and
    `ImageSets/Main/SPLIT.txt`. Coordinates count from 1, as for `from_voc`; a box that
    does not end at whole pixels is written with decimals. Crowds become difficult
    objects. Boxes without an area inside their image are left out. Ids and areas are
    not kept, nor are masks, for which a warning is given.

    Args:
        datasets, folder: see `write_coco`.

    Raises:
        FileExistsError, OSError: See `write_coco`.
        ValueError: See `write_coco`, or if a class name has spaces around it or control
            characters.

    Example: see `from_voc`.
    """
    datasets = writing.named_splits(datasets, usable=True, masks=False)
    writing.check_names_survive(datasets, "Pascal VOC")
    # All images lie in one folder: their names must differ over all splits.
    stems = iter(writing.image_stems([r for d in datasets.values() for r in d.records]))
    names = {split: [next(stems) for _ in d.records] for split, d in datasets.items()}
    with atomic_folder(folder) as partial:
        for part in ("Annotations", _SETS):
            (partial / part).mkdir(parents=True)
        for split, dataset in datasets.items():
            files = writing.write_images(
                dataset.records, partial / "JPEGImages", names[split]
            )
            for name, file, record in zip(names[split], files, dataset.records):
                text = _to_xml(record, file, dataset.class_names)
                path = partial / "Annotations" / f"{name}.xml"
                path.write_text(text, encoding="utf-8")
            text = "".join(f"{name}\n" for name in names[split])
            (partial / _SETS / f"{split}.txt").write_text(text, encoding="utf-8")


# --- Reading and writing one xml file of Pascal VOC.

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclasses.dataclass
class _XmlReader:
    """Reads the xml files of one dataset."""

    image_dir: Any  # where a missing image is expected
    images: Mapping[str, Any]  # path of each image, by its name without suffix
    shift: float  # subtracted from left and top, in pixels
    problems: Problems
    # Name of the file of each rotated box.
    rotated: list[str] = dataclasses.field(default_factory=list)

    def read(self, path, name):
        """Returns the images that an xml file describes, as a list of `Found`.

        The list is empty, and a problem is added, if the file cannot be read. `name` is
        the name of the image if the file describes only one.
        """
        try:
            root = _parse(path.read_bytes())
            items = _annotations(root)
        except (ValueError, OSError) as error:
            self.problems.add("unreadable annotation", path.name, str(error))
            return []
        if len(items) == 1:
            deep = f"{path.parent.name}/{path.stem}"
            image = self.images.get(deep, self.images.get(name))
            return [self._read_item(items[0], path, image, name)]
        found = []
        for item in items:  # one of several images in the file, each with a `filename`
            name = _text(item, "filename")
            stem = pathlib.PurePosixPath(name.replace("\\", "/")).stem
            if not name:
                detail = (
                    "each <annotation> of a file with several must have a `filename`"
                )
                self.problems.add("unreadable annotation", path.name, detail)
                continue
            found.append(self._read_item(item, path, self.images.get(stem), stem))
        return found

    def _read_item(self, root, path, image, source_id):
        """Returns the image and the objects of an `<annotation>` element as `Found`."""
        boxes, names, is_crowd, is_good = [], [], [], []
        for item in root.findall("object"):
            if not len(item):
                self.problems.add("stray annotation", path.name, "an empty <object>")
                continue
            corners, name = self._corners(item, path), _text(item, "name")
            if corners is None or not name:
                texts = [item.findtext(f"bndbox/{key}") for key in _CORNERS]
                detail = f"a `name`, and four finite numbers {_CORNERS}, are expected. "
                detail += f"Received: {name!r}, {texts}"
                self.problems.add("bad box", path.name, detail)
                continue
            left, top, right, bottom = corners
            is_good.append(left < right and top < bottom)
            if not is_good[-1]:
                detail = "the box must end after it starts: {:g}, {:g} to {:g}, {:g}"
                self.problems.add("empty box", path.name, detail.format(*corners))
            left, top = left - self.shift, top - self.shift
            boxes.append((left, top, right - left, bottom - top))
            names.append(name)
            is_crowd.append(_text(item, "difficult") == "1")
        name = _text(root, "filename").replace("\\", "/")
        image = self._image_of(image, name, source_id)
        sides = (_text(root, f"size/{side}") for side in ("height", "width"))
        return reading.Found(
            place=path.name,
            image=image,
            boxes=boxes,
            classes=names,
            source_id=source_id,
            file_name=image.name,
            image_size=reading.check_size(*(_whole_number(side) for side in sides)),
            is_crowd=is_crowd,
            is_good=is_good,
        )

    def _image_of(self, image, name, source_id):
        """Returns the path of the image with this `filename`, which need not exist."""
        short = name.rpartition("/")[2]
        if image is None:
            name = name or f"{source_id}.jpg"
            beside = self.image_dir / (short or name)
            return beside if is_file(beside) else self.image_dir / name
        # If there are a.jpg and a.png, the `filename` decides which of them is meant.
        is_twin = short != image.name and pathlib.PurePath(short).stem == image.stem
        is_twin = is_twin and short.lower().endswith(IMAGE_SUFFIXES)
        other = image.parent / short
        return other if is_twin and is_file(other) else image

    def _corners(self, item, path):
        """Returns an object's corners, counted as in a `bndbox`, or None."""
        try:
            corners = [float(item.findtext(f"bndbox/{key}", "")) for key in _CORNERS]
        except ValueError:
            corners = self._corners_around(item.find("robndbox"), path)
        is_known = corners and reading.are_coordinates(np.array(corners))
        return corners if is_known else None

    def _corners_around(self, box, path):
        """Returns the corners of the upright box around a roLabelImg box, or None.

        A box of roLabelImg is rotated.
        """
        if box is None:
            return None
        keys = ("cx", "cy", "w", "h", "angle")
        numbers = numbers_of(box.findtext(key) for key in keys)
        if numbers is None:
            return None
        x, y, width, height, angle = numbers
        # roLabelImg writes radians. A larger number is in degrees, from another
        # program.
        degrees = math.degrees(angle) if abs(angle) <= 2 * math.pi else angle
        upright = corners_of(x - width / 2, y - height / 2, width, height)
        left, top, width, height = hull_box(turned_corners(upright, degrees, (x, y)))
        self.rotated.append(path.name)
        # The pixels of a rotated box count from 0, whether or not those of a `bndbox`
        # do.
        return [left + self.shift, top + self.shift, left + width, top + height]


def _text(item, path):
    """Returns the text at a path below an element, or ""."""
    return (item.findtext(path) or "").strip()


def _whole_number(text):
    """Returns the whole number that a text of less than ten digits stands for, or 0."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


# Finds the encoding that a file declares, for encodings that the parser does not know.
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)[\"'][^>]*\?>")


def _parse(data):
    """Returns the root element of a file; tags lose capitals and namespaces."""
    try:
        root = xml.etree.ElementTree.fromstring(data)
    except xml.etree.ElementTree.ParseError as error:
        raise InvalidValueError(_why_not_parsed(data, error)) from error
    except (ValueError, LookupError) as error:  # an encoding the parser lacks
        root = _parse_decoded(data, error)
    for element in root.iter():
        if isinstance(element.tag, str):
            element.tag = element.tag.rpartition("}")[2].lower()
    return root


def _parse_decoded(data, error):
    """Returns the root element of a file in an encoding that only Python's codecs know.

    If Python does not know the encoding either, the declaration is taken for a mistake
    and the file is read as UTF-8.
    """
    declaration = _ENCODING.match(data)
    encoding = declaration[1].decode("ascii") if declaration else "utf-8"
    try:
        codecs.lookup(encoding)
    except LookupError:
        encoding = "utf-8"
    try:
        text = data.decode(encoding)
        return xml.etree.ElementTree.fromstring(text[text.find("?>") + 2 :].strip())
    except (ValueError, LookupError, SyntaxError) as inner:
        raise InvalidValueError(
            f"the file cannot be read in the encoding that it names ({error}; "
            f"{inner}). Save it again with the encoding UTF-8"
        ) from inner


def _why_not_parsed(data, error):
    try:
        data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        if not _ENCODING.match(data):
            return (
                f"the file is not in UTF-8 and names no other encoding ({error}). "
                "Save it again with the encoding UTF-8"
            )
    return f"no well-formed xml: {error}"


def _annotations(root):
    """Returns the elements of a file each of which describes one image."""
    if root.tag == "annotation":
        return [root]
    if inner := list(root.iter("annotation")):
        return inner
    if root.tag == "annotations" and root.find("image") is not None:
        raise InvalidValueError(
            "the file has the format of CVAT, not that of Pascal VOC"
        )
    if any(root.find(tag) is not None for tag in ("object", "filename", "size")):
        return [root]  # an <annotation> under another name
    raise InvalidValueError(
        f"its root element must be <annotation>. Received: <{root.tag}>"
    )


def _to_xml(record, file_name, class_names):
    """Returns the text of the xml file of a `Record`, with corners in pixels from 1."""
    root = xml.etree.ElementTree.Element("annotation")
    _add(root, "folder", "JPEGImages")
    _add(root, "filename", file_name)
    height, width = record.image_size
    size = _add(root, "size")
    for key, value in (("width", width), ("height", height), ("depth", 3)):
        _add(size, key, str(value))
    _add(root, "segmented", "0")
    rows = zip(record.boxes_xywh.tolist(), record.labels, record.is_crowd)
    for (left, top, box_width, box_height), label, crowd in rows:
        item = _add(root, "object")
        _add(item, "name", class_names[label])
        _add(item, "pose", "Unspecified")
        _add(item, "truncated", "0")
        _add(item, "difficult", str(int(crowd)))
        box = _add(item, "bndbox")
        corners = (left + 1, top + 1, left + box_width, top + box_height)
        for key, value in zip(_CORNERS, corners):
            _add(box, key, f"{value:.4f}".rstrip("0").rstrip("."))
    xml.etree.ElementTree.indent(root)
    return xml.etree.ElementTree.tostring(root, encoding="unicode")


def _add(parent, tag, text=None):
    element = xml.etree.ElementTree.SubElement(parent, tag)
    element.text = text
    return element
