"""Pascal VOC folders to a dataset."""

import os
import pathlib
import warnings
import xml.etree.ElementTree

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.example import Record, warn_of_unusable
from effdet_keras.images import IMAGE_SUFFIXES, read_image_size


def from_voc(folder, split=None, *, class_names=None, one_based=True):
    """Reads a dataset in Pascal VOC's form: one xml file a picture.

    Expects `Annotations/NAME.xml` beside `JPEGImages/NAME.jpg` (or any other
    format), and for `split` the list `ImageSets/Main/SPLIT.txt`. A folder in
    which xml files and pictures lie side by side is read as well. The picture
    is found by the name of its xml file, and only if there is none by the
    `filename` inside, which is often out of date.

    VOC counts pixels from 1 and includes the last: a box from `xmin` to
    `xmax` covers `xmin - 1` to `xmax` here. A box that ends where it begins,
    or before, is an error of annotation: it is left out, with a warning that
    counts them. Difficult objects become crowds: not trained on, and ignored
    in evaluation, as VOC ignores them.

    Args:
        folder: folder of the data set, such as `VOCdevkit/VOC2012`.
        split: name of an image set, such as `"train"`; None takes every xml.
        class_names: names in the order of the labels: for validation pass
            those of training. None takes the names found, sorted.
        one_based: whether coordinates count from 1. Pass False for tools
            that write the corners of the box, from 0.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the
        names; `source_id` is the name.

    Raises:
        FileNotFoundError: If the folder, the split, an xml or a picture is
            missing.
        ValueError: If an xml cannot be read, a box is not four numbers, there
            is no object at all, or a name is not in `class_names`.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (40, 30)).save(folder / "a.jpg")
        >>> _ = (folder / "a.xml").write_text(
        ...     "<annotation><object><name>cell</name><bndbox><xmin>1</xmin>"
        ...     "<ymin>5</ymin><xmax>40</xmax><ymax>9</ymax></bndbox></object>"
        ...     "</annotation>")
        >>> from_voc(folder)[0]["boxes"].tolist()
        [[4.0, 0.0, 9.0, 40.0]]
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`from_voc` expects a folder. Received: folder={str(folder)!r}"
        )
    xml_dir, image_dir = folder / "Annotations", folder / "JPEGImages"
    xml_dir = xml_dir if xml_dir.is_dir() else folder
    image_dir = image_dir if image_dir.is_dir() else xml_dir
    names = _names(folder, xml_dir, split)
    paths = {path.stem: path for path in _pictures(image_dir)}
    files = [_read_xml(xml_dir / f"{name}.xml") for name in names]
    class_names = _class_names(files, class_names, folder)
    records, annotation_id = [], 1
    for image_id, (name, file) in enumerate(zip(names, files), 1):
        path = paths.get(name) or image_dir / file["filename"]
        if not path.is_file():
            raise FileNotFoundError(
                f"`from_voc` found no picture for {name}.xml in {str(image_dir)!r}"
            )
        records.append(
            _make_record(
                path, name, file, class_names, image_id, annotation_id, one_based
            )
        )
        annotation_id += len(records[-1].labels)
    _warn_of_dropped(files, folder)
    warn_of_unusable(records, f"`from_voc` of {str(folder)!r}")
    return DetectionDataset([record.usable() for record in records], class_names)


def _names(folder, xml_dir, split):
    if split is None:
        names = sorted(path.stem for path in xml_dir.glob("*.xml"))
        if not names:
            raise FileNotFoundError(f"`from_voc` found no xml file in {str(xml_dir)!r}")
        return names
    sets = folder / "ImageSets" / "Main"
    path = sets / f"{split}.txt"
    if not path.is_file():
        known = sorted(path.stem for path in sets.glob("*.txt"))
        raise FileNotFoundError(
            f"`split` must be one of the image sets in {str(sets)!r}: {known}. "
            f"Received: split={split!r}"
        )
    # A list for one class has a second column, 1 or -1: its pictures count.
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    missing = [name for name in names if not (xml_dir / f"{name}.xml").is_file()]
    if missing:
        raise FileNotFoundError(
            f"`from_voc` misses {len(missing)} of the {len(names)} xml files that "
            f"{str(path)!r} lists. First: {missing[:3]}"
        )
    return names


def _pictures(image_dir):
    return (
        path for path in image_dir.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES
    )


def _read_xml(path):
    """One file as a dict: filename, size, and its objects by column."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except xml.etree.ElementTree.ParseError as error:
        raise ValueError(
            f"`from_voc` expects well-formed xml. Received: {str(path)!r} ({error})"
        ) from error
    objects = root.findall("object")
    try:
        boxes = [
            [float(item.findtext(f"bndbox/{key}")) for key in _CORNERS]
            for item in objects
        ]
        size = [int(float(root.findtext(f"size/{key}", "0"))) for key in _SIDES]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Each object needs a `bndbox` of numbers {_CORNERS}, and `size` numbers. "
            f"Received: {str(path)!r} ({error})"
        ) from error
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)
    if not np.isfinite(corners).all():
        raise ValueError(
            f"`bndbox` must be finite numbers. Received: {os.fspath(path)!r}"
        )
    return {
        "path": path,
        "filename": root.findtext("filename", "").strip(),
        "size": tuple(size),
        "corners": corners,
        "names": [item.findtext("name", "").strip() for item in objects],
        "difficult": [
            item.findtext("difficult", "0").strip() == "1" for item in objects
        ],
    }


