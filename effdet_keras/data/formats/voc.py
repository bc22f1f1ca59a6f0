"""Pascal VOC folders: to a dataset, and from one."""

import dataclasses
import pathlib
import xml.etree.ElementTree

import numpy as np

from effdet_keras._internal.whole_files import new_folder
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.folder_writing import (
    image_stems,
    named_splits,
    write_images,
)
from effdet_keras.data.formats.record_building import (
    are_coordinates,
    check_size,
    choose_classes,
    find_image_size,
    finish_records,
    label_boxes,
    plain_record,
    read_text,
)
from effdet_keras.data.formats.sidecar import FIELDS, read_sidecar, write_sidecar
from effdet_keras.data.problems import Problems
from effdet_keras.images import IMAGE_SUFFIXES

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_KEPT = tuple(field for field in FIELDS if field != "is_crowd")  # VOC has difficult
_DECIMALS = 4  # of a pixel


def from_voc(folder, split=None, *, class_names=None, one_based=True, on_error="raise"):
    """Reads a dataset in Pascal VOC's form: one xml file an image.

    Expects `Annotations/NAME.xml` beside `JPEGImages/NAME.jpg` (or any other
    format), and for `split` the list `ImageSets/Main/SPLIT.txt`. A folder in
    which xml files and images lie side by side is read as well. The image
    is found by the name of its xml file, and only if there is none by the
    `filename` inside, which is often out of date.

    VOC counts pixels from 1 and includes the last: a box from `xmin` to
    `xmax` covers `xmin - 1` to `xmax` here. A box that ends where it begins,
    or before, is an error of annotation: it is left out, with a warning that
    counts them. Difficult objects become crowds: not trained on, and ignored
    in evaluation, as VOC ignores them.

    Args:
        folder: folder of the dataset, such as `VOCdevkit/VOC2012`.
        split: name of an image set, such as `"train"`; None takes every xml.
        class_names: names in the order of the labels: for validation pass
            those of training. None takes the names found, sorted.
        one_based: whether coordinates count from 1. Pass False for tools
            that write the corners of the box, from 0.
        on_error: "raise" tells of everything that is wrong, at once; "skip"
            leaves it out, warns, and keeps it in `dataset.problems`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the
        names; `source_id` is the name.

    Raises:
        FileNotFoundError: If the folder, the split, an xml or an image is
            missing.
        ValueError: If there is no object at all, or with "raise" if an xml
            cannot be read, a box is not four numbers in pixels, or a name is
            not in `class_names`.

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
    reader = f"`from_voc` of {str(folder)!r}"
    problems = Problems(reader, on_error)
    xml_dir, image_dir = folder / "Annotations", folder / "JPEGImages"
    xml_dir = xml_dir if xml_dir.is_dir() else folder
    image_dir = image_dir if image_dir.is_dir() else xml_dir
    names = _names(folder, xml_dir, split, problems)
    files = [_read_xml(xml_dir / f"{name}.xml", problems) for name in names]
    files = [file for file in files if file is not None]
    sidecar = read_sidecar(folder)
    found = sorted({name for file in files for name in file["names"]})
    class_names, category_ids = choose_classes(
        found, class_names, sidecar, reader, problems
    )
    labels = label_boxes(
        [(file["path"].name, file["names"]) for file in files], class_names, problems
    )
    # In the files of today's tools a box of one pixel is a slip of the mouse;
    # in those that `write_voc` wrote it is a thin box.
    shift = 1.0 if one_based else 0.0
    gap = 0.0 if sidecar is None else -shift
    paths = _images(image_dir)
    records = []
    for file, file_labels in zip(files, labels):
        record = _make_record(file, file_labels, image_dir, paths, shift, gap, problems)
        if record is not None:
            records.append(record)
    records = finish_records(
        records,
        problems,
        source=folder,
        sidecar=sidecar,
        split=split,
        names=[record.source_id for record in records],
        class_names=class_names,
        fields=_KEPT,
    )
    found = problems.finish()
    return DetectionDataset(records, class_names, category_ids, problems=found)


def voc_splits(folder):
    """Finds the image sets of a VOC folder.

    Args:
        folder: folder of the dataset.

    Returns:
        Sorted list of str, without the lists of single classes, such as
        `cat_train` beside `train`.

    Example:
        >>> voc_splits("nowhere")
        []
    """
    names = {path.stem for path in _sets(pathlib.Path(folder)).glob("*.txt")}
    return sorted(n for n in names if n.rpartition("_")[2] not in names - {n})


def _sets(folder):
    return folder / "ImageSets" / "Main"


def _names(folder, xml_dir, split, problems):
    if split is None:
        names = sorted(path.stem for path in xml_dir.glob("*.xml"))
        if not names:
            raise FileNotFoundError(f"`from_voc` found no xml file in {str(xml_dir)!r}")
        return names
    path = _sets(folder) / f"{split}.txt"
    if not path.is_file():
        raise FileNotFoundError(
            f"`split` must be one of the image sets in {str(path.parent)!r}: "
            f"{voc_splits(folder)}. Received: split={split!r}"
        )
    lines = map(str.strip, read_text(path).splitlines())
    there = {path.stem for path in xml_dir.glob("*.xml")}
    # A list for one class has a second column, 1 or -1: its images count.
    listed = [line if line in there else line.split()[0] for line in lines if line]
    names = list(dict.fromkeys(listed))
    missing = [name for name in names if name not in there]
    if missing:
        problems.add(
            "unreadable annotation",
            path,
            f"{len(missing)} of the {len(names)} xml files that it lists are "
            f"missing, first {missing[:3]}",
        )
    return [name for name in names if name in there]


def _images(image_dir):
    """The path of each image by its name without suffix."""
    return {
        path.stem: path
        for path in sorted(image_dir.iterdir())
        if path.suffix.lower() in IMAGE_SUFFIXES
    }


def _read_xml(path, problems):
    """One file as a dict: filename, size, and its objects by column."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except _UNREADABLE as error:
        problems.add("unreadable annotation", path.name, f"no well-formed xml: {error}")
        return None
    for element in root.iter():  # some tools write a namespace
        element.tag = element.tag.rpartition("}")[2]
    if root.tag != "annotation":
        detail = f"its first element is <{root.tag[:40]}>, not <annotation>"
        problems.add("unreadable annotation", path.name, detail)
        return None
    objects = [(item, _corners(item)) for item in root.findall("object")]
    for item, corners in objects:
        if corners is None:
            texts = [(item.findtext(f"bndbox/{key}") or "")[:20] for key in _CORNERS]
            detail = f"`bndbox` is not four finite numbers {_CORNERS}: {texts}"
            problems.add("bad box", path.name, detail)
    objects = [(item, corners) for item, corners in objects if corners is not None]
    return {
        "path": path,
        "filename": root.findtext("filename", "").strip(),
        "size": check_size(_int(root, "size/height"), _int(root, "size/width")),
        "corners": np.array([corners for _, corners in objects]).reshape(-1, 4),
        "names": [item.findtext("name", "").strip() for item, _ in objects],
        "difficult": [
            item.findtext("difficult", "0").strip() == "1" for item, _ in objects
        ],
    }


