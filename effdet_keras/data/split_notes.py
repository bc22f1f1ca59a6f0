"""Messages about the splits that were read, and about data that was not read."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import pathlib
import re
import warnings
from typing import Any

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.choose_dataset import is_divided
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.find_dataset import count_images, find_below, find_in
from effdet_keras.data.formats.coco import damaged_files
from effdet_keras.data.formats.dataset_files import (
    DEPTH,
    NO_DATA_FOLDERS,
    first_to_train_on,
    names_in,
    role_of_split,
    split_folders,
    walk,
)
from effdet_keras.data.formats.image_paths import dataset_root
from effdet_keras.data.formats.labelme import has_embedded_images
from effdet_keras.data.formats.reading import NoClassError
from effdet_keras.data.formats.voc import count_names_in_no_other
from effdet_keras.data.formats.yolo_layout import find_layout
from effdet_keras.data.known_formats import FORMATS, Source
from effdet_keras.data.problems import Problem, Severity
from effdet_keras.data.record import concat_field
from effdet_keras.data.shared_images import shared_images
from effdet_keras.images import IMAGE_SUFFIXES

_Splits = dict[str, DetectionDataset]
_MAX_TOLD = 5  # the most other datasets that are named
_MAX_UNREAD = 50  # the most folders that are searched for them
# Formats whose readers skip an image that no annotation names, without a message.
_WITHOUT_NEGATIVES = (
    "coco",
    "csv",
    "cvat",
    "labelme",
    "via",
    "labelbox",
    "create_ml",
    "keras_txt",
    "edge_impulse",
    "dlib",
    "opencv",
    "voc",
)
_RESULT_FOLDERS = ("output", "outputs")  # results of a program, maybe a dataset
_FEW_BOXES = 10
_TOO_GOOD = "an evaluation on these does not show how good a model is on new images"
# The most splits without a role that are compared, such as two files one of which was
# meant.
_MAX_WITHOUT_ROLE = 2


def others_than(found: Source) -> list[str]:
    """Returns lines on datasets in other formats, for an error of missing images."""
    return [
        f"{str(other.path)!r} also holds a dataset ({other.described}). To read it, "
        f"pass format={other.format!r} (--format)"
        for other in _in_other_formats(found, without_package=True)
    ]


def readable_instead(found: Source) -> Source | None:
    """Returns the only dataset in another format that can be read; None if not one."""
    first, second = (*_in_other_formats(found), None, None)[:2]
    return first if second is None else None


def _in_other_formats(found, without_package=False):
    """Returns the datasets in other formats that can be read: see `_can_be_read`.

    They are those of the folder that the user passed, or else those below it.
    """
    if is_remote(found.root) or not found.root.is_dir():
        return []
    formats = [name for name in FORMATS if name != found.format]
    for search in (find_in, find_below):
        others = search(found.root, formats)[0][:_MAX_TOLD]
        others = [dataclasses.replace(other, root=found.root) for other in others]
        readable = [s for s in others if _can_be_read(s, without_package)]
        if readable:
            return readable
    return []


def _can_be_read(source, without_package):
    """Returns whether all splits can be read, with all images and at most few errors.

    `without_package` is the answer if a package is missing that reads the dataset.
    """
    num_boxes = 0
    for read in source.readers.values():
        try:
            with (
                dataset_root(source.root),
                warnings.catch_warnings(action="ignore"),
            ):
                dataset = read()
        except NoClassError:  # a split without objects
            continue
        except ImportError:  # its text says what to install
            return without_package
        except (ValueError, OSError):
            return False
        if any(problem.kind == "missing image" for problem in dataset.problems):
            return False
        num_boxes += sum(len(record.labels) for record in dataset.records)
    return num_boxes > 0


def tell_of_other_folders(found: Source, datasets: _Splits) -> None:
    """Prints which datasets lie in folders from which nothing was read."""
    if is_remote(found.root) or not found.root.is_dir():
        return
    images = (r.image for d in datasets.values() for r in d.records)
    used = {os.path.dirname(image) for image in images if isinstance(image, str)}
    used = {os.path.realpath(folder) for folder in used}
    known = {(source.format, source.path) for source in (found, *found.others)}
    known |= {
        (source.format, folder)
        for source in (found, *found.others)
        if source.path.is_dir()
        for split, folder in split_folders(source.path).items()
        if source is not found or split in found.readers.keys() - datasets.keys()
    }
    others, formats = [], list(FORMATS)
    # LabelMe's own reader reads json files of several folders.
    has_labelme = any(s.format == "labelme" for s in (found, *found.others))
    for folder in _unread_folders(found.root, used, has_labelme)[:_MAX_UNREAD]:
        own = find_in(folder, formats)[0]
        own = own or find_below(folder, formats, everywhere=False)[0]
        others += [s for s in own if (s.format, s.path) not in known]
    for source in others[:_MAX_TOLD]:
        print(
            f"  {str(source.path)!r} also holds a dataset ({source.described}), which "
            "was not read. To read it, pass that folder."
        )
    if len(others) > _MAX_TOLD:
        more = count_of(len(others) - _MAX_TOLD, "more dataset")
        print(f"  Not read: {more} in other folders")


# Names of the folders into which YOLO programs write what a detector found.
_PREDICTIONS = re.compile(r"runs|(predict|exp)\d*|predictions?", re.IGNORECASE)


def warn_of_predictions(found: Source) -> None:
    """Warns if a dataset may be the predictions of a detector, by its folders' names.

    Only the folder that the user named and those below it count.
    """
    if is_remote(found.root):
        return
    root = found.root.parent if found.root.is_file() else found.root
    above = len(root.absolute().parent.parts)
    parts = found.path.absolute().parts[above:]
    name = next((part for part in parts if _PREDICTIONS.fullmatch(part)), None)
    if name is not None:
        warnings.warn(
            f"{str(found.path)!r}: programs write what a detector found into folders "
            f"such as {name!r}. If these boxes are predictions that nobody checked, or "
            "are drawn into the images, do not train or evaluate on them",
            stacklevel=3,
        )


def _unread_folders(root, used, has_labelme):
    """Returns the folders below `root` that have images, but hold no folder of `used`.

    Images inside LabelMe's json files count as well, unless some were read already. Of
    nested folders, only the outermost is returned.
    """
    read = used.union(str(p) for folder in used for p in pathlib.Path(folder).parents)
    found = []
    for place, folders, _ in walk(root, depth=DEPTH):
        left_out = NO_DATA_FOLDERS.difference(_RESULT_FOLDERS)
        folders[:] = [name for name in folders if name.lower() not in left_out]
        if place == root or os.path.realpath(place) in read:
            continue
        if count_images(place) or (not has_labelme and has_embedded_images(place)):
            found.append(place)
            folders.clear()
    return found


def without_whole(splits: _Splits, found: Source) -> _Splits:
    """Returns the splits without those that repeat others, such as `all_labels.csv`.

    If there are splits to train and to evaluate on, any other split is left out if all
    of its images are in splits with a role, or if it has all of their images. If there
    is only one to train on, any other of its images and classes is left out.
    """
    divided = is_divided(found)
    if not divided and "train" not in map(role_of_split, splits):
        return splits
    parts = [name for name in splits if role_of_split(name) is not None]
    known = {r.image for name in parts for r in splits[name].records}
    for name in splits.keys() - parts:
        own = {r.image for r in splits[name].records if isinstance(r.image, str)}
        more = len(own - known)
        if len(own) < len(splits[name]) or (more and not known <= own):
            continue
        classes = {n for part in parts for n in splits[part].class_names}
        if not divided and (more or not classes.issuperset(splits[name].class_names)):
            continue
        why = f"all its images are also in the splits {', '.join(parts)}."
        if more:
            why = (
                f"it has all images of the splits {', '.join(parts)}, and {more:,} "
                f"more. To read it, pass `split={name!r}` to `load`."
            )
        print(f"  The split {name!r} was left out, because {why}")
        splits = {k: v for k, v in splits.items() if k != name}
    return splits


def tell_of_trainval(found: Source) -> None:
    """Prints why `trainval` was not read, and how many of its images were not."""
    counts = None
    if found.format == "voc":
        counts = count_names_in_no_other(found.path, "trainval", ["train", "val"])
    why = "because 'train' and 'val' were."
    if counts is not None:
        alone, count = counts
        why = "because all its images are in 'train' and 'val'."
        if alone:
            verb = "is" if alone == 1 else "are"
            why = (
                f"although {alone:,} of its {count_of(count, 'image')} {verb} neither "
                "in 'train' nor in 'val'. To read it, pass `split='trainval'` to "
                "`load`."
            )
    print(f"  The split 'trainval' was not read, {why}")


def tell_of_empty(splits: _Splits) -> None:
    """Prints which splits of unknown role, such as `unlabeled`, do not have any box."""
    for name, dataset in splits.items():
        has_box = any(len(record.labels) for record in dataset.records)
        if role_of_split(name) is None and len(dataset) and not has_box:
            one, many = "image is", "images are"
            print(
                f"  The split {name!r} has no box: its "
                f"{count_of(len(dataset), one, many)} read as images without objects. "
                "If nobody annotated them, do not train or evaluate on them."
            )


def tell_of_unlisted(splits: _Splits, found: Source) -> None:
    """Warns of images without an annotation beside those that were read.

    The warning counts images in the folders of the images that were read. It does not
    count an image that is named after one that was read, such as `a_mask.png`.

    Returns:
        The splits, with the warning as a problem of the first split to train on.
    """
    if found.format not in _WITHOUT_NEGATIVES or is_remote(found.root):
        return splits
    real = functools.cache(os.path.realpath)
    names = collections.defaultdict(set)  # from folder to the images that were read
    problems = [problem for dataset in splits.values() for problem in dataset.problems]
    for dataset in splits.values():
        for record in dataset.records:
            if isinstance(record.image, str) and not is_remote(record.image):
                folder, name = os.path.split(record.image)
                names[real(folder)].add(name)
    left = []
    for folder, known in names.items():
        beside = [
            name
            for name in names_in(pathlib.Path(folder))[1]
            if name not in known and name.lower().endswith(IMAGE_SUFFIXES)
        ]
        stems = {name.rpartition(".")[0] for name in known} if beside else set()
        left += [os.path.join(folder, n) for n in beside if not _is_derived(n, stems)]
    if left:  # images with an error were reported already
        wrong = [p.file for p in problems if p.severity is Severity.ERROR]
        wrong = {pathlib.PurePath(file).stem for file in wrong}
        left = [name for name in left if pathlib.Path(name).stem not in wrong]
    if left:  # an image inside an annotation file was read instead of these
        inside = {
            pathlib.PurePath(record.name).stem
            for dataset in splits.values()
            for record in dataset.records
            if not isinstance(record.image, str)
        }
        left = [name for name in left if pathlib.Path(name).stem not in inside]
    if left and found.format == "voc":  # its lists may leave out images with xml files
        kinds = {problem.kind for problem in problems}
        annotated = _stems_of_xml_files(found.root)
        left = [n for n in left if pathlib.Path(n).stem not in annotated]
        left = left if "unlisted images" not in kinds else []
    if not left:
        return splits
    count = sum(map(len, names.values())) + len(left)
    verb, them = ("was", "it") if len(left) == 1 else ("were", "them")
    text = (
        f"{len(left):,} of {count_of(count, 'image')} {verb} not read, because no "
        f"annotation of {', '.join(map(repr, splits))} names {them}, such as "
        f"{left[0]!r}"
    )
    warnings.warn(f"{os.fspath(found.path)!r}: {text}", stacklevel=3)
    first = first_to_train_on(splits)
    problem = Problem("unlisted images", os.path.dirname(left[0]), text)
    return splits | {first: splits[first]._with_problem(problem)}


def _stems_of_xml_files(root):
    stems = {
        name[:-4]
        for _, _, names in walk(root, depth=DEPTH)
        for name in names
        if name.lower().endswith(".xml")
    }
    return stems | {os.path.splitext(stem)[0] for stem in stems}  # `a` for a.jpg.xml


def _is_derived(name, stems):
    """Returns whether a name is that of another image, maybe with an addition."""
    stem = name.rpartition(".")[0]
    ends = (match.start() for match in re.finditer(r"[_\-. ]", stem))
    return stem in stems or any(stem[:end] in stems for end in ends)


def tell_of_other_classes(splits: _Splits, source: Any) -> None:
    """Warns of splits that share no class with the training split.

    Splits of fewer than ten boxes are ignored: they may lack its classes by chance.
    """
    train = first_to_train_on(splits)
    if role_of_split(train) != "train" or len(splits) < 2:
        return
    classes = {}  # from split to its classes with boxes, in lower case
    for name, dataset in splits.items():
        labels = concat_field(dataset.records, "labels").tolist()
        if len(labels) >= _FEW_BOXES:
            classes[name] = {dataset.class_names[i].casefold() for i in set(labels)}
    of_train = classes.get(train, set())
    others = [s for s, of in classes.items() if of_train and of.isdisjoint(of_train)]
    if others:
        there, here = min(classes[others[0]]), min(of_train)
        warnings.warn(
            f"{os.fspath(source)!r}: no class of {', '.join(map(repr, others))} is in "
            f"{train!r} ({others[0]!r} has {there!r}, for example, and {train!r} has "
            f"{here!r}). These splits may be different datasets. If they are, put each "
            "into a folder of its own",
            stacklevel=3,
        )


def tell_of_shared(splits: _Splits, source: Any) -> None:
    """Warns of images that are in two splits.

    Args:
        splits: dict from split name to `DetectionDataset`.
        source: the path of all splits, or a list of their paths, for the warning.

    Returns:
        The splits, with each warning as a problem of the later of the two splits.
    """
    source = ", ".join(source) if isinstance(source, list) else os.fspath(source)
    told = dict(splits)
    names = [name for name in splits if role_of_split(name) is not None]
    if len(splits) - len(names) <= _MAX_WITHOUT_ROLE:
        names = list(splits)  # more than that are folds, which share images on purpose
    for i, second in enumerate(names):
        for first in names[:i]:
            shared = shared_images(splits[first].records, splits[second].records)
            if not shared:
                continue
            text = _describe_shared(first, second, len(shared), splits)
            warnings.warn(f"{source!r}: {text}", stacklevel=3)
            problem = Problem("shared images", second, text)
            told[second] = told[second]._with_problem(problem)
    return told


def _describe_shared(first, second, count, splits):
    if count == len(splits[first]) == len(splits[second]):
        what = f"{first!r} and {second!r} contain the same {count_of(count, 'image')}"
    else:
        verb = "is" if count == 1 else "are"
        what = (
            f"{count:,} of the {count_of(len(splits[second]), 'image')} of {second!r} "
            f"{verb} also in {first!r}"
        )
    return f"{what}: {_TOO_GOOD}"


def tell_of_one_folder(found: Source, split: str) -> None:
    """Warns if data.yaml gives another split the same folders as this split."""
    if len(found.readers) == 1:
        return
    with dataset_root(found.root):
        layout = find_layout(found.path)
    places = {
        name: sorted(map(os.path.realpath, map(str, places)))
        for name, places in layout.splits.items()
    }
    same = [name for name in places if name != split and places[name] == places[split]]
    if same:
        warnings.warn(
            f"{str(found.path)!r}: {split!r} and {same[0]!r} contain the same images, "
            f"those in {places[split][0]!r}: {_TOO_GOOD}",
            stacklevel=3,
        )


def why_left_out(found: Source) -> list[str]:
    """Returns texts on splits that are missing, of YOLO and COCO."""
    if found.format == "coco":
        return [
            f"{str(file)!r}: {reason}" for file, reason in damaged_files(found.path)
        ]
    if found.format != "yolo":
        return []
    with dataset_root(found.root):
        notes = find_layout(found.path).notes
    return [detail for kind, _, detail in notes if kind == "missing split"]


def with_same_classes(splits: _Splits) -> _Splits:
    """Returns the splits with the same class names and category ids in all of them."""
    classes = {(d.class_names, d.category_ids) for d in splits.values()}
    if len(classes) <= 1:
        return splits
    pairs = {pair for names, ids in classes for pair in zip(ids, names)}
    names = {name for _, name in pairs}
    if len({class_names for class_names, _ in classes}) == 1:
        first = next(iter(splits.values()))  # names were passed, so only ids differ
        class_names, category_ids = first.class_names, first.category_ids
    elif len(pairs) == len(names) == len({i for i, _ in pairs}):
        category_ids, class_names = zip(*sorted(pairs))
    else:  # an id means different classes in different splits
        class_names, category_ids = tuple(sorted(names)), None
    return {
        split: dataset._relabelled(class_names, category_ids, problems=dataset.problems)
        for split, dataset in splits.items()
    }