_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_SIDES = ("height", "width")


def _class_names(files, class_names, folder):
    found = {name: file["path"].name for file in files for name in file["names"]}
    if class_names is None:
        if not found:
            raise ValueError(
                f"`from_voc` found no object in {str(folder)!r}: pass `class_names`"
            )
        return tuple(sorted(found))
    class_names = tuple(class_names)
    unknown = {name: file for name, file in found.items() if name not in class_names}
    if unknown:
        raise ValueError(
            f"Every object must be of one of the `class_names`, {class_names}. "
            f"Received: {unknown} (name: a file that has it). To leave classes out, "
            "name them too and use `dataset.filter(classes=...)`"
        )
    return class_names


def _make_record(path, name, file, class_names, image_id, annotation_id, one_based):
    image_size = file["size"] if min(file["size"]) > 0 else read_image_size(path)
    low, high = file["corners"][:, :2], file["corners"][:, 2:]
    keep = _begins_before_it_ends(file["corners"])
    low = low - 1.0 if one_based else low
    boxes_xywh = np.concatenate([low, high - low], axis=1)[keep]
    return Record(
        image=str(path),
        image_size=image_size,
        image_id=image_id,
        source_id=name,
        file_name=path.name,
        boxes_xywh=boxes_xywh,
        labels=np.asarray([class_names.index(n) for n in file["names"]], int)[keep],
        is_crowd=np.asarray(file["difficult"], bool)[keep],
        area=boxes_xywh[:, 2] * boxes_xywh[:, 3],
        annotation_ids=annotation_id + np.arange(len(boxes_xywh)),
    )


def _begins_before_it_ends(corners):
    # Before the shift to 0: VOC's own smallest box is one pixel, but in the
    # files of today's tools such a box is a slip of the mouse.
    return np.all(corners[:, 2:] > corners[:, :2], axis=1)


def _warn_of_dropped(files, folder):
    bad = [f for f in files if not _begins_before_it_ends(f["corners"]).all()]
    if bad:
        count = sum(int((~_begins_before_it_ends(f["corners"])).sum()) for f in bad)
        warnings.warn(
            f"`from_voc` of {str(folder)!r}: {count} boxes in {len(bad)} files end "
            f"where they begin or before, and are left out. "
            f"First: {[f['path'].name for f in bad[:3]]}",
            stacklevel=3,
        )
