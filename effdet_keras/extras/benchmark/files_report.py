"""The report on exported files: as text, JSON, Markdown and HTML."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from effdet_keras._internal.whole_files import write_text
from effdet_keras.errors import printable
from effdet_keras.evaluate.evaluation import aligned
from effdet_keras.extras.report import charts, pages
from effdet_keras.extras.report.charts import Chart
from effdet_keras.extras.report.pages import concat_markup, element

_COLUMNS = ("", "AP", "AP lost", "95 %", "ms", "p95 ms", "MB", "peak MB")
_NONE = "-"
_FEWEST = 30  # images: with fewer, the interval is too narrow
_IN_8_BITS = ("int8", "dynamic")


@dataclasses.dataclass(frozen=True)
class FileNumbers:
    """One row: the numbers of one file, or the reason why there are none.

    Attributes:
        name: string, such as "litert-int8"; "live model" for the model itself.
        ap: float from 0 to 1; None if the file could not be made or run.
        ap_lost: float, AP of the live model minus AP of the file.
        lost_low, lost_high: floats, the ends of the 95 % interval of `ap_lost`.
        median_ms, p95_ms: floats, milliseconds for one image.
        megabytes, peak_mb: floats, size of the file, and peak memory of the process
            that ran it, in units of 10^6 bytes.
        precision, suppression: strings, how the file differs from the model.
        reason: string, why there are no numbers; "" if there are.
        time_reason: string, why there are no times; "" if there are.
        check: string, what was checked of a file that only runs on a device; "" if it
            ran here.

    Example:
        >>> row = FileNumbers("onnx", ap=0.502, ap_lost=0.001, median_ms=12.5)
        >>> row.is_measured, FileNumbers("ncnn", reason="not installed").is_measured
        (True, False)
    """

    name: str
    ap: float | None = None
    ap_lost: float | None = None
    lost_low: float | None = None
    lost_high: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None
    megabytes: float | None = None
    peak_mb: float | None = None
    precision: str = "float32"
    suppression: str = ""
    reason: str = ""
    time_reason: str = ""
    check: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether the file ran, and has an AP."""
        return self.ap is not None

    def cells(self) -> tuple[str, ...]:
        """Returns the cells of the row, for the columns `_COLUMNS`."""
        interval = _NONE
        if self.lost_low is not None:
            interval = f"{self.lost_low:+.4f} to {self.lost_high:+.4f}"
        return (
            self.name,
            _text(self.ap, ".4f"),
            _text(self.ap_lost, "+.4f"),
            interval,
            _text(self.median_ms, ".1f"),
            _text(self.p95_ms, ".1f"),
            _text(self.megabytes, ".1f"),
            _text(self.peak_mb, ".0f"),
        )


