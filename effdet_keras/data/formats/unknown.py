"""Describes the content of unknown json, csv and xml files, and what would be known."""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

from effdet_keras._internal.remote_path import local_copy
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.formats.annotation_files import head_of
from effdet_keras.data.formats.csv import read_lines
from effdet_keras.data.formats.dataset_files import (
    ARCHIVES,
    DEEPEST,
    NO_DATA_FOLDERS,
    names_in,
    visible_folders,
    walk,
)
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS
from effdet_keras.data.formats.opencv import is_opencv
from effdet_keras.images import IMAGE_SUFFIXES, LFS_CURE, is_lfs_pointer

_SHOWN = 3  # number of files of a folder that are described
_MOST_KEYS = 8
# Occurs in the names of annotation files, and hardly in those of packages and programs.
_LIKELY = re.compile(
    r"annot|label|box|object|train|val|test|coco|instance|detect", re.IGNORECASE
)
_MAX_BYTES = 1 << 26  # bytes: a larger json file is not parsed for a message

# The keys by which a json file is known, and the columns of a csv file.
_KNOWN_KEYS = {
    "COCO": "images, annotations, categories",
    "LabelMe": "shapes, imagePath",
    "VIA": "filename, regions",
    "Label Studio": "data, annotations",
    "Labelbox": "Labeled Data, Label, or data_row, projects",
    "Create ML": "image, annotations",
    "Hugging Face": "file_name, objects",
    "Edge Impulse": "boundingBoxes",
    "BDD100K": "name, labels with box2d",
    "Ground Truth": "source-ref",
}
# The name of such a file decides whether it is read.
_SUPERVISELY = {"description", "tags", "size", "objects"}
_COCO = {"images", "annotations", "categories"}
_TORCHVISION = {"boxes", "labels"}  # keys of each image; the box format is not given
# Keys in json files of tools whose format is not read, and the names of these tools.
_OTHER_TOOLS = {
    ("item", "annotations", "version"): "V7 Darwin",
    ("metadata", "instances"): "SuperAnnotate",
    ("task_id", "response"): "Scale AI",
}
_KNOWN_COLUMNS = {
    "the Object Detection API": "filename, class, xmin, ymin, xmax, ymax",
    "RetinaNet": "six columns without a header",
    "AutoML": "TRAIN, VALIDATION or TEST in the first of eleven columns",
    "VIA": "filename, region_shape_attributes, region_attributes",
    "Hugging Face": "file_name, objects",
    "Open Images": "a name that ends in -annotations-bbox.csv",
}
_KNOWN_TAGS = {
    "Pascal VOC": "annotation, object, bndbox",
    "CVAT": "annotations, image, box",
    "LabelMe": "annotation, object, polygon",
    "dlib": "dataset, images, image, box",
}


_CURE = (
    "If such files describe boxes in another way, write a csv file with a row for each "
    "box and the columns filename, class, xmin, ymin, xmax, ymax"
)


def describe_unknown_files(path: Any) -> str:
    """Describes the keys, columns or tags of files that no reader knows.

    Args:
        path: a file; or a folder, whose files are described, and those up to eight
            levels below.

    Returns:
        A sentence for each of the three files that are most likely annotations, a
        sentence with what would be known for each kind of file, and what to do; "" if
        there is no such file.
    """
    files = _likely_files(path) if path.is_dir() else [path]
    texts, known = [], {}
    for file in files:
        describe = _DESCRIBE.get(file.suffix.lower())
        if describe is None:
            continue
        try:
            text, names = describe(file)
        except OSError:  # the note of a reader reports why it cannot be read
            continue
        name = "/".join(file.parts[len(path.parts) :]) or file.name
        texts.append(f"{name!r} {text}")
        known |= {names[0]: names[1]}
        if len(texts) == _SHOWN:
            break
    sentences = [
        f"Known {kind} are: " + "; ".join(f"{k} ({tool})" for tool, k in names.items())
        for kind, names in known.items()
    ]
    cure = [_CURE] if texts else []
    return ". ".join([*texts, *sentences, *cure])


