"""Writes detections as pre-annotations, in the format of a labelling tool.

Each writer takes a folder, the images in the order of their ranks, and the classes. It
returns instructions on what to do with the files, in which `FOLDER` stands for the
folder. The images themselves are in the subfolder `images/`.
"""

from __future__ import annotations

import json
import pathlib
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from effdet_keras._internal.whole_files import write_text
from effdet_keras.detect.detections import Detections

IMAGES = "images"
FOLDER = "{folder}"  # stands for the folder in the instructions of a writer


class ImageToLabel(NamedTuple):
    """An image in the folder, and its detections."""

    name: str  # its file name in `images/`
    size: tuple[int, int]  # (height, width), upright
    detections: Detections
    gain: float

    def objects(self) -> list[tuple[str, float, tuple[float, float, float, float]]]:
        """Returns class name, score, and left, top, right, bottom in pixels per box."""
        height, width = self.size
        found = self.detections
        result = []
        for name, score, box in zip(found.names, found.scores, found.boxes):
            top, left, bottom, right = (float(value) for value in box)
            corners = (
                min(max(left, 0.0), width),
                min(max(top, 0.0), height),
                min(max(right, 0.0), width),
                min(max(bottom, 0.0), height),
            )
            if corners[2] > corners[0] and corners[3] > corners[1]:
                result.append((name, float(score), corners))
        return result


class Classes(NamedTuple):
    """The classes of a model."""

    names: tuple[str, ...]
    category_ids: tuple[int, ...]


def write_label_studio(folder, images, classes, model, address=None):
    """Writes tasks of Label Studio with predictions, and a labelling configuration.

    Boxes are in percent of the image (https://labelstud.io/guide/predictions).
    """
    if address is None:
        address = f"/data/local-files/?d={IMAGES}/"
    # For a bucket, Label Studio takes the rest of the address as the key, unchanged.
    is_url = address.startswith(("/", "http://", "https://"))
    tasks = []
    for rank, image in enumerate(images, start=1):
        height, width = image.size
        results = []
        for number, (name, score, (left, top, right, bottom)) in enumerate(
            image.objects(), start=1
        ):
            value = {
                "x": 100 * left / width,
                "y": 100 * top / height,
                "width": 100 * (right - left) / width,
                "height": 100 * (bottom - top) / height,
                "rotation": 0,
                "rectanglelabels": [name],
            }
            results.append(
                {
                    "id": f"box{number}",
                    "type": "rectanglelabels",
                    "from_name": "label",
                    "to_name": "image",
                    "original_width": width,
                    "original_height": height,
                    "image_rotation": 0,
                    "score": round(score, 4),
                    "value": value,
                }
            )
        scores = [result["score"] for result in results]
        prediction = {
            "model_version": model,
            "score": round(sum(scores) / max(len(scores), 1), 4),
            "result": results,
        }
        name = urllib.parse.quote(image.name) if is_url else image.name
        data = {
            "image": address + name,
            "rank": rank,
            "gain": round(image.gain, 4),
        }
        tasks.append({"data": data, "predictions": [prediction]})
    _write_json(folder / "tasks.json", tasks)
    view = ET.Element("View")
    ET.SubElement(view, "Image", name="image", value="$image")
    labels = ET.SubElement(view, "RectangleLabels", name="label", toName="image")
    for name in classes.names:
        ET.SubElement(labels, "Label", value=name)
    _write_xml(folder / "label_config.xml", view)
    return (
        "Label Studio: paste label_config.xml into Settings, Labeling Interface, Code; "
        "import tasks.json; sort by `rank`. The images are read from this folder if "
        "Label Studio was started with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true "
        f"and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={FOLDER}"
    )


