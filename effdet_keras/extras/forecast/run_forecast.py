"""`forecast`: trains on parts of a dataset, and predicts the gain of more images."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.whole_files import local_path, write_text
from effdet_keras.data.anchor_fit import fitted_anchors, fitted_image_size
from effdet_keras.data.dataset import DetectionDataset, boxes_per_class, count_of
from effdet_keras.data.group_split import divide
from effdet_keras.data.split_groups import ImageGroups, image_groups
from effdet_keras.errors import (
    InvalidValueError,
    check_fields,
    printable,
    require,
)
from effdet_keras.extras.forecast.learning_curve import HELD, LearningCurve
from effdet_keras.extras.report.charts import (
    MAX_LINES,
    UNIT_TICKS,
    Chart,
    chart_figures,
    curves,
    even_ticks,
)
from effdet_keras.extras.report.pages import (
    concat_markup,
    element,
    html_page,
    stacked_table,
)
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.runs.components import (
    SPLIT_FIELDS,
    Splits,
    choose_splits,
    datasets_in_memory,
)
from effdet_keras.runs.configuration import RunConfiguration, in_words, seconds_of
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import (
    EarlierResults,
    RunFolder,
    check_empty_to_begin,
    check_resume_or_overwrite,
    fingerprint,
    only_writer,
    read_to_resume,
    read_written,
)
from effdet_keras.weights.checkpoint_files import checkpoint_in

FEWEST_IMAGES = 40
PERCENTS = (12, 25, 50)
_FILE, _PAGE = "forecast.json", "forecast.html"
_TRAINING = "_percent"  # end of the names of folders, such as `25_percent`
# The share of the whole time for each training; less if there are more than four.
_SHARE = 0.25
_FALL = 0.03  # AP: a smaller fall is chance
_WORTH = 0.02  # AP: a smaller gain does not justify many annotations


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The result of one training.

    Attributes:
        percent: int, the percentage of the training images.
        num_images: int, the number of these images.
        numbers: dict from name to float: `AP`, and `AP/<class>` for each class.
        seconds: float, the duration of the training.

    Example:
        >>> Measurement(25, 50, {"AP": 0.4, "AP/cat": 0.4}, 90.0).num_images
        50
    """

    percent: int
    num_images: int
    numbers: dict[str, float]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The result of `forecast`. `print(forecast)` shows it, `save` writes a page.

    Attributes:
        num_images: int, number of all training images.
        class_names: tuple of str.
        num_boxes: tuple of int, number of boxes of each class in the training images.
        num_objects: tuple of int, number of objects of each class in the images on
            which AP was measured.
        split: str, the name of the split of these images.
        measurements: tuple of `Measurement`, in order of the number of images.

    Example:
        >>> parts = [Measurement(25, 50, {"AP": 0.4}, 9.0)]
        >>> parts += [Measurement(50, 100, {"AP": 0.5}, 9.0)]
        >>> found = Forecast(200, ("cat",), (300,), (80,), "test", tuple(parts))
        >>> print(found)
        part           images                   AP
        25 %               50                0.400
        50 %              100                0.500
        all               200  0... (0... to 0...)
        twice as many     400  0... (0... to 0...)
        ...
    """

    num_images: int
    class_names: tuple[str, ...]
    num_boxes: tuple[int, ...]
    num_objects: tuple[int, ...]
    split: str
    measurements: tuple[Measurement, ...]

    def curve(self, class_name: str | None = None) -> LearningCurve | None:
        """Returns the learning curve of AP, or of one class; None if AP is unknown.

        The AP of a class is unknown if the images on which it is measured have no
        object of this class. A curve needs AP for two different numbers of images.
        """
        name, num_objects = "AP", sum(self.num_objects)
        if class_name is not None:
            name = f"AP/{class_name}"
            num_objects = self.num_objects[self.class_names.index(class_name)]
        known = [m for m in self.measurements if m.numbers.get(name, -1.0) >= 0]
        if len({m.num_images for m in known}) < 2:
            return None
        numbers = [m.num_images for m in known]
        return LearningCurve(numbers, [m.numbers[name] for m in known], num_objects)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an HTML file with the charts."""
        write_text(path, _page_of(self))

    def __str__(self):
        return printable("\n".join(_lines_of(self)))


