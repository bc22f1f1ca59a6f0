"""What was found in one image, as a row of a table."""

from typing import Any

from effdet_keras._internal.optional_imports import pyarrow
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.detections import Detections
from effdet_keras.geometry.letterbox import has_area

# Of each annotation one number or name; those of an image are lists in its row.
_OF_ANNOTATIONS = ("category_id", "label", "bbox", "score")


def categories_of(predictor: Any) -> list[dict]:
    """The classes of a predictor, as a COCO file has them: `id` and `name`."""
    count = predictor.config.num_classes
    ids = category_ids_or_default(predictor.category_ids, count)
    names = predictor.class_names or map(str, range(count))
    return [{"id": id_, "name": name} for id_, name in zip(ids, names)]


def annotations_of(detections: Detections, categories: list[dict]) -> list[dict]:
    """What was found in one image, as COCO has it, but for boxes in the padding.

    Args:
        detections: `Detections`.
        categories: as of `categories_of`.

    Returns:
        List of dicts `category_id`, `label` (its name), `bbox` (`xywh` in pixels) and
        `score`.
    """
    detections = detections[has_area(detections.boxes)]
    found = []
    labels, boxes_yxyx = detections.labels.tolist(), detections.boxes.tolist()
    for label, box, score in zip(labels, boxes_yxyx, detections.scores.tolist()):
        y_min, x_min, y_max, x_max = box
        category = categories[label]
        box = (x_min, y_min, x_max - x_min, y_max - y_min)
        found.append(
            {
                "category_id": category["id"],
                "label": category["name"],
                "bbox": [round(number, 2) for number in box],
                "score": round(score, 6),
            }
        )
    return found


def row_of(name: str, image_size: tuple[int, int], annotations: list[dict]) -> dict:
    """The row of an image that was read; `image_size` is `(height, width)`."""
    height, width = image_size
    lists = {key: [found[key] for found in annotations] for key in _OF_ANNOTATIONS}
    size = {"width": int(width), "height": int(height)}
    return {"file_name": name, **size, **lists, "error": None}


def row_of_error(name: str, error: object) -> dict:
    """The row of an image that could not be read."""
    lists = {key: [] for key in _OF_ANNOTATIONS}
    return {"file_name": name, "width": 0, "height": 0, **lists, "error": str(error)}


def line_of(row: dict) -> dict:
    """A row as a line of JSON has it: a COCO image with its `annotations`.

    Example:
        >>> line_of(row_of("a.jpg", (30, 40), []))
        {'file_name': 'a.jpg', 'width': 40, 'height': 30, 'annotations': []}
        >>> row_of_line(line_of(row_of_error("b.jpg", "no image")))["error"]
        'no image'
    """
    if row["error"] is not None:
        return {"file_name": row["file_name"], "error": row["error"]}
    image = {key: row[key] for key in ("file_name", "width", "height")}
    columns = [row[key] for key in _OF_ANNOTATIONS]
    return {
        **image,
        "annotations": [dict(zip(_OF_ANNOTATIONS, found)) for found in zip(*columns)],
    }


def row_of_line(line: dict) -> dict:
    """The row of a line of JSON; the inverse of `line_of`."""
    if "error" in line:
        return row_of_error(line["file_name"], line["error"])
    size = line["height"], line["width"]
    return row_of(line["file_name"], size, line["annotations"])


def schema():
    """The columns of a Parquet file, or of a table in memory."""
    pa = pyarrow.require("Parquet")
    return pa.schema(
        [
            ("file_name", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("category_id", pa.list_(pa.int64())),
            ("label", pa.list_(pa.string())),
            ("bbox", pa.list_(pa.list_(pa.float32()))),
            ("score", pa.list_(pa.float32())),
            ("error", pa.string()),
        ]
    )


def table_of(rows: list[dict]):
    """Rows as a `pyarrow.Table`."""
    rows = [
        {**row, "file_name": _utf8(row["file_name"]), "error": _utf8(row["error"])}
        for row in rows
    ]
    return pyarrow.require("Parquet").Table.from_pylist(rows, schema=schema())


def _utf8(text):
    """Text that Parquet can hold: names of files may have bytes that are no text."""
    return text and text.encode("utf-8", "backslashreplace").decode()
