"""Masks of a report beside the class maps that were found."""

import html

import numpy as np
from PIL import Image

from effdet_keras.data.record import load_example
from effdet_keras.pages.image_tag import fitted, image_tag
from effdet_keras.visualize import draw_class_map


def class_map_gallery(dataset, class_maps):
    """Draws images twice: with their mask, and with what was found.

    Args:
        dataset: `DetectionDataset` with masks.
        class_maps: mapping from image id to the class map that was found, `[H, W]`.

    Returns:
        HTML. An image that cannot be read is left out.
    """
    records = {record.image_id: record for record in dataset.records}
    figures = []
    for image_id, class_map in class_maps.items():
        try:
            example = load_example(records[image_id])
        except (ValueError, OSError, KeyError):
            continue
        image, _ = fitted(example["image"])
        name = records[image_id].name
        drawn = [
            f"<div><small>{title}</small>"
            f"{image_tag(_colored(image, values, dataset), f'{title} of {name}')}</div>"
            for title, values in (("Mask", example["mask"]), ("Found", class_map))
        ]
        figures.append(
            f'<figure><div class="pair">{"".join(drawn)}</div>'
            f"<figcaption><code>{html.escape(name)}</code></figcaption></figure>\n"
        )
    return f'<div class="images">{"".join(figures)}</div>' if figures else ""


def _colored(image, class_map, dataset):
    height, width = image.shape[:2]
    resized = Image.fromarray(np.asarray(class_map, np.uint8)).resize(
        (width, height), Image.Resampling.NEAREST
    )
    return draw_class_map(image, np.asarray(resized), dataset.seg_class_names)