def forecast(
    data: str | os.PathLike | DetectionDataset | Mapping[str, DetectionDataset],
    out: str | os.PathLike[str],
    *,
    percents: Sequence[int] = PERCENTS,
    time_budget: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> Forecast:
    """Trains on parts of a dataset, and predicts what more images would gain.

    The parts are nested, keep recordings whole, and contain each class. AP is measured
    on the same images for all parts: the test split, or else the validation split.
    Image size and anchors are fitted once, to all images. A power law through the AP of
    the parts predicts the AP of all images, and of twice as many.

    Args:
        data: path of the dataset, a `DetectionDataset`, or a dict of datasets by split.
        out: path of the folder to write to: a subfolder for each training,
            "forecast.json" with the measurements, and "forecast.html" with the charts.
        percents: ints from 1 to 100, the parts to train on, two or more.
        time_budget: string, the time for all trainings, such as "40m". Each part gets a
            quarter, or less if there are more than three parts. If enough time is left,
            the model is also trained on all images. None trains each part as long as
            `fine_tune` would.
        resume: bool, whether to continue the forecast in `out` and keep what was
            measured.
        overwrite: bool, whether to replace an earlier forecast in `out`. It is kept in
            "replaced_forecast" until the new one is complete, and put back if the new
            one ends without a result. Other files in the folder are kept.
        **fields: fields of `RunConfiguration`, such as `model` or `steps`.

    Returns:
        `Forecast`.

    Raises:
        ValueError: If there are fewer than 40 images, if `percents` are not two or more
            percentages, if no evaluated image has a box, if a field is invalid, or if
            both `resume` and `overwrite` are given.
        FileExistsError: If `out` has a forecast or other files, and neither `resume`
            nor `overwrite` is given.
        RuntimeError: If the forecast to resume was made with other data or fields, or
            another process writes to `out`.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> images, boxes = [np.zeros((32, 48, 3), "uint8")] * 10, [[[4, 8, 20, 40]]]
        >>> few = from_arrays(images, boxes * 10, [[0]] * 10, ["cat"])
        >>> forecast({"train": few, "val": few}, "forecasts/cats")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A forecast needs 40 images or more ...
    """
    percents = _checked(percents)
    check_resume_or_overwrite(resume, overwrite, "forecast")
    check_fields(fields, RunConfiguration().to_dict(), "A run")
    require(
        fields.get("time_budget") is None,
        "`time_budget` cannot be set for a single run: give the time of the whole "
        "forecast instead (`time_budget`, --time-budget)",
        time_budget=fields.get("time_budget"),
    )
    require(
        fields.get("evaluate_every") != 0 and not fields.get("one_batch"),
        "A forecast needs the AP of each training: leave `evaluate_every=0` and "
        "`one_batch` out",
        evaluate_every=fields.get("evaluate_every"),
        one_batch=fields.get("one_batch"),
    )
    if time_budget is not None:
        is_right = seconds_of(time_budget) is not None
        rule = "`time_budget` must be a duration such as '90s', '20m' or '1.5h'"
        require(is_right, rule, time_budget=time_budget)
    folder = local_path(out, "`out`")
    datasets = datasets_in_memory(data)
    if datasets is None:
        fields["data"] = os.fspath(data)
    configuration = RunConfiguration(**fields)
    configuration.replace(time_budget=time_budget)  # raises if fields contradict it
    splits = choose_splits(configuration, datasets)
    _check_number(splits)
    return _Trainings(folder, splits, configuration).run(
        percents, time_budget, resume=resume, overwrite=overwrite
    )


def _checked(percents):
    percents = tuple(sorted(set(percents)))
    is_right = all(isinstance(p, int) and 1 <= p <= 100 for p in percents)
    rule = (
        "The parts of a forecast must be two or more different whole percentages "
        "from 1 to 100"
    )
    require(is_right and len(percents) > 1, rule, percents=percents)
    return percents


def _check_number(splits):
    """Raises if there are too few images, or if AP cannot be measured."""
    number = len(splits.train) + len(splits.validation)
    if number < FEWEST_IMAGES:
        raise InvalidValueError(
            f"A forecast needs {FEWEST_IMAGES} images or more for training and "
            "validation: with fewer images, AP varies more between trainings than it "
            f"gains by more images. Received: {count_of(number, 'image')}. Annotate "
            "more first."
        )
    split, evaluated = splits.final
    if not boxes_per_class(evaluated, crowds=False).any():
        raise InvalidValueError(
            f"AP cannot be measured: the images of '{split}' have no box. Name a "
            "split that has boxes with `test_split` or `validation_split` (--set "
            "validation_split=NAME)."
        )


class _Trainings:
    """The trainings of one forecast, and their results, in its folder."""

    def __init__(self, folder, splits: Splits, configuration: RunConfiguration):
        self.folder, self.splits = pathlib.Path(folder), splits
        self.earlier = EarlierResults(self.folder, _FILE, _PAGE, "forecast")
        self.split, evaluated = splits.final
        self.num_objects = boxes_per_class(evaluated, crowds=False)
        self.fields = _fields_of_runs(configuration, splits.train)
        self.seed = configuration.seed
        self.grouping = image_groups(splits.train.records, configuration.split_by)
        self.measurements: list[Measurement] = []
        self.drawn: list[int] = []  # percentages, in the order of drawing the parts
        settings = {n: v for n, v in self.fields.items() if n != "verbose"}
        self.description = {
            "data": {name: fingerprint(d) for name, d in splits.by_role().items()},
            "fields": json.loads(json.dumps(settings)),
        }

    def run(self, percents, time_budget, *, resume, overwrite):
        """Runs the trainings that are not measured yet, and returns the forecast."""
        self.description["time_budget"] = time_budget
        with only_writer(self.folder, "forecast"):
            self.earlier.recover()
            replaces = self._begin(resume=resume, overwrite=overwrite)
            with self.earlier.kept(self._names_of_trainings, self._has_results):
                if replaces:
                    self.earlier.set_aside(self._names_of_trainings())
                self.drawn = _order_of_drawing(percents, self.drawn)
                self._write()
                return self._run(percents, time_budget)

    def _run(self, percents, time_budget):
        train = self.splits.train
        subsets = nested_subsets(
            train, percents, self.grouping, self.seed, drawn=self.drawn
        )
        budget = None if time_budget is None else seconds_of(time_budget)
        share = None
        if budget is not None:  # a training on all images needs its share, too
            share = min(budget * _SHARE, budget / len({*percents, 100}))
        for percent in percents:
            self._measure(percent, subsets[percent], share)
        if budget is not None and 100 not in percents:
            # This includes the time of trainings from before a resumption.
            left = budget - sum(m.seconds for m in self.measurements)
            if left >= 0.9 * share:
                self._measure(100, train, min(left, share))
            else:
                print(
                    "Too little time is left to train on all images: "
                    f"{in_words(max(left, 0))} of {time_budget}."
                )
        found = self.forecast()
        found.save(self.folder / _PAGE)
        return found

    def forecast(self):
        train = self.splits.train
        return Forecast(
            num_images=len(train),
            class_names=train.class_names,
            num_boxes=tuple(boxes_per_class(train, crowds=False).tolist()),
            num_objects=tuple(self.num_objects.tolist()),
            split=self.split,
            measurements=tuple(sorted(self.measurements, key=lambda m: m.num_images)),
        )

    def _begin(self, *, resume, overwrite):
        """Loads earlier measurements; returns whether to replace them instead."""
        path = self.folder / _FILE
        if path.is_file() and resume:
            before = read_to_resume(path, self.description, "forecast")
            self.measurements = [Measurement(**row) for row in before["measurements"]]
            self.drawn = list(before.get("drawn", ()))
        elif path.is_file() and overwrite:
            read_written(path, ("measurements",), "forecast")  # refuses other files
            return True
        else:
            check_empty_to_begin(self.folder, "forecast")
        return False

    def _names_of_trainings(self):
        """Returns the names of the folders of trainings, and of no other folders."""
        trainings = self.folder.glob(f"*{_TRAINING}")
        return [path.name for path in trainings if RunFolder(path).has_run]

    def _has_results(self):
        """Returns whether a part is measured, or its training can be continued."""
        runs = [RunFolder(self.folder / name) for name in self._names_of_trainings()]
        return bool(self.measurements) or any(checkpoint_in(x.archive) for x in runs)

    def _write(self):
        rows = [dataclasses.asdict(m) for m in self.measurements]
        content = {**self.description, "drawn": self.drawn, "measurements": rows}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / _FILE, json.dumps(content, indent=1) + "\n")

    def _measure(self, percent, subset, seconds):
        """Trains on a part, unless it is measured already."""
        if any(m.percent == percent for m in self.measurements):
            return
        if not any(len(record.labels) for record in subset.records):
            print(
                f"{percent} %: not trained, because there is no box in "
                f"{count_of(len(subset), 'image')}."
            )
            return
        print(
            f"{percent} %: training on {count_of(len(subset), 'image')} ...", flush=True
        )
        datasets = {"train": subset, "val": self.splits.validation}
        if self.splits.test is not None:
            datasets["test"] = self.splits.test
        fields = dict(self.fields)
        if seconds is not None:
            fields["time_budget"] = f"{max(int(seconds), 1)}s"
        began = time.monotonic()
        out = self.folder / f"{percent}{_TRAINING}"
        resume = RunFolder(out).has_run
        result = fine_tune(datasets, out=out, resume=resume, **fields)
        numbers = {
            name: float(value)
            for name, value in result.numbers.items()
            if name == "AP" or name.startswith("AP/")
        }
        spent = time.monotonic() - began
        self.measurements.append(Measurement(percent, len(subset), numbers, spent))
        self._write()
        print(f"{percent} %: AP {numbers['AP']:.3f} ({in_words(spent)})", flush=True)


