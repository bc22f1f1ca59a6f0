"""Generated JPEG files with boxes, as large as COCO's images."""

import json
import pathlib

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 640, 480
_BOXES = 7  # objects per image, as in COCO
_QUALITY = 90


def write_images(folder, count):
    """Writes JPEG files of 640 x 480 and `truth.json`; returns the latter's path."""
    folder = pathlib.Path(folder)
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for image_id in range(1, count + 1):
        name = f"{image_id}.jpg"
        images.append(
            {"id": image_id, "file_name": name, "width": WIDTH, "height": HEIGHT}
        )
        # Smooth patches with some noise take as long to decode as a photo.
        coarse = rng.integers(0, 256, (12, 16, 3), dtype="uint8")
        image = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.BICUBIC)
        noisy = np.asarray(image) + rng.normal(0, 8, (HEIGHT, WIDTH, 3))
        pixels = noisy.clip(0, 255).astype("uint8")
        Image.fromarray(pixels).save(folder / name, quality=_QUALITY)
        for _ in range(_BOXES):
            x, y = rng.uniform(0, (WIDTH / 2, HEIGHT / 2))
            w, h = rng.uniform(16, (WIDTH / 2, HEIGHT / 2))
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": int(rng.integers(1, 4)),
                    "bbox": [x, y, w, h],
                    "area": w * h,
                    "iscrowd": 0,
                }
            )
    categories = [{"id": i, "name": f"class {i}"} for i in (1, 2, 3)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    path = folder / "truth.json"
    path.write_text(json.dumps(truth))
    return path
