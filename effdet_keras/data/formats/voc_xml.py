"""One xml file of Pascal VOC: read with its objects, and written."""

import xml.etree.ElementTree

import numpy as np

from effdet_keras.data.formats.record_building import are_coordinates, check_size

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_DECIMALS = 4  # of a pixel


def read_xml(path, problems):
    """Reads a file.

    Args:
        path: `pathlib.Path` of the file.
        problems: `Problems`, for a file or a box that cannot be read.

    Returns:
        Dict of `path`; `filename`, str, of the image; `size`, `(height, width)` or
        None; and of its objects `corners` `[n, 4]`: left, top, right, bottom as in
        the file; `names`, list of str; `difficult`, list of bool. None if the file
        cannot be read.
    """
    try:
        root = xml.etree.ElementTree.fromstring(path.read_bytes())
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
        elif not _name(item):
            detail = f"the object at {corners} has no `name`"
            problems.add("unreadable annotation", path.name, detail)
    objects = [(item, c) for item, c in objects if c is not None and _name(item)]
    return {
        "path": path,
        "filename": root.findtext("filename", "").strip(),
        "size": check_size(_int(root, "size/height"), _int(root, "size/width")),
        "corners": np.array([corners for _, corners in objects]).reshape(-1, 4),
        "names": [_name(item) for item, _ in objects],
        "difficult": [
            item.findtext("difficult", "0").strip() == "1" for item, _ in objects
        ],
    }


# ElementTree of a file of any content at all.
_UNREADABLE = (xml.etree.ElementTree.ParseError, ValueError, LookupError)


def _name(item):
    return item.findtext("name", "").strip()


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


def to_xml(record, file_name, class_names):
    """Returns the text of the file of a `Record`: corners in pixels from 1."""
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
