"""Draws the effect of each augmentation on blood cells, for docs/augmentation.md.

python benchmarks/draw_augmentations.py --out docs/images/augmentation.jpg
"""

import argparse
import pathlib

import numpy as np
from PIL import Image, ImageDraw

import effdet_keras as ek

DATA = pathlib.Path(ek.__file__).parent / "data" / "blood_cells"
COLUMNS = 4
MARGIN = 6  # pixels between images
CAPTION = 20  # pixels above an image
SEED = 21  # a seed with which each of them has an effect


def examples_of(dataset, count):
    """Returns the first images that have boxes of all classes, as examples."""
    found = []
    for index in range(len(dataset)):
        example = dataset[index]
        if len(set(np.asarray(example["labels"]).tolist())) == len(dataset.class_names):
            found.append(example)
        if len(found) == count:
            return found
    raise SystemExit(f"{DATA}: fewer than {count} images show all classes")


def panels(dataset):
    """Yields captions and images with boxes: the original, then one per name."""
    examples = examples_of(dataset, 4)
    yield "as it is", examples[0]
    for number, (name, make) in enumerate(ek.augment.NAMES.items()):
        augment = make()
        given = examples[0]
        if augment.num_images > 1:
            given = examples[: augment.num_images]
        yield name, augment(given, [SEED, number])


def grid_of(drawn, height, width):
    """Returns one image of all panels, each at the upper left of its cell."""
    rows = -(-len(drawn) // COLUMNS)
    step_y, step_x = height + CAPTION + MARGIN, width + MARGIN
    grid = Image.new("RGB", (COLUMNS * step_x - MARGIN, rows * step_y), "white")
    pen = ImageDraw.Draw(grid)
    for i, (caption, pixels) in enumerate(drawn):
        y, x = i // COLUMNS * step_y, i % COLUMNS * step_x
        pen.text((x + 2, y + 3), caption, fill="black", font_size=13)
        panel = Image.fromarray(pixels)
        panel.thumbnail((width, height))
        grid.paste(panel, (x, y + CAPTION))
    return grid


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="docs/images/augmentation.jpg")
    options = parser.parse_args()
    dataset = ek.data.from_coco(DATA / "train.json", DATA / "train")
    drawn = [
        (
            caption,
            ek.visualize.draw_boxes(
                np.asarray(example["image"]),
                np.asarray(example["boxes"]),
                np.asarray(example["labels"]),
            ),
        )
        for caption, example in panels(dataset)
    ]
    height, width, _ = drawn[0][1].shape
    grid = grid_of(drawn, height, width)
    grid.save(options.out, quality=80, optimize=True)
    print(options.out, grid.size, pathlib.Path(options.out).stat().st_size)


if __name__ == "__main__":
    main()