def _fields_of_runs(configuration, train):
    """Returns the fields of all trainings, with size and anchors for all images."""
    fields = configuration.to_dict()
    for name in SPLIT_FIELDS:  # the splits are chosen once, for all trainings
        del fields[name]
    if fields["verbose"] == "auto":
        fields["verbose"] = 0
    if configuration.is_hub_module:
        return fields
    options = dict(configuration.model_config)
    if configuration.image_size == "auto":
        config = EfficientDetConfig.from_name(configuration.model, **options)
        fields["image_size"] = list(fitted_image_size(train, config))
    if fields["image_size"] is not None:
        options["image_size"] = fields["image_size"]
    has_own = {"anchor_scale", "aspect_ratios", "num_scales"} & options.keys()
    if (
        configuration.anchors == "auto"
        and not has_own
        and configuration.teacher is None
    ):
        config = EfficientDetConfig.from_name(configuration.model, **options)
        fitted = fitted_anchors(train, config)
        fields["model_config"] = {**configuration.model_config, **fitted}
    return fields


def nested_subsets(
    train: DetectionDataset,
    percents: Sequence[int],
    grouping: ImageGroups,
    seed: int,
    *,
    drawn: Sequence[int] = (),
) -> dict[int, DetectionDataset]:
    """Returns parts of a dataset, each one a subset of the next larger one.

    The largest part is drawn first. A part is drawn from the next larger one, and
    contains the next smaller one, if that was drawn before.

    Args:
        train: `DetectionDataset`, the training images.
        percents: ints, the sizes of the parts, in percent of the images.
        grouping: `ImageGroups`, the images that belong together. A group is either
            completely in a part, or not at all.
        seed: int. The same seed gives the same parts.
        drawn: ints, the percentages of parts that were drawn before, in this order.
            They stay the same, whatever `percents` are.

    Returns:
        Dict from percentage to `DetectionDataset`, the smallest part first.
    """
    everything = np.arange(len(train))
    chosen = {}  # from percentage to the numbers of images
    for percent in _order_of_drawing(percents, drawn):
        larger = [p for p in chosen if p > percent]
        smaller = [p for p in chosen if p < percent]
        inside = chosen[min(larger)] if larger else everything
        contained = chosen[max(smaller)] if smaller else everything[:0]
        left = np.setdiff1d(inside, contained)
        number = max(round(len(train) * percent / 100), 1) - len(contained)
        if number <= 0:  # groups have made the smaller part as large already
            left = left[:0]
        elif number < len(left):
            records = [train.records[i] for i in left]
            rest = grouping.subset(left)
            division = divide(records, train.num_classes, rest, number, seed)
            left = left[~division.in_second]
        chosen[percent] = np.union1d(contained, left)
    return {percent: train.subset(chosen[percent]) for percent in sorted(chosen)}


