"""Takes the boxes of the input pipeline out of the reference's golden arrays.

Run from the repository with the folder of the golden arrays as argument; it
writes `d_input_boxes.npz` beside itself. What the arrays are:
`PROVENANCE-data.md`.
"""

import pathlib
import sys

import numpy as np

KEYS = ("draws", "params", "image/shape", "image0/extent", "image_scales")


def main(source):
    arrays = np.load(pathlib.Path(source) / "d_input.npz")
    kept = {key: arrays[key] for key in ("boxes", "classes", "is_crowd", "area")}
    kept["raw_size"] = np.array([636, 1024])
    cases = sorted({key.split("/")[0] for key in arrays.files if "/" in key})
    for case in cases:
        for key in KEYS:
            if f"{case}/{key}" in arrays.files:
                kept[f"{case}/{key}"] = arrays[f"{case}/{key}"]
        truth = arrays[f"{case}/groundtruth_data"].reshape(-1, 100, 7)[0]
        kept[f"{case}/groundtruth_data"] = truth[truth[:, 6] > -1]
    np.savez_compressed(pathlib.Path(__file__).with_name("d_input_boxes.npz"), **kept)


if __name__ == "__main__":
    main(sys.argv[1])
