"""What was found in images and frames, as a COCO file that can be read back."""

import dataclasses
import json
import os

from effdet_keras._internal.whole_files import replacing
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.detections import Detections
from effdet_keras.predictor import Predictor


class COCOFile:
    """Collects detections and writes them as one COCO json file with scores.

    Args:
        predictor: `Predictor`, whose classes become the categories.
    """

    def __init__(self, predictor: Predictor) -> None:
        count = predictor.config.num_classes
        self._category_ids = category_ids_or_default(predictor.category_ids, count)
        names = predictor.class_names or map(str, range(count))
        self._categories = [
            {"id": category_id, "name": name}
            for category_id, name in zip(self._category_ids, names)
        ]
        self._images, self._annotations = [], []

    def __len__(self) -> int:
        """The number of images."""
        return len(self._images)

    def add(self, detections: Detections, file_name: str, **more) -> None:
        """Adds an image and what was found in it, but for boxes without area.

        Args:
            detections: `Detections` with its `image` as an array.
            file_name: string, unique in this file.
            **more: further keys of the image's record.
        """
        image_id = len(self._images) + 1
        height, width = detections.image.shape[:2]
        size = {"width": width, "height": height}
        self._images.append({"id": image_id, "file_name": file_name, **more, **size})
        detections = dataclasses.replace(
            detections, image_id=image_id, category_ids=self._category_ids
        )
        for record in detections.to_coco():
            width, height = record["bbox"][2:]
            if width <= 0 or height <= 0:  # found in the padding beside the image
                continue
            number = len(self._annotations) + 1
            fields = {"id": number, "area": width * height, "iscrowd": 0}
            self._annotations.append({**record, **fields})

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file, whole or not at all."""
        content = {
            "images": self._images,
            "annotations": self._annotations,
            "categories": self._categories,
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
