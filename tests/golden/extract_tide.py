"""Makes `tide.npz`: random detections, and what TIDE's own program says of them.

Run where tidecv is installed; see PROVENANCE-tide.md.
"""

import pathlib

import numpy as np

NUM_CASES, NUM_IMAGES, NUM_CLASSES = 6, 20, 3
KINDS = {
    "classification": "Cls",
    "localization": "Loc",
    "both": "Both",
    "duplicate": "Dupe",
    "background": "Bkg",
    "missed": "Miss",
    "false positives": "FalsePos",
    "false negatives": "FalseNeg",
}


def random_boxes(rng, count):
    corner, side = rng.uniform(0, 80, (count, 2)), rng.uniform(8, 40, (count, 2))
    return np.concatenate([corner, corner + side], axis=1)  # yxyx


def random_case(rng):
    """Rows `(image, label, y1, x1, y2, x2)` and the same with a score."""
    truth, found = [], []
    for image in range(NUM_IMAGES):
        count = rng.integers(0, 7)
        boxes = random_boxes(rng, count)
        labels = rng.integers(0, NUM_CLASSES, count)
        truth += zip([image] * count, labels, *boxes.T)
        # Some of the objects, once or twice, with boxes and classes that may be off.
        rows = np.flatnonzero(rng.random(2 * count) < 0.6) % max(count, 1)
        near = boxes[rows] + rng.normal(0, 4, (len(rows), 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        wrong = rng.integers(0, NUM_CLASSES, len(rows))
        near_labels = np.where(rng.random(len(rows)) < 0.3, wrong, labels[rows])
        extra = rng.integers(0, 5)
        found_boxes = np.concatenate([near, random_boxes(rng, extra)])
        found_labels = np.append(near_labels, rng.integers(0, NUM_CLASSES, extra))
        scores = rng.random(len(found_boxes))
        found += zip([image] * len(scores), found_labels, *found_boxes.T, scores)
    return np.array(truth, float), np.array(found, float)


def xywh(y_min, x_min, y_max, x_max):
    return [x_min, y_min, x_max - x_min, y_max - y_min]


def judged_by_tide(truth_rows, found_rows):
    """AP, and of each kind the number of errors and the AP they cost."""
    # Here, because doctests are looked for where it is not installed.
    from tidecv import TIDE, Data

    truth, found = Data("truth"), Data("found")
    for image in range(NUM_IMAGES):
        truth.add_image(image, str(image))
        found.add_image(image, str(image))
    for image, label, *box in truth_rows.tolist():
        truth.add_ground_truth(int(image), int(label), xywh(*box))
    for image, label, *box, score in found_rows.tolist():
        found.add_detection(int(image), int(label), score, xywh(*box))
    run = TIDE(pos_threshold=0.5, background_threshold=0.1).evaluate(
        truth, found, mode=TIDE.BOX
    )
    gains = {**run.fix_main_errors(), **run.fix_special_errors()}
    gains = {kind.short_name: gain / 100 for kind, gain in gains.items()}
    counts = {kind.short_name: count for kind, count in run.count_errors().items()}
    return (
        run.ap / 100,
        [counts.get(name, -1) for name in KINDS.values()],
        [gains[name] for name in KINDS.values()],
    )


def main():
    rng, arrays = np.random.default_rng(20081), {"kinds": np.array(list(KINDS))}
    for case in range(NUM_CASES):
        truth, found = random_case(rng)
        ap, counts, gains = judged_by_tide(truth, found)
        arrays |= {f"{case}/truth": truth, f"{case}/found": found}
        arrays |= {f"{case}/ap": ap, f"{case}/counts": counts, f"{case}/gains": gains}
        print(case, len(truth), len(found), ap, counts, np.round(gains, 4))
    np.savez_compressed(pathlib.Path(__file__).parent / "tide.npz", **arrays)


if __name__ == "__main__":
    main()
