"""The result of a search: the files and their numbers, as text and as an HTML page."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from effdet_keras._internal.whole_files import write_text
from effdet_keras.data.dataset import count_of
from effdet_keras.errors import printable
from effdet_keras.evaluate.evaluation import aligned
from effdet_keras.extras.choose.halving import frontier
from effdet_keras.extras.report.charts import (
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

_NONE = "-"
_LOST = 0.02  # a larger loss of AP between model and file is reported


@dataclasses.dataclass(frozen=True)
class MeasuredFile:
    """One file to which a model of one size can be exported, and its measurements.

    Attributes:
        model: string, the preset.
        image_size: `(height, width)` of the network's input, in pixels.
        file: string, format and precision, such as "litert-int8".
        median_ms: float, milliseconds for one image, from its file to its boxes; None
            if it was not measured.
        megabytes: float, size in units of 10^6 bytes; None if the file was not written.
        reason: string, why the file was left out; "" if it was not.
        ap: float from 0 to 1, AP of the file on the validation split; None before its
            model was trained to the end.
        test_ap: float, AP on the test split; None for all files but the best, and if
            there is no test split.
        path: string, the path that the runtime opens; "" before the model was trained
            to the end.
        failed: bool, whether `reason` is an error, and not a limit.

    Example:
        >>> one = MeasuredFile("efficientdet-lite0", (192, 256), "litert", 12.5, 13.1)
        >>> print(one)
        efficientdet-lite0 at 192x256 as litert
    """

    model: str
    image_size: tuple[int, int]
    file: str
    median_ms: float | None = None
    megabytes: float | None = None
    reason: str = ""
    ap: float | None = None
    test_ap: float | None = None
    path: str = ""
    failed: bool = False

    @property
    def candidate(self) -> tuple[str, tuple[int, int]]:
        """Model and image size, which are trained together."""
        return self.model, self.image_size

    def __str__(self):
        return f"{name_of(*self.candidate)} as {self.file}"


@dataclasses.dataclass(frozen=True)
class RungResult:
    """The result of a model of one size at the end of a rung.

    Attributes:
        model, image_size: string and `(height, width)`, the candidate.
        epochs, steps: ints, how long it was trained so far, in all rungs together. If
            its training failed, these are the epochs of the rung, and the steps in its
            log.
        ap: float from 0 to 1, on the validation split: the AP of the best checkpoint so
            far, or of a file, if any candidate is only within the limits as a rounded
            file. None if its training failed.
        median_ms: float, milliseconds of the file to which `ap` belongs; None if the
            training failed.
        cpu_seconds: float, CPU time of this rung.
        reason: string, why the training failed; "" if it did not.

    Example:
        >>> one = RungResult("efficientdet-d0", (192, 256), 15, 150, 0.31, 12.5, 80.0)
        >>> one.steps
        150
    """

    model: str
    image_size: tuple[int, int]
    epochs: int
    steps: int
    ap: float | None
    median_ms: float | None
    cpu_seconds: float
    reason: str = ""

    @property
    def candidate(self) -> tuple[str, tuple[int, int]]:
        """Model and image size, which are trained together."""
        return self.model, self.image_size


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The result of `choose`. `print(result)` shows it, `save` writes an HTML page.

    Attributes:
        best: `MeasuredFile`, the chosen file.
        path: `pathlib.Path` of that file, or of its folder.
        run: `pathlib.Path` of the run that trained it.
        measured: tuple of `MeasuredFile`, all requested files, measured before the
            training.
        rungs: tuple of tuples of `RungResult`, the shortest rung first.
        files: tuple of `MeasuredFile`, the files that were trained to the end.
        num_images: int, number of images in the validation split.
        cpu_seconds: float, CPU time of all trainings with their evaluations.

    Example:
        >>> file = MeasuredFile("efficientdet-lite0", (192, 256), "onnx", 9.0, 13.1)
        >>> best = dataclasses.replace(file, ap=0.5)
        >>> rung = RungResult(*file.candidate, 15, 150, 0.5, 9.0, 80.0)
        >>> folder = pathlib.Path("found")
        >>> found = SearchResult(best, folder, folder, (file,), ((rung,),), (best,), 40)
        >>> print(found.lines()[0])
        efficientdet-lite0 at 192x256 as onnx: AP 0.500, 9.0 ms, 13.1 MB
    """

    best: MeasuredFile
    path: pathlib.Path
    run: pathlib.Path
    measured: tuple[MeasuredFile, ...]
    rungs: tuple[tuple[RungResult, ...], ...]
    files: tuple[MeasuredFile, ...]
    num_images: int

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all trainings, with their evaluations."""
        return sum(one.cpu_seconds for rung in self.rungs for one in rung)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an HTML file with the frontier and all tables."""
        write_text(path, _page(self))

    def lines(self) -> list[str]:
        """Returns sentences on the chosen file, and on the images that chose it."""
        best = self.best
        lines = [
            "{}: AP {:.3f}, {} ms, {} MB".format(best, best.ap, *_numbers_of(best)),
            f"This AP was measured on the {count_of(self.num_images, 'image')} of the "
            "validation split, by which the file was chosen: expect a little less on "
            "other images.",
        ]
        reached = {one.candidate: one.ap for rung in self.rungs for one in rung}
        trained = reached[best.candidate]
        if trained - best.ap > _LOST:
            lines.append(
                f"The trained model has AP {trained:.3f} on these images: "
                "`effdet-keras benchmark` shows why the file loses AP, and the guide "
                "of its format says how to keep it."
            )
        if best.test_ap is not None:
            lines.append(
                "On the test split, which was not used to choose: AP "
                f"{best.test_ap:.3f}"
            )
        if best.reason:
            cause = "" if best.failed else ": times on this machine vary by that much"
            lines.append(
                "No file is within the limits after the training. This one was "
                f"within them before the training, and is now {best.reason}{cause}."
            )
        return lines

    def failures(self) -> list[str]:
        """Returns a line for each failed training and file, with the reason."""
        trainings = [
            f"{name_of(*one.candidate)} failed in training, after {one.steps:,} steps: "
            f"{one.reason}"
            for rung in self.rungs
            for one in rung
            if one.reason
        ]
        files = [f"{one} was {one.reason}" for one in self.files if one.failed]
        return trainings + files

    def __str__(self):
        tables = [_files_table(self), _rungs_table(self), _measured_table(self)]
        parts = [aligned(table) for table in tables]
        parts += [
            "\n".join(lines) for lines in (self.failures(), self.lines()) if lines
        ]
        return printable("\n\n".join(parts))


