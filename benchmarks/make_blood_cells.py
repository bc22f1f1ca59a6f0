"""Makes the dataset of `effdet-keras demo` from the blood-cell images.

    python benchmarks/make_blood_cells.py BCCD_Dataset/BCCD OUT

Reads Pascal VOC (https://github.com/Shenggan/BCCD_Dataset, 640x480). Writes images of
half the size, with one COCO JSON file for each of the splits `train`, `val` and `test`,
which are the splits of the source. Boxes are those that `from_voc` reads, halved.
"""

import argparse
import json
import pathlib

from PIL import Image

import effdet_keras as ek

SPLITS = ("train", "val", "test")
QUALITY = 72  # of the JPEG files, which then take 2.4 MB together


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", help="with Annotations, JPEGImages and ImageSets")
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    options = parser.parse_args()
    for split in SPLITS:
        dataset = ek.data.from_voc(options.source, split)
        (options.out / split).mkdir(parents=True, exist_ok=True)
        content = halved(dataset.to_coco())
        for entry, example in zip(content["images"], dataset, strict=True):
            small = Image.fromarray(example["image"]).resize(
                (entry["width"], entry["height"]), Image.Resampling.LANCZOS
            )
            path = options.out / split / entry["file_name"]
            small.save(path, quality=QUALITY, optimize=True)
        text = json.dumps(content, separators=(",", ":"))
        (options.out / f"{split}.json").write_text(text + "\n", encoding="utf-8")
        print(split, dataset)


def halved(content):
    """Returns COCO annotations for images of half the height and width."""
    for entry in content["images"]:
        entry["height"], entry["width"] = entry["height"] // 2, entry["width"] // 2
    for entry in content["annotations"]:
        entry["bbox"] = [short(value / 2) for value in entry["bbox"]]
        entry["area"] = short(entry["area"] / 4)
    return content


def short(value):
    """Returns a whole number without its fraction: `12`, not `12.0`."""
    return int(value) if value == int(value) else value


if __name__ == "__main__":
    main()