def _likely_files(folder):
    """Returns the json, csv and xml files below a folder, likely annotations first.

    A likely file has a name, or is in a folder, that says so. Files in upper folders
    come before files in lower ones.
    """
    found = []
    for place, folders, names in walk(folder, depth=DEEPEST):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        found += [place / n for n in names if n.lower().endswith(tuple(_DESCRIBE))]

    def is_likely(file):
        is_known = file.parent.name.lower() in ANNOTATION_FOLDERS
        return is_known or bool(_LIKELY.search(file.name))

    # Most xml files belong to programs and are no annotations.
    found = [f for f in found if f.suffix.lower() != ".xml" or is_likely(f)]

    def rank(file):
        return not is_likely(file), len(file.parts), str(file)

    return sorted(found, key=rank)


def _describe_json(file):
    """Describes the content of a json file, or the first object in a file of lines."""
    known = "keys", _KNOWN_KEYS
    copy = local_copy(file)
    if copy.stat().st_size > _MAX_BYTES:
        return f"begins with {head_of(file, 80).decode(errors='replace')!r}", known
    try:
        text = copy.read_bytes().decode("utf-8-sig")
        content = json.loads(_first_line(text) if file.suffix in _LINES else text)
    except (ValueError, RecursionError) as error:
        return f"is not valid json ({error})", known
    each = ""
    if isinstance(content, list) and content:
        content, each = content[0], "a list of "
    if isinstance(content, dict) and content:
        for keys, tool in _OTHER_TOOLS.items():
            if content.keys() >= set(keys):
                return (
                    f"is a file of {tool}: export COCO json there",
                    known,
                )
        if content.keys() >= _TORCHVISION:
            return (
                "looks like a target of torchvision's detectors: read such files with "
                "Python's `json`, and make a dataset of them with `from_arrays`"
            ), known
        if content.keys() >= _COCO:
            return (
                "is COCO json, but its images were not found: put them into its folder"
            ), known
        if content.keys() >= _SUPERVISELY:
            return (
                "is a file of Supervisely, where the file for img/a.jpg must be "
                "called ann/a.jpg.json"
            ), known
        return f"is {each}objects with the keys {_listed(content)}", known
    return f"is {each}{reprlib.repr(content)}", known


_LINES = (".jsonl", ".ndjson")  # files with one object per line


def _first_line(text):
    return next((line for line in text.splitlines() if line.strip()), "null")


def _describe_csv(file):
    known = "columns", _KNOWN_COLUMNS
    try:
        lines = read_lines(file, "load", ",;\t", limit=1)
    except ValueError as error:
        return f"is not readable: {error}", known
    cells = lines[0][1] if lines else []
    return f"has the columns {_listed(cells)}" if cells else "is empty", known


_TAG = re.compile(rb"<([A-Za-z_][\w.:-]*)")


def _describe_xml(file):
    known = "tags", _KNOWN_TAGS
    head = head_of(file, 4096).replace(b"\0", b"")  # zero bytes of UTF-16
    tags = dict.fromkeys(tag.decode() for tag in _TAG.findall(head))
    return f"has the tags {_listed(tags)}" if tags else "has no tags", known


def _listed(names):
    """Returns some names, quoted, and how many more there are."""
    names = list(map(str, names))
    more = len(names) - _MOST_KEYS
    shown = ", ".join(repr(reprlib.repr(n)[1:-1]) for n in names[:_MOST_KEYS])
    return f"{shown} and {more:,} more" if more > 0 else shown


# --- Files that contain or stand for data, and how to get at the data.

_ANNOTATIONS = ".json .jsonl .csv .tsv .txt .xml .yaml .parquet .tfrecord .record"
# Weights and similar files may be pointers of Git LFS too, but they are not data.
_MAYBE_POINTERS = (*IMAGE_SUFFIXES, *_ANNOTATIONS.split(), *ARCHIVES)
_OTHERS = {
    ".dvc": "only points to data that is stored elsewhere: get it with `dvc pull`",
    ".mat": "is a file of MATLAB: write the boxes of its groundTruth as a table with "
    "the columns filename, class, xmin, ymin, xmax, ymax (`writetable`)",
    ".pickle": "is no format of annotations: write its boxes as csv",
    ".pkl": "is no format of annotations: write its boxes as csv",
}
_MAX_FILES = 2000  # more files are not looked at