@dataclasses.dataclass(frozen=True)
class FilesReport:
    """The numbers of each file of one model, on the same images and machine.

    Attributes:
        model: string, the name of the config.
        num_images: int, number of images with objects, to which the intervals apply.
        runs: int, number of images that were timed in each process.
        rows: tuple of `FileNumbers`, the live model first.

    Example:
        >>> live = FileNumbers("live model", ap=0.5, median_ms=40.0)
        >>> onnx = FileNumbers("onnx", ap=0.5, ap_lost=0.0, lost_low=0.0, lost_high=0.0)
        >>> coral = FileNumbers("coral", reason="missing package: ...")
        >>> report = FilesReport("efficientdet-lite0", 64, 30, (live, onnx, coral))
        >>> print(str(report).splitlines()[-1])
        coral: missing package: ...
    """

    model: str
    num_images: int
    runs: int
    rows: tuple[FileNumbers, ...]

    @property
    def not_run(self) -> list[tuple[str, str]]:
        """Names of files without numbers or times, with the reasons."""
        told = [(row.name, row.reason or row.time_reason) for row in self.rows]
        return [(name, reason) for name, reason in told if reason]

    @property
    def checked(self) -> list[tuple[str, str]]:
        """Names of files that only run on a device, with what was checked."""
        return [
            (row.name, f"{_text(row.megabytes, '.1f')} MB, {row.check}")
            for row in self.rows
            if row.check
        ]

    @property
    def explanations(self) -> list[str]:
        """A sentence for each file whose interval does not contain zero."""
        return [text for row in self.rows if (text := self._explanation(row))]

    def _explanation(self, row):
        """Returns possible causes of a loss or gain; "" if the interval has zero."""
        if row.lost_low is None or row.lost_low <= 0 <= row.lost_high:
            return ""
        causes = []
        if row.suppression:
            causes.append(
                f"the file uses another non-maximum suppression ({row.suppression})"
            )
        if row.precision in _IN_8_BITS:
            causes.append("its numbers are rounded to 8 bits")
        elif row.precision == "float16":
            causes.append("its weights are rounded to 16 bits")
        if self.num_images < _FEWEST:
            causes.append(
                f"with so few images ({self.num_images}) the interval is too narrow"
            )
        if row.lost_high < 0:
            causes.append(
                "with many files, one in twenty intervals misses zero by chance"
            )
            return (
                f"{row.name}: its AP is higher than that of the live model. A "
                "conversion cannot improve a model, so this is no reason to choose "
                f"the file: {'; '.join(causes)}."
            )
        if not causes:
            causes.append("nothing in the file explains it: please report it")
        return (
            f"{row.name}: its AP is lower than that of the live model: "
            f"{'; '.join(causes)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, for JSON."""
        return {
            **dataclasses.asdict(self),
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "explanations": self.explanations,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the numbers as JSON."""
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    def _title(self):
        return (
            f"{self.model}: {self.num_images} images with objects, {self.runs} timed "
            "runs of each file"
        )

    def _lists(self):
        """Returns titles and entries of the lists below the table; no empty ones."""
        lists = {"Written for a device": self.checked, "Did not run": self.not_run}
        return [(title, told) for title, told in lists.items() if told]

    def _table(self):
        return [_COLUMNS, *(row.cells() for row in self.rows if row.is_measured)]

    def __str__(self) -> str:
        lines = [self._title(), "", aligned(self._table())]
        if self.explanations:
            lines += ["", *self.explanations]
        for title, told in self._lists():
            lines += ["", f"{title}:", *(f"{name}: {words}" for name, words in told)]
        return printable("\n".join(lines))

    def markdown(self) -> str:
        """Returns the report as Markdown."""
        columns, *rows = self._table()
        lines = [self._title(), "", _markdown_row(columns)]
        lines += [_markdown_row(["---"] * len(columns)), *map(_markdown_row, rows)]
        if self.explanations:
            lines += ["", *(f"- {text}" for text in self.explanations)]
        for title, told in self._lists():
            lines += ["", f"{title}:", ""]
            lines += [f"- {name}: {words}" for name, words in told]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """Returns the report as an HTML page with charts. All text is escaped."""
        lists = [
            part
            for title, told in self._lists()
            for part in (element("h2", title), pages.words_table(told))
        ]
        body = concat_markup(
            element("h1", "What each file is worth"),
            element("p", self._title()),
            pages.stacked_table(self._table()),
            element("ul", pages.items(self.explanations)) if self.explanations else "",
            charts.chart_figures(self._charts()),
            *lists,
        )
        return pages.html_page(f"Files of {self.model}", body)

    def _charts(self):
        compared = [row for row in self.rows if row.lost_low is not None]
        found = []
        if compared:
            svg = charts.intervals(
                [row.name for row in compared],
                [(row.lost_low, row.ap_lost, row.lost_high) for row in compared],
                [f"{row.ap_lost:+.3f}" for row in compared],
            )
            words = (
                "Each line spans 95 % of the bootstrap draws. To the right of zero, "
                "a file loses AP."
            )
            found.append(Chart("AP lost against the live model", svg, (words,)))
        for field, title, digits in (
            ("median_ms", "Milliseconds per image, median", ".1f"),
            ("megabytes", "Size of the file in megabytes", ".1f"),
            ("peak_mb", "Peak memory in megabytes", ".0f"),
        ):
            rows = [row for row in self.rows if getattr(row, field) is not None]
            if rows:
                values = [getattr(row, field) for row in rows]
                texts = [_text(value, digits) for value in values]
                bars = charts.bars([row.name for row in rows], values, texts)
                found.append(Chart(title, bars))
        return found


def _text(value, digits):
    return _NONE if value is None else format(value, digits)


def _markdown_row(cells):
    texts = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(texts)} |"
