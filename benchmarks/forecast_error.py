"""How far is a forecast of `effdet-keras forecast` from the AP of all images?

    python benchmarks/forecast_error.py blood-cells DATA
    python benchmarks/forecast_error.py DATA --steps 400 --seeds 0 1

For each dataset, models are trained on nested parts of 12, 25, 50 and 100 % of `train`,
for the same number of steps. The forecast for 100 % is made from the other three, and
compared with the training on 100 %. All are evaluated on `test` after their last step,
so that nothing is chosen there. The backbone is frozen (`frozen_backbone.py`); with
`--whole`, the default recipe trains whole models. Prints a JSON line for each dataset
and seed.
"""

import argparse
import functools

from frozen_backbone import add_arguments, print_lines, read_arguments

from effdet_keras.data.split_groups import image_groups
from effdet_keras.extras.forecast.learning_curve import LearningCurve
from effdet_keras.extras.forecast.run_forecast import nested_subsets

PERCENTS = (12, 25, 50, 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add_arguments(parser, steps=200)
    options = read_arguments(parser)
    print_lines(options, functools.partial(run, steps=options.steps))


def run(backbone, train, judge, seed, steps):
    """Measures the learning curve of a dataset; returns the line to print."""
    numbers, aps = [], []
    for part in parts_of(backbone, train, seed).values():
        backbone.train(part, steps, seed)
        numbers.append(len(part))
        aps.append(max(backbone.ap(judge)["AP"], 0.0))
    objects = sum(len(backbone.dataset.records[i].labels) for i in judge)
    return compare(numbers, aps, objects)


def parts_of(backbone, train, seed):
    """Returns the indices of nested parts of the training images, by percentage."""
    dataset = backbone.dataset.subset(train)
    place = {record.image_id: i for i, record in zip(train, dataset.records)}
    subsets = nested_subsets(dataset, PERCENTS, image_groups(dataset.records), seed)
    return {
        percent: [place[image_id] for image_id in subset.image_ids]
        for percent, subset in subsets.items()
    }


def compare(numbers, aps, objects):
    """Forecasts the last AP from the others; returns the forecast and its error."""
    curve = LearningCurve(numbers[:-1], aps[:-1], objects)
    expected = curve.forecast(numbers[-1])
    return {
        "images": numbers,
        "AP": [round(ap, 4) for ap in aps],
        "forecast": [round(value, 4) for value in expected],
        "error": round(expected.middle - aps[-1], 4),
        "covered": bool(expected.low <= aps[-1] <= expected.high),
        "objects": objects,
    }


if __name__ == "__main__":
    main()
