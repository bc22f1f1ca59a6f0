"""Which fraction of wrong annotations does `inspect RUN DATA --suspects` find?

    python benchmarks/suspects_found.py blood-cells DATA
    python benchmarks/suspects_found.py DATA --steps 400 --seeds 0 1

Of the annotations of `train`, 10 % are deleted, 10 % are moved by a quarter to a half
of their sides, and 5 % get another class, at random. Detectors of three folds are
trained on the result, and `find_doubts` lists what they doubt in the images on which
they were not trained.

`found` is the largest fraction of damaged annotations at the start of that list, while
at least 80 % of the entries there are damaged ones. An error that was in the dataset
before counts as a false alarm. The backbone is frozen (`frozen_backbone.py`); with
`--whole`, the default recipe trains whole models. Prints a JSON line for each dataset
and seed.
"""

import argparse
import collections
import dataclasses
from typing import NamedTuple

import numpy as np
from frozen_backbone import add_arguments, boxes_of, print_lines, read_arguments

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.extras.data_check.doubts import find_doubts
from effdet_keras.extras.data_check.suspects import LEAST_SUSPICION, fold_indices

DELETED, MOVED, RENAMED = 0.10, 0.10, 0.05
MOVED_BY = 0.25, 0.5  # of the sides of a box
PRECISION = 0.8


class Damage(NamedTuple):
    """One annotation that was damaged; boxes are `yxyx` in pixels."""

    kind: str
    image_id: int
    true_box: np.ndarray
    new_box: np.ndarray | None  # None if it was deleted


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add_arguments(parser, steps=400)
    parser.add_argument("--folds", type=int, default=3)
    options = read_arguments(parser)

    def run(backbone, train, _, seed):
        found = judge(backbone, train, seed, options.steps, options.folds)
        return count(*found)

    print_lines(options, run)


def judge(backbone, train, seed, steps, num_folds=3):
    """Damages annotations; detects in each image with a detector of the other folds."""
    dataset = backbone.dataset
    records, damages = damage(dataset.records, train, dataset.num_classes, seed)
    damaged = DetectionDataset(records, dataset.class_names, dataset.category_ids)
    results = []
    for fold in fold_indices(damaged.subset(train), num_folds, seed):
        others = np.setdiff1d(train, train[fold])
        backbone.train(others, steps, seed, records=records)
        results += backbone.results(train[fold], records)
    return results, damages


def damage(records, train, num_classes, seed):
    """Returns records with damaged annotations in those of `train`, and the damages."""
    random, records, damages = np.random.default_rng(seed), list(records), []
    shares = {"deleted": DELETED, "moved": MOVED, "renamed": RENAMED}
    if num_classes == 1:
        del shares["renamed"]  # there is no other class
    places = [(i, k) for i in train for k in range(len(records[i].labels))]
    chosen = random.permutation(len(places))
    kind_of = {}
    for kind, share in shares.items():
        number = round(share * len(places))
        kind_of |= {places[place]: kind for place in chosen[:number]}
        chosen = chosen[number:]
    for index in sorted({index for index, _ in kind_of}):
        record = records[index]
        boxes, labels = record.boxes_xywh.copy(), record.labels.copy()
        keep = np.ones(len(labels), bool)
        for k in range(len(labels)):
            kind = kind_of.get((index, k))
            if kind == "deleted":
                keep[k] = False
            elif kind == "moved":
                boxes[k] = moved(boxes[k], record.image_size, random)
            elif kind == "renamed":
                labels[k] = (labels[k] + random.integers(1, num_classes)) % num_classes
        changed = {"boxes_xywh": boxes, "labels": labels}
        for name in ("is_crowd", "area", "annotation_ids"):
            changed[name] = getattr(record, name)
        changed = {name: value[keep] for name, value in changed.items()}
        records[index] = dataclasses.replace(record, shapes=None, **changed)
        new = boxes[:, [1, 0, 3, 2]] + np.pad(boxes[:, [1, 0]], ((0, 0), (2, 0)))
        for k, true_box in enumerate(boxes_of(record)):
            if kind := kind_of.get((index, k)):
                new_box = new[k] if keep[k] else None
                damages.append(Damage(kind, record.image_id, true_box, new_box))
    return records, damages


def moved(box, image_size, random):
    """Returns a box `xywh` moved within the image, with an IoU of 0.14 to 0.6."""
    height, width = image_size
    for _ in range(100):
        shift = random.uniform(*MOVED_BY, 2) * random.choice([-1, 1], 2)
        x, y = np.clip(box[:2] + shift * box[2:], 0, [width, height] - box[2:])
        if (np.abs([x, y] - box[:2]) >= MOVED_BY[0] * box[2:]).any():
            return np.array([x, y, *box[2:]])
    # The box fills the image, so it is shrunk to a corner.
    return np.array([*box[:2], *(box[2:] / 2)])


def count(results, damages):
    """Returns the fraction of damages found at the precision, in all and by kind."""
    suspects = find_doubts(results)
    of_image = collections.defaultdict(list)
    for place, one in enumerate(damages):
        of_image[one.image_id].append((place, one))
    found_by = [found_damages(one, of_image[one.image_id]) for one in suspects]
    is_right = np.array([bool(found) for found in found_by], bool)
    precision = np.cumsum(is_right) / np.arange(1, len(is_right) + 1)
    lengths = np.flatnonzero(precision >= PRECISION)
    length = int(lengths[-1]) + 1 if len(lengths) else 0
    found = set().union(*found_by[:length])
    everything = set().union(*found_by)
    kinds = {}
    for kind in dict.fromkeys(one.kind for one in damages):
        places = {k for k, one in enumerate(damages) if one.kind == kind}
        kinds[kind] = round(len(found & places) / len(places), 3)
    shown = sum(one.suspicion >= LEAST_SUSPICION for one in suspects)
    found_there = set().union(*found_by[:shown])
    return {
        "damaged": len(damages),
        "found": round(len(found) / max(len(damages), 1), 3),
        "found_of": kinds,
        "listed": length,
        "found_in_the_whole_list": round(len(everything) / max(len(damages), 1), 3),
        "whole_list": len(suspects),
        "shown": shown,
        "found_in_what_is_shown": round(len(found_there) / max(len(damages), 1), 3),
        "precision_of_what_is_shown": round(float(is_right[:shown].mean()), 3)
        if shown
        else None,
    }


def found_damages(suspect, damages):
    """Returns the indices of the damages that a suspect shows; empty for a false alarm.

    `damages` has pairs of index and damage, for the damages of the image.
    """
    found = set()
    for place, one in damages:
        if suspect.kind == "missing":  # also at the old place of a moved annotation
            is_found = overlap(suspect.box, one.true_box) >= 0.5
            is_found &= one.kind != "renamed"
        else:
            is_found = one.new_box is not None
            is_found = is_found and np.allclose(suspect.box, one.new_box, atol=0.1)
        if is_found:
            found.add(place)
    return found


def overlap(one, other):
    return float(pairwise_iou(np.array([one]), np.array([other]))[0, 0])


if __name__ == "__main__":
    main()