def write_cvat(folder, images, classes, model, address=None):
    """Writes a file "CVAT for images 1.1", and the labels of a new task.

    Boxes are corners in pixels
    (https://docs.cvat.ai/docs/manual/advanced/xml_format).
    """
    root = ET.Element("annotations")
    ET.SubElement(root, "version").text = "1.1"
    task = ET.SubElement(ET.SubElement(root, "meta"), "task")
    ET.SubElement(task, "name").text = f"label-next of {model}"
    ET.SubElement(task, "size").text = str(len(images))
    ET.SubElement(task, "mode").text = "annotation"
    labels = ET.SubElement(task, "labels")
    for name in classes.names:
        label = ET.SubElement(labels, "label")
        ET.SubElement(label, "name").text = name
        ET.SubElement(label, "attributes")
    for number, image in enumerate(images):
        height, width = image.size
        item = ET.SubElement(
            root,
            "image",
            id=str(number),
            name=image.name,
            width=str(width),
            height=str(height),
        )
        for name, _, (left, top, right, bottom) in image.objects():
            ET.SubElement(
                item,
                "box",
                label=name,
                source="auto",
                occluded="0",
                xtl=f"{left:.2f}",
                ytl=f"{top:.2f}",
                xbr=f"{right:.2f}",
                ybr=f"{bottom:.2f}",
                z_order="0",
            )
    _write_xml(folder / "annotations.xml", root)
    raw = [{"name": name, "attributes": []} for name in classes.names]
    _write_json(folder / "labels.json", raw)
    return (
        "CVAT: create a task with the files of images/ and, in the tab Raw of its "
        "labels, labels.json; then Actions, Upload annotations, CVAT 1.1: "
        "annotations.xml"
    )


def write_labelme(folder, images, classes, model, address=None):
    """Writes a JSON file of LabelMe beside each image.

    Boxes are two corners in pixels. The description of each box has its score.
    """
    for rank, image in enumerate(images, start=1):
        height, width = image.size
        shapes = [
            {
                "label": name,
                "points": [[left, top], [right, bottom]],
                "group_id": None,
                "description": f"score {score:.2f} of {model}",
                "shape_type": "rectangle",
                "flags": {},
            }
            for name, score, (left, top, right, bottom) in image.objects()
        ]
        content = {
            "version": "5.5.0",
            "flags": {},
            "shapes": shapes,
            "imagePath": image.name,
            "imageData": None,
            "imageHeight": height,
            "imageWidth": width,
            "rank": rank,
            "gain": round(image.gain, 4),
        }
        _write_json((folder / IMAGES / image.name).with_suffix(".json"), content)
    write_text(folder / "labels.txt", "".join(f"{name}\n" for name in classes.names))
    return (
        f"LabelMe: labelme {FOLDER}/{IMAGES} --labels {FOLDER}/labels.txt --nodata "
        "--autosave; ranking.csv lists the images in the order of their ranks"
    )


def write_coco(folder, images, classes, model, address=None):
    """Writes one COCO file, with a `score` in each annotation.

    Boxes are left, top, width and height in pixels.
    """
    id_of = dict(zip(classes.names, classes.category_ids))
    rows, annotations = [], []
    for image_id, image in enumerate(images, start=1):
        height, width = image.size
        rows.append(
            {"id": image_id, "file_name": image.name, "height": height, "width": width}
        )
        for name, score, (left, top, right, bottom) in image.objects():
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": id_of[name],
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": 0,
                    "score": round(score, 4),
                }
            )
    content = {
        "info": {"description": f"pre-annotations of {model}, the first image first"},
        "images": rows,
        "annotations": annotations,
        "categories": [{"id": id_of[name], "name": name} for name in classes.names],
    }
    _write_json(folder / "annotations.json", content)
    return "COCO: annotations.json, and the images in images/"


Writer = Callable[[pathlib.Path, Sequence[ImageToLabel], Classes, str, str | None], str]
# The writers, by the names of the tools.
TOOLS: dict[str, Writer] = {
    "labelstudio": write_label_studio,
    "cvat": write_cvat,
    "labelme": write_labelme,
    "coco": write_coco,
}


def _write_json(path: pathlib.Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _write_xml(path: pathlib.Path, root: ET.Element) -> None:
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')