def _order_of_drawing(percents, drawn):
    return [*drawn, *sorted(set(percents) - set(drawn), reverse=True)]


# --- The forecast as text and as an HTML page.


def _rows_of(forecast, class_name=None):
    """Returns label, number of images, AP and interval of each point of a curve."""
    name = "AP" if class_name is None else f"AP/{class_name}"
    rows = [
        (f"{m.percent} %", m.num_images, m.numbers[name], None)
        for m in forecast.measurements
        if m.numbers.get(name, -1.0) >= 0
    ]
    curve = forecast.curve(class_name)
    if curve is None:
        return rows
    numbers = {"all": forecast.num_images, "twice as many": 2 * forecast.num_images}
    if any(m.num_images == forecast.num_images for m in forecast.measurements):
        del numbers["all"]
    for words, number in numbers.items():
        expected = curve.forecast(number)
        rows.append((words, number, expected.middle, expected))
    return rows


def _in_words(value, expected):
    if expected is None:
        return f"{value:.3f}"
    return f"{value:.2f} ({expected.low:.2f} to {expected.high:.2f})"


def _table_of(forecast):
    """Returns table rows: the column names, then the points of AP."""
    rows = [
        [words, f"{number:,}", _in_words(value, expected)]
        for words, number, value, expected in _rows_of(forecast)
    ]
    return [["part", "images", "AP"], *rows]


