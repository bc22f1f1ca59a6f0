"""Detections as what a client asked for: JSON, or the image with the boxes drawn."""

import dataclasses
import io

from PIL import Image

from effdet_keras.detections import Detections
from effdet_keras.images import decode_image
from effdet_keras.serving.limits import Limits

MEDIA_TYPES = {"json": "application/json", "jpeg": "image/jpeg", "png": "image/png"}


def format_wanted(name: str | None, accept: str) -> str | None:
    """The format of an answer, or None if there is none that the client takes.

    Args:
        name: str of the address, such as "json"; it goes before the header.
        accept: str, the header `Accept`.

    Example:
        >>> format_wanted(None, "image/png"), format_wanted(None, "*/*")
        ('png', 'json')
        >>> format_wanted("jpeg", "text/html"), format_wanted("tiff", "*/*")
        ('jpeg', None)
    """
    if name is not None:
        return name if name in MEDIA_TYPES else None
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    for kind in kinds:
        if kind in ("", "*/*", "application/*"):
            return "json"
        if kind == "image/*":
            return "jpeg"
        for known, media_type in MEDIA_TYPES.items():
            if kind == media_type:
                return known
    return None


def as_json(detections: Detections, image_size: tuple[int, int]) -> dict:
    """Detections as plain values; boxes are `xyxy` in pixels of the upright image."""
    objects = [
        {
            "label": name,
            "class": label,
            "score": round(score, 6),
            "box": [round(v, 2) for v in (x_min, y_min, x_max, y_max)],
        }
        for name, label, score, (y_min, x_min, y_max, x_max) in zip(
            detections.names,
            detections.labels.tolist(),
            detections.scores.tolist(),
            detections.boxes.tolist(),
        )
    ]
    height, width = image_size
    answer = {"width": int(width), "height": int(height), "detections": objects}
    if detections.class_map is not None:
        answer["pixel_shares"] = detections.pixel_shares()
    return answer


def as_image(detections: Detections, data: bytes, limits: Limits, kind: str) -> bytes:
    """The file of the image `data` with the boxes drawn, "jpeg" or "png"."""
    image = decode_image(data, **limits.of_image)
    drawn = dataclasses.replace(detections, image=image).draw()
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, format=kind.upper())
    return file.getvalue()
