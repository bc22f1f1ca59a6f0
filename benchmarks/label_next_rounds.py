"""With how many images does `label-next` reach the AP of all images?

    python benchmarks/label_next_rounds.py blood-cells DATA
    python benchmarks/label_next_rounds.py DATA --seeds 0 1 --draw curve.svg

An annotator is simulated. At first, a random 12 % of `train` are labelled. In each
round, a detector is trained on the labelled images, the other images are ranked as
`label-next` ranks them, and the first ones get their true annotations. The rounds end
at 25, 40 and 60 % labelled images. For comparison, random choice labels 12, 25, 50 and
100 %. All trainings have the same number of steps. All are evaluated on `test` after
their last step, and nothing is chosen there. The backbone is frozen
(`frozen_backbone.py`); with `--whole`, the default recipe trains whole models.

Prints a JSON line for each dataset and seed. `share` is the percentage at which the AP
of all images is reached, with linear interpolation between the measurements, or null.
"""

import argparse
import functools
import itertools

import numpy as np
from forecast_error import parts_of
from frozen_backbone import add_arguments, print_lines, read_arguments

from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.extras.label_next.ranking import (
    disagreement_of,
    rank,
    uncertainty_of,
)

ROUNDS = (25, 40, 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add_arguments(parser, steps=200)
    parser.add_argument("--draw", metavar="FILE", help="draw the curves")
    options = read_arguments(parser)
    lines = print_lines(options, functools.partial(run, steps=options.steps))
    if options.draw:
        draw(lines, options.draw)


def run(backbone, train, judge, seed, steps):
    """Runs both ways of choosing on one dataset; returns the line to print."""
    parts = parts_of(backbone, train, seed)
    at_random, ranked = {}, {}
    for percent, part in sorted(parts.items(), reverse=True):
        backbone.train(part, steps, seed)
        at_random[percent] = round(max(backbone.ap(judge)["AP"], 0.0), 4)
    start = min(parts)  # trained last, because it ranks the images of the first round
    labelled, ranked[start] = list(parts[start]), at_random[start]
    for percent in ROUNDS:
        wanted = round(len(train) * percent / 100) - len(labelled)
        labelled += next_images(backbone, train, labelled)[:wanted]
        backbone.train(labelled, steps, seed)
        ranked[percent] = round(max(backbone.ap(judge)["AP"], 0.0), 4)
    return {
        "images": len(train),
        "random": at_random,
        "label-next": ranked,
        "share": share_at(ranked, at_random[100]),
        "random_share": share_at(at_random, at_random[100]),
    }


def next_images(backbone, train, labelled):
    """Returns the indices of unlabelled images, the first one to label first."""
    left = np.setdiff1d(train, labelled).tolist()
    records = backbone.dataset.records
    found, mirrored = backbone.detect(left), backbone.detect(left, mirrored=True)
    disagreement = [
        disagreement_of(one, other, records[i].image_size[1])
        for i, one, other in zip(left, found, mirrored)
    ]
    ranking = rank(
        [uncertainty_of(one) for one in found],
        disagreement,
        hash_images([records[i] for i in left]),
        hash_images([records[i] for i in labelled]),
    )
    return [left[one.index] for one in ranking]


def share_at(aps, wanted):
    """Returns the percentage at which an AP is reached first; None if it is not."""
    percents = sorted(aps)
    for before, after in itertools.pairwise(percents):
        if aps[after] >= wanted:
            gain = aps[after] - aps[before]
            part = (wanted - aps[before]) / gain if gain > 0 else 0.0
            return round(before + max(part, 0.0) * (after - before))
    return None


def draw(lines, path):
    """Draws the mean curves of all datasets side by side."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line["dataset"] for line in lines))
    figure = Figure(figsize=(3 * len(names), 3), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names):
        of_set = [line for line in lines if line["dataset"] == name]
        for way, style in (("random", "o--"), ("label-next", "o-")):
            percents = sorted(int(percent) for percent in of_set[0][way])
            rows = [{int(p): ap for p, ap in line[way].items()} for line in of_set]
            means = [np.mean([row[p] for row in rows]) for p in percents]
            axis.plot(percents, means, style, label=way)
        axis.set(title=name, xlabel="labelled images, %")
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("AP")
    axes[0].legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