def _class_table(forecast):
    """Returns table rows by class: boxes, AP of the largest part, and forecasts."""
    rows = [["class", "boxes", "largest part", "all", "twice as many"]]
    for name, boxes in zip(forecast.class_names, forecast.num_boxes):
        found = {words: _in_words(v, e) for words, _, v, e in _rows_of(forecast, name)}
        last = [text for words, text in found.items() if words.endswith("%")][-1:]
        cells = [*(last or ["-"]), found.get("all", *(last or ["-"]))]
        rows.append([name, f"{boxes:,}", *cells, found.get("twice as many", "-")])
    return rows


def _advice(forecast):
    """Returns sentences on whether more images pay off, and of which class."""
    rows = {
        words: (value, expected) for words, _, value, expected in _rows_of(forecast)
    }
    if "twice as many" not in rows:
        return [
            "The AP of the parts is not known, so there is no forecast for more images."
        ]
    most = forecast.measurements[-1]
    now = rows["all"][0] if "all" in rows else most.numbers["AP"]
    gain = rows["twice as many"][0] - now
    sentences = [
        f"Twice as many images are expected to gain {gain:.2f} AP over all present "
        f"images, on the {sum(forecast.num_objects):,} objects of '{forecast.split}'. "
        f"In {100 * HELD:.0f} of 100 cases AP is in the range in parentheses."
    ]
    if gain < _WORTH:
        sentences.append(
            "That is less than AP varies between trainings: check the labels, try "
            "another image size and a larger model before you annotate more images."
        )
    gains = {}
    for name in forecast.class_names:
        values = [(v, e) for _, _, v, e in _rows_of(forecast, name)]
        if values and values[-1][1] is not None:
            at_all = values[-2][0]
            gains[name] = values[-1][0] - at_all
    if len(gains) > 1 and max(gains.values()) >= _WORTH:
        best = max(gains, key=gains.get)
        sentences.append(
            f"The class '{best}' gains most, {gains[best]:.2f}: label images of it "
            "first."
        )
    return [*sentences, *_doubts(forecast)]