def name_of(model: str, image_size: tuple[int, int]) -> str:
    """Returns a readable name of a candidate.

    Example:
        >>> name_of("efficientdet-lite0", (192, 256))
        'efficientdet-lite0 at 192x256'
    """
    return f"{model} at {image_size[0]}x{image_size[1]}"


def _number(value, digits):
    return _NONE if value is None else format(value, digits)


def _numbers_of(one):
    return [_number(one.median_ms, ".1f"), _number(one.megabytes, ".1f")]


def _files_table(result):
    """Returns a table of the files that were trained to the end."""
    rows = [["trained to the end", "file", "AP", "ms", "MB", ""]]
    known = [one for one in result.files if one.ap is not None]
    for one in sorted(known, key=lambda one: -one.ap):
        name = name_of(*one.candidate)
        numbers = [f"{one.ap:.3f}", *_numbers_of(one)]
        rows.append([name, one.file, *numbers, one.reason])
    return rows


def _rungs_table(result):
    """Returns a table of the AP of each candidate at the end of each rung."""
    steps = [_steps_of(rung) for rung in result.rungs]
    rows = [["model and size", *(f"AP, {count:,} steps" for count in steps)]]
    for one in result.rungs[0]:
        by_rung = [{x.candidate: x for x in rung} for rung in result.rungs]
        aps = [_reached(of_rung.get(one.candidate)) for of_rung in by_rung]
        rows.append([name_of(*one.candidate), *aps])
    return rows


def _steps_of(rung):
    """Returns the steps at the end of a rung; failed candidates have fewer."""
    return max(one.steps for one in rung if not one.reason)


def _reached(one):
    if one is None:
        return _NONE
    return "failed" if one.reason else f"{one.ap:.3f}"


def _measured_table(result):
    """Returns a table of the files before training, with reasons to leave them out."""
    rows = [["before training", "file", "ms", "MB", ""]]
    for one in result.measured:
        name = name_of(*one.candidate)
        rows.append([name, one.file, *_numbers_of(one), one.reason])
    return rows


def _frontier_chart(result):
    """Draws AP over milliseconds, with a line per rung, and one for finished files."""
    of_rungs = {f"after {_steps_of(rung):,} steps": rung for rung in result.rungs}
    measured = {**of_rungs, "files, trained to the end": result.files}
    groups = {
        name: [(x.median_ms, x.ap) for x in found if None not in (x.median_ms, x.ap)]
        for name, found in measured.items()
    }
    groups = {name: group for name, group in groups.items() if group}
    points = [point for group in groups.values() for point in group]
    svg = curves(
        [tuple(zip(*frontier(group))) for group in groups.values()],
        even_ticks(0, max(ms for ms, _ in points)),
        even_ticks(0, max(max(ap for _, ap in points), 0.01)),
        ("milliseconds", "AP"),
        dots=[tuple(zip(*group)) for group in groups.values()],
    )
    words = [
        "The line joins the files that no other file beats in both AP and "
        "milliseconds: the frontier."
    ]
    failures = result.failures()
    if failures:
        words.append(
            f"The chart does not show {count_of(len(failures), 'failure')}, listed "
            "below."
        )
    return Chart("AP and latency", svg, tuple(words), tuple(groups))


def _page(result):
    """Returns the HTML page of a search."""
    body = concat_markup(
        element("h1", "The best model within the limits"),
        *(element("p", line) for line in result.lines()),
        chart_figures([_frontier_chart(result)]),
        stacked_table(_files_table(result)),
        element("h2", "Rungs"),
        stacked_table(_rungs_table(result)),
        *(element("p", line) for line in result.failures()),
        element("h2", "Before training"),
        stacked_table(_measured_table(result)),
    )
    return html_page("Choose", body)