def describe_other_files(path: Any) -> str:
    """Describes files in a folder that have to be unpacked, downloaded or converted.

    Args:
        path: a folder or a file. For an address, the result is "".

    Returns:
        A sentence for each kind of file, with the first file of it; "" if there is
        none.
    """
    if is_remote(path):
        return ""
    if not path.is_dir():
        cure = _cure_of(path)
        return "" if cure is None else f"{str(path)!r} {cure}"
    first, count = {}, 0
    for place, _, names in walk(path, depth=DEEPEST):
        if hidden := _hidden_annotations(place):
            first.setdefault(_HIDDEN, place / hidden[0])
        if _are_masks(place):
            first.setdefault(_MASKS, place)
        for name in names:
            if not name.lower().endswith(_MAYBE_DATA):
                continue
            count += 1
            cure = _cure_of(place / name) if count <= _MAX_FILES else None
            if cure is not None:
                first.setdefault(cure, place / name)
    return ". ".join(f"{str(file)!r} {cure}" for cure, file in first.items())


_HIDDEN = "begins with a dot, so it is not read: rename it"
_MASKS = (
    "has masks of the images beside it, and masks are not read: write a box for each "
    "object, the smallest rectangle around its pixels, into a csv with the columns "
    "filename, class, xmin, ymin, xmax, ymax"
)
_MASK_FOLDERS = ("mask", "masks", "segmentation", "segmentations")


def _are_masks(folder):
    """Returns whether a folder of masks has an image for most images beside it."""
    if folder.name.lower() not in _MASK_FOLDERS:
        return False
    masks = _stems_of_images(folder)
    others = (f for f in visible_folders(folder.parent) if f != folder)
    return any(
        stems and 2 * len(stems & masks) > len(stems)
        for stems in map(_stems_of_images, others)
    )


def _stems_of_images(folder):
    names = names_in(folder)[1]
    return {n.rpartition(".")[0] for n in names if n.lower().endswith(IMAGE_SUFFIXES)}


def _hidden_annotations(folder):
    """Returns the hidden json files in a folder of images; Roboflow's may be hidden."""
    names = names_in(folder)[1]
    if not any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return []
    # A Mac's `._a.json` has no annotations and is left out.
    hidden = sorted(file.name for file in folder.glob(".[!_]*.json"))
    return [name for name in hidden if _LIKELY.search(name)]


def _cure_of(file):
    """Returns how to get the data that a file contains or stands for, or None."""
    name = file.name.lower()
    try:
        if name.endswith(_MAYBE_POINTERS) and is_lfs_pointer(file):
            return LFS_CURE
        if name.endswith(ARCHIVES):
            return "is an archive: unpack it"
        if file.suffix.lower() in _OTHERS:
            return _OTHERS[file.suffix.lower()]
        if name.endswith(_TEXTS):
            head = head_of(file, 2000)
            if head.startswith(_MASK_LABELS) and _has_masks_alone(file.parent):
                return (
                    "lists the colors of CVAT's segmentation masks, which are not "
                    "read: export boxes or polygons from CVAT, such as COCO json"
                )
            return _cure_of_text(head)
    except OSError:
        pass
    return None


_TEXTS = (".txt", ".dat", ".info", ".lst")
_MAYBE_DATA = (*_MAYBE_POINTERS, *_OTHERS, *_TEXTS)  # endings of files to look into
_IMAGE_AND_NUMBERS = re.compile(
    rb"^\S[^\n]*\.(?:jpe?g|png|bmp)[ \t]*[:;,\t ](?:[ \t]*-?\d+(?:\.\d+)?[,;\t ]*){4,}",
    re.MULTILINE | re.IGNORECASE,
)

_MASK_LABELS = b"# label:color_rgb"


def _has_masks_alone(folder):
    """Returns whether a folder has a folder of masks, and none of annotations.

    CVAT writes such a list of colors beside the xml files of Pascal VOC as well.
    """
    names = [name.lower() for name in names_in(folder)[0]]
    has_masks = any("mask" in name or "segmentation" in name for name in names)
    return has_masks and ANNOTATION_FOLDERS.isdisjoint(names)


def _cure_of_text(head):
    if is_opencv(head):
        return (
            "is a file of OpenCV's opencv_annotation with another name than usual: "
            "rename it to annotations.txt"
        )
    if _IMAGE_AND_NUMBERS.search(head):
        return (
            "has rows of an image and four or more numbers, which no known format has: "
            "if they are boxes, write a csv with a row for each box and the columns "
            "filename, class, xmin, ymin, xmax, ymax, or left, top, width, height"
        )
    return None


_DESCRIBE = {
    ".json": _describe_json,
    ".jsonl": _describe_json,
    ".ndjson": _describe_json,
    ".csv": _describe_csv,
    ".tsv": _describe_csv,
    ".xml": _describe_xml,
}