def _doubts(forecast):
    """Yields a sentence if AP fell with more images, as no learning curve does."""
    aps = [(m.num_images, m.numbers["AP"]) for m in forecast.measurements]
    known = [(number, ap) for number, ap in aps if ap >= 0]
    for (fewer, before), (more, after) in itertools.pairwise(known):
        if before - after >= _FALL:
            yield (
                f"AP fell from {before:.2f} with {fewer:,} images to {after:.2f} with "
                f"{more:,}. The trainings may be too short for so many images: give "
                "them more time (`time_budget`, --time-budget) or steps before you "
                "trust the forecast."
            )
            return


def _lines_of(forecast):
    tables = [_table_of(forecast)]
    if len(forecast.class_names) > 1:
        tables.append(_class_table(forecast))
    for table in tables:
        widths = [max(map(len, column)) for column in zip(*table)]
        for row in table:
            cells = [f"{row[0]:<{widths[0]}}"]
            cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:])]
            yield "  ".join(cells)
        yield ""
    yield from _advice(forecast)


def _chart_of(forecast, title, class_names):
    """Draws measured and predicted AP over the number of images."""
    lines, legend = [], []
    for class_name in class_names[:MAX_LINES]:
        rows = _rows_of(forecast, class_name)
        points = [(number, value) for _, number, value, _ in rows]
        if points:
            lines.append(tuple(zip(*points)))
            legend.append(class_name or "AP, measured and expected")
    words = []
    if class_names == [None]:
        expected = [(n, e) for _, n, _, e in _rows_of(forecast) if e is not None]
        measured = [(m.num_images, m.numbers["AP"]) for m in forecast.measurements][-1]
        for k, name in enumerate(("from", "to")):
            ends = [(number, (e.low, e.high)[k]) for number, e in expected]
            lines.append(tuple(zip(measured, *ends)))
            legend.append(f"{name}, in {100 * HELD:.0f} of 100 cases")
    elif len(class_names) > MAX_LINES:
        words.append(f"And {len(class_names) - MAX_LINES} more classes.")
    highest = 2 * forecast.num_images
    ticks = even_ticks(0, highest)
    svg = curves(lines, ticks, UNIT_TICKS, ("training images", "AP"))
    return Chart(title, svg, tuple(words), tuple(legend))


def _page_of(forecast):
    """Returns the HTML page of a forecast."""
    parts = [element("h1", "What more images would gain")]
    parts += [element("p", sentence) for sentence in _advice(forecast)]
    charts = [_chart_of(forecast, "AP over the number of images", [None])]
    if len(forecast.class_names) > 1:
        charts.append(_chart_of(forecast, "By class", list(forecast.class_names)))
    parts += [chart_figures(charts), stacked_table(_table_of(forecast))]
    if len(forecast.class_names) > 1:
        parts += [element("h2", "By class"), stacked_table(_class_table(forecast))]
    return html_page("Forecast", concat_markup(*parts))