# ElementTree of a file of any content at all.
_UNREADABLE = (xml.etree.ElementTree.ParseError, ValueError, LookupError)


def _corners(item):
    try:
        corners = [float(item.findtext(f"bndbox/{key}", "")) for key in _CORNERS]
    except ValueError:
        return None
    return corners if are_coordinates(np.array(corners)) else None


def _int(root, key):
    try:
        return int(float(root.findtext(key, "0")))
    except (ValueError, OverflowError):
        return 0  # as a missing one: the image has its own


def _make_record(file, labels, image_dir, paths, shift, gap, problems):
    name = file["path"].stem
    path = paths.get(name) or image_dir / (file["filename"] or f"{name}.jpg")
    image_size = find_image_size(path, file["size"], problems)
    if image_size is None:
        return None
    low, high = file["corners"][:, :2], file["corners"][:, 2:]
    real = np.all(high - low > gap, axis=1)
    for corners in file["corners"][~real].tolist():
        detail = "ends where it begins or before: {:g}, {:g} to {:g}, {:g}"
        problems.add("empty box", file["path"].name, detail.format(*corners))
    low = low - shift
    record = plain_record(
        path,
        image_size,
        np.concatenate([low, high - low], axis=1),
        labels,
        source_id=name,
        file_name=path.name,
    )
    record = dataclasses.replace(record, is_crowd=file["difficult"])
    return record if real.all() else record.select(real)


def write_voc(datasets, folder):
    """Writes a new folder in Pascal VOC's form.

    `Annotations/NAME.xml`, `JPEGImages/NAME.jpg` or `.png`, and
    `ImageSets/Main/SPLIT.txt`. Coordinates count from 1, as `from_voc` takes
    them; a box that does not end at whole pixels has decimals. Crowds become
    difficult objects. Boxes without an area in their image are left out.
    `effdet_keras.json` keeps ids, file names, areas and classes.

    Args:
        datasets: `DetectionDataset`, or dict of split name to one.
        folder: folder to make; it appears once it is complete.

    Returns:
        `None`.

    Raises:
        FileExistsError: If the folder is there.
        ValueError: If splits differ in their classes, or an image cannot be
            decoded.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_voc(dataset, folder)
        >>> print((folder / "Annotations" / "000000000001.xml").read_text())
        <annotation>
        ...
            <bndbox>
              <xmin>9</xmin>
              <ymin>5</ymin>
              <xmax>40</xmax>
              <ymax>20</ymax>
            </bndbox>
        ...
        >>> from_voc(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    datasets = named_splits(datasets, usable=True)
    # All images lie in one folder: their names must differ over all splits.
    stems = iter(image_stems([r for d in datasets.values() for r in d.records]))
    names = {split: [next(stems) for _ in d.records] for split, d in datasets.items()}
    with new_folder(folder) as partial:
        for part in ("Annotations", "ImageSets/Main"):
            (partial / part).mkdir(parents=True)
        for split, dataset in datasets.items():
            files = write_images(dataset.records, partial / "JPEGImages", names[split])
            for name, file, record in zip(names[split], files, dataset.records):
                text = _to_xml(record, file, dataset.class_names)
                path = partial / "Annotations" / f"{name}.xml"
                path.write_text(text, encoding="utf-8")
            text = "".join(f"{name}\n" for name in names[split])
            (_sets(partial) / f"{split}.txt").write_text(text, encoding="utf-8")
        write_sidecar(partial, datasets, names)


def _to_xml(record, file_name, class_names):
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
            _add(box, key, _decimal(value))
    xml.etree.ElementTree.indent(root)
    return xml.etree.ElementTree.tostring(root, encoding="unicode")


def _add(parent, tag, text=None):
    element = xml.etree.ElementTree.SubElement(parent, tag)
    element.text = text
    return element


def _decimal(value):
    return f"{value:.{_DECIMALS}f}".rstrip("0").rstrip(".")
