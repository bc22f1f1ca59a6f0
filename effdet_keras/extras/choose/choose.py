"""`choose`: trains models of several sizes, and returns the best file within limits.

A candidate is a model at an image size. It has one file for each precision. The search
does the cheap work first:

1. Every file is exported with untrained weights and timed in its own runtime. Neither
   milliseconds nor megabytes depend much on the weights, so files over a limit are
   never trained.
2. The remaining candidates are trained by successive halving (`halving.py`). A rung is
   a training for all steps that stops at the end of the rung. A survivor resumes from
   its checkpoint with the same bits. So nothing is trained twice. The learning rate
   decays once over the whole training, not within each rung. The winning candidate has
   the weights that `train` would have given it.
3. Each file of the candidates that were trained to the end is exported. AP and times
   are measured with the file itself, so an int8 file is judged with its rounding.

AP at the end of a rung is the AP of the moving averages of the weights, while their
learning rate is still high. It is lower than the AP of a training that ends at this
point, but equally so for all candidates.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.whole_files import (
    atomic_write_all,
    local_path,
    write_text,
)
from effdet_keras.data.anchor_fit import input_size_of_side
from effdet_keras.data.dataset import DetectionDataset, boxes_per_class, count_of
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.errors import (
    InvalidStateError,
    InvalidValueError,
    check_argument,
    check_choice,
    check_fields,
    reason_of,
    require,
)
from effdet_keras.export.drawn_weights import draw_weights
from effdet_keras.export.registry import FORMATS, TARGETS
from effdet_keras.export.runtime import (
    ExportedDetector,
    file_of_export,
    open_runtime,
)
from effdet_keras.extras.benchmark.benchmark_files import (
    Candidate,
    candidates,
    file_megabytes,
    time_file,
    write_images,
)
from effdet_keras.extras.choose.halving import (
    MOST_RUNGS,
    num_rungs,
    num_survivors,
    ranking,
    rung_epochs,
    uncertainty,
)
from effdet_keras.extras.choose.search_result import (
    MeasuredFile,
    RungResult,
    SearchResult,
    name_of,
)
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.runs.components import (
    SPLIT_FIELDS,
    choose_splits,
    datasets_in_memory,
    make_model,
    num_epochs,
)
from effdet_keras.runs.configuration import RunConfiguration, in_words
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import (
    EarlierResults,
    RunFolder,
    check_empty_to_begin,
    check_resume_or_overwrite,
    fingerprint,
    only_writer,
    read_rows,
    read_to_resume,
    read_written,
)

MODELS = (
    "efficientdet-lite0",
    "efficientdet-lite1",
    "efficientdet-lite2",
    "efficientdet-d0",
)
SIZES = (192, 256, 320, 384)
_FILE, _PAGE = "choose.json", "choose.html"
_BEST, _RUNS, _FILES = "best", "runs", "files"
_FEW_IMAGES = 8  # to calibrate files with untrained weights
# These errors, such as a full disk, are not caused by a candidate. The search stops,
# and can be continued.
_MACHINE_ERRORS = (OSError, ImportError)
_NO_BACKBONE = "no ImageNet backbone is available, and the other models start from one"
_EXACT = ("float32", "float16")  # as accurate as the Keras model
# Fields that `choose` decides itself, and what decides them.
_DECIDED = {
    "model": "`models`",
    "image_size": "`sizes`",
    "evaluate_every": "the rungs, each of which ends with an evaluation",
    "time_budget": "`steps` or `epochs`, the same for each candidate",
    "one_batch": "the rungs",
    "monitor": "AP",
    "quantize_aware": "`precisions`, which are compared after the training",
    "export": "`target`",
}


def choose(
    data: str | os.PathLike | DetectionDataset | Mapping[str, DetectionDataset],
    out: str | os.PathLike[str],
    *,
    target: str = "litert",
    max_ms: float | None = None,
    max_mb: float | None = None,
    models: Sequence[str] = MODELS,
    sizes: Sequence[int | tuple[int, int]] = SIZES,
    precisions: Sequence[str] | None = None,
    eta: int = 3,
    rungs: int | None = None,
    timed_images: int = 30,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> SearchResult:
    """Trains models of several sizes, and returns the best file within the limits.

    Files are timed before any training, and those over a limit are left out. The
    remaining candidates are trained by successive halving (Jamieson and Talwalkar,
    2016, https://arxiv.org/abs/1502.07943): all of them for a ninth of the steps, the
    better third of them for a third of the steps, and the better third of these to the
    end. Each continues from where it stopped.

    Args:
        data: path of the dataset, a `DetectionDataset`, or a dict of datasets by split.
            AP is measured on the validation split, the same that `fine_tune` would use.
        out: path of the folder to write to: the best file in `best`, "choose.json",
            "choose.html" with the frontier of AP and milliseconds, and the runs of all
            candidates.
        target: string, a format such as "litert", to compare all its precisions, or a
            target such as "coral". Its files must run on this machine, because they are
            measured here.
        max_ms: float above 0, the most milliseconds for one image, from its file to its
            boxes, on this machine; None for no limit.
        max_mb: float above 0, the most megabytes (10^6 bytes) of the file; None for no
            limit.
        models: sequence of strings, the presets to compare.
        sizes: sequence of input sizes in pixels. An int is the longest side, and the
            input has the shape of the images. `(height, width)` is both sides, and
            `(256,)` a square.
        precisions: sequence of strings, the precisions of the format to compare; None
            for all.
        eta: int, 2 or more: one in `eta` candidates goes on to the next rung, which is
            `eta` times as long.
        rungs: int, number of rungs. None is as many as it takes to leave one candidate,
            but at most three. With 1, every candidate is trained to the end: an
            exhaustive search.
        timed_images: int, number of images to time each file with, after three images
            to warm up.
        threads: int, threads of the runtime; None for its own choice.
        resume: bool, whether to continue the search in `out`: what was measured and
            trained there is kept. If there is no search yet, a new one begins.
        overwrite: bool, whether to replace an earlier search in `out`. It is kept in
            "replaced_search" until the new one is complete, and put back if the new one
            ends before its first training. Other files in the folder are kept.
        **fields: fields of `RunConfiguration` for all trainings, such as `steps=1400`.

    Returns:
        `SearchResult`: the best file and its numbers, and the numbers of all others.

    Raises:
        ValueError, TypeError: If an argument is invalid, or no file is within the
            limits; then the message names the fastest and the smallest file. A
            candidate whose export or training fails is left out, and the result has the
            reason.
        FileExistsError: If `out` is not empty.
        RuntimeError: If the search to continue was made with other data or settings, if
            another process writes to `out`, or if no candidate could be trained, or
            exported after its training.

    Example:
        >>> choose("cells", "chosen/cells", max_ms=30, image_size=256)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `choose` sets `image_size` itself, by \
`sizes`: leave it out. ...
    """
    plan = _Plan(
        target=target,
        max_ms=max_ms,
        max_mb=max_mb,
        models=tuple(models),
        precisions=None if precisions is None else tuple(precisions),
        eta=eta,
        rungs=rungs,
        timed_images=timed_images,
        threads=threads,
    )
    check_resume_or_overwrite(resume, overwrite, "search")
    _check_fields(fields)
    folder = local_path(out, "`out`")
    datasets = datasets_in_memory(data)
    if datasets is None:
        fields["data"] = os.fspath(data)
    configuration = RunConfiguration(**fields)
    _check_sizes(sizes)
    splits = choose_splits(configuration, datasets)
    if not boxes_per_class(splits.validation, crowds=False).any():
        raise InvalidValueError(
            "AP cannot be measured: the images of the validation split have no box. "
            "Name a split that has boxes with `validation_split` (--set "
            "validation_split=NAME)."
        )
    search = _Search(pathlib.Path(folder), splits, configuration, plan, sizes)
    with only_writer(search.folder, "search"):
        return search.run(resume=resume, overwrite=overwrite)


def _check_fields(fields):
    check_fields(fields, RunConfiguration().to_dict(), "A run")
    for name, instead in _DECIDED.items():
        rule = f"`choose` sets `{name}` itself, by {instead}: leave it out"
        require(name not in fields, rule, **{name: fields.get(name)})
    rule = (
        "`batch_size` must be a number of images, so that it is the same for each "
        "candidate"
    )
    is_right = fields.get("batch_size") != "auto"
    require(is_right, rule, batch_size=fields.get("batch_size"))


def _check_sizes(sizes):
    for size in sizes:
        numbers = size if isinstance(size, (tuple, list)) else (size,)
        is_right = len(numbers) in (1, 2) and all(
            isinstance(number, int) and number > 0 for number in numbers
        )
        check_argument(is_right, "sizes", sizes, "sides in pixels or (height, width)")
    check_argument(len(sizes) > 0, "sizes", sizes, "one size or more")


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The settings of a search, checked on construction."""

    target: str
    max_ms: float | None
    max_mb: float | None
    models: tuple[str, ...]
    precisions: tuple[str, ...] | None
    eta: int
    rungs: int | None
    timed_images: int
    threads: int | None

    def __post_init__(self):
        check_choice("target", self.target, dict.fromkeys((*FORMATS, *TARGETS)))
        if self.target in TARGETS and TARGETS[self.target].needs_device:
            raise _NotHereError(self.target)
        for name in ("max_ms", "max_mb"):
            check_number(name, getattr(self, name), "(0, inf)", others=(None,))
        check_argument(len(self.models) > 0, "models", self.models, "one or more")
        for model in self.models:
            check_choice("models", model, MODEL_NAMES)
        check_whole_number("eta", self.eta, "[2, inf)")
        for name in ("rungs", "threads"):
            value = getattr(self, name)
            check_whole_number(name, value, "[1, inf)", others=(None,))
        check_whole_number("timed_images", self.timed_images, "[1, inf)")
        self.files()

    def files(self) -> list[Candidate]:
        """Returns the files of the target to compare, one for each precision."""
        every = [x for x in candidates() if self.target in (x.format, x.name)]
        if self.precisions is None:
            return every
        known = [_precision_of(one) for one in every if one.format is not None]
        rule = (
            f"The target '{self.target}' has a fixed precision: leave `precisions` "
            "(--precisions) out"
        )
        require(known, rule, precisions=self.precisions)
        for name in self.precisions:
            check_choice("precisions", name, known)
        return [one for one in every if _precision_of(one) in self.precisions]


def _precision_of(file):
    return file.options.get("precision", "float32")


def _is_exact(file):
    """Returns whether a file has the AP of the Keras model, so it can be assumed."""
    return _precision_of(file) in _EXACT and not file.needs_calibration


class _RungEnd(Exception):
    """Raised when a training has come to the end of a rung."""


class _StopAtEpoch(keras.callbacks.Callback):
    """Stops a run before an epoch as if it had been killed, after its checkpoint.

    `stop_training` would mark the run as complete, so that it could not be resumed.
    """

    def __init__(self, epochs):
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch, logs=None):
        if epoch >= self._epochs:
            raise _RungEnd


class _NotHereError(InvalidValueError):
    """Raised if the files of the target do not run on this machine."""

    def __init__(self, target):
        super().__init__(
            f"Files for '{target}' do not run on this machine, so that neither their "
            f"time nor their AP can be measured. Choose a format ({', '.join(FORMATS)})"
            " or a target that runs here instead, and export the winning model "
            f"afterwards: `effdet-keras export --target {target}`."
        )


class _Search:
    """One search in its folder, where each finished result is stored at once."""

    def __init__(self, folder, splits, configuration, plan, sizes):
        self.folder, self.splits, self.plan = folder, splits, plan
        self.earlier = EarlierResults(folder, _FILE, _PAGE, "search")
        self.configuration = configuration
        found = {_size_of(size, splits.train) for size in sizes}
        self.sizes = sorted(found, key=lambda size: (size[0] * size[1], size))
        for size in self.sizes:
            _check_fits_a_model(size, plan.models, configuration.model_config)
        self.files = {file.name: file for file in plan.files()}
        self.measured: list[MeasuredFile] = []
        self.rungs: list[list[RungResult]] = []
        self.finished: list[MeasuredFile] = []
        self.pretrained: dict[str, bool] = {}  # by model: whether it has a backbone
        self.images = None  # folder of the images for timing
        self.epochs = num_epochs(configuration, splits.train)
        if plan.rungs is not None:
            rung_epochs(self.epochs, plan.rungs, plan.eta)  # raises if too short
        fields = configuration.to_dict()
        for name in (*SPLIT_FIELDS, *_DECIDED):
            del fields[name]
        fields["verbose"] = 0 if fields["verbose"] == "auto" else fields["verbose"]
        self.fields = fields
        settings = {name: v for name, v in fields.items() if name != "verbose"}
        description = {
            "data": {name: fingerprint(d) for name, d in splits.by_role().items()},
            "search": {**dataclasses.asdict(plan), "sizes": self.sizes},
            "fields": settings,
        }
        self.description = json.loads(json.dumps(description))

    # --- The state of a search in its folder.

    def _begin(self, *, resume, overwrite):
        """Loads an earlier search to resume; returns one to replace, else None."""
        path = self.folder / _FILE
        if path.is_file() and resume:
            self._take_over(read_to_resume(path, self.description, "search"))
        elif path.is_file() and overwrite:
            return read_written(path, self.description, "search")
        else:
            check_empty_to_begin(self.folder, "search")
        return None

    def _take_over(self, before):
        self.measured = [_read_row(MeasuredFile, row) for row in before["measured"]]
        self.rungs = [
            [_read_row(RungResult, row) for row in rung] for rung in before["rungs"]
        ]
        files = [_read_row(MeasuredFile, row) for row in before["files"]]
        # Failed files are tried again, since the machine may have been the cause. Files
        # that no longer exist are made again.
        self.finished = [
            one for one in files if not one.failed and (self.folder / one.path).exists()
        ]
        self.pretrained = before.get("pretrained", {})
        if not self.rungs:
            failed = {one.candidate for one in self.measured if one.failed}
            self.measured = [x for x in self.measured if x.candidate not in failed]

    def _write(self, **more):
        lists = {"measured": self.measured, "rungs": self.rungs, "files": self.finished}
        rows = {name: _to_rows(value) for name, value in lists.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        found = {**self.description, "pretrained": self.pretrained, **rows, **more}
        text = json.dumps(found, indent=1) + "\n"
        write_text(self.folder / _FILE, text)

    # --- The search.

    def run(self, *, resume, overwrite):
        """Begins or resumes the search, and returns its result."""
        self.earlier.recover()
        before = self._begin(resume=resume, overwrite=overwrite)
        with self.earlier.kept(
            names=lambda: _names_in_folder(self.description),
            # Even if all trainings fail, "choose.json" has the reasons.
            has_results=lambda: bool(self.rungs),
        ):
            if before is not None:
                self.earlier.set_aside(_names_in_folder(before))
            self._write()
            return self._run()

    def _run(self):
        """Measures, trains and compares everything that is not done yet."""
        with tempfile.TemporaryDirectory() as folder:
            self.images = write_images(
                self.splits.validation, pathlib.Path(folder) / "images"
            )
            self._measure_untrained()
            self._check_any_fits()
            finalists = self._halve()
            self._measure_finished(finalists)
            return self._hand_over()

    def _measure_untrained(self):
        """Times each file untrained, but none larger than one that is over a limit."""
        print(f"{'before training':<44}{'ms':>8}{'MB':>8}", flush=True)
        for model in self.plan.models:
            over = {}  # from each file to the size at which it is over a limit
            for size in self.sizes:
                if any(one.candidate == (model, size) for one in self.measured):
                    rows = [x for x in self.measured if x.candidate == (model, size)]
                else:
                    rows = self._measure_candidate(model, size, over)
                    self.measured += rows
                    self._write()
                over |= {x.file: size for x in rows if x.reason and not x.failed}
                print("\n".join(map(_measured_line, rows)), flush=True)
        self._leave_out_random_starts()

    def _measure_candidate(self, model, size, over):
        """Returns the measured files of a model at a size, with untrained weights."""
        keras.utils.clear_session()
        rows = {
            name: MeasuredFile(model, size, name, reason=_smaller_is_over(over[name]))
            for name in self.files
            if name in over
        }
        # Formats store equal numbers only once, and new batch norms have equal numbers.
        # For files as large as trained ones, each batch norm gets numbers of its own.
        # These numbers are not suited for rounding. So rounded files are exported
        # first, from the model as it is.
        names = sorted(self.files, key=lambda name: _is_exact(self.files[name]))
        untrained, is_drawn = None, False
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                file = self.files[name]
                if name in over:
                    continue
                try:
                    if untrained is None:
                        untrained = self._untrained(model, size)
                    if _is_exact(file) and not is_drawn:
                        draw_weights(untrained)
                        is_drawn = True
                    path = self._export(
                        untrained,
                        file,
                        pathlib.Path(folder),
                        calibration_images=_FEW_IMAGES,
                    )
                except (*_MACHINE_ERRORS, _NotHereError):
                    raise
                except Exception as error:  # converters raise many kinds
                    rows[name] = _failed_file(model, size, name, error)
                else:
                    rows[name] = self._numbers_of(model, size, name, path)
        return [rows[name] for name in self.files]

    def _untrained(self, model, size):
        """Returns the model that will be trained, without loading a backbone.

        A detector has to be loaded: it may have classes and anchors of its own.
        """
        configuration = self.configuration.replace(model=model, image_size=size)
        if configuration.weights in ("auto", "imagenet"):
            nothing = {"checkpoint_type": None, "name_map": {}, "freeze": None}
            configuration = configuration.replace(weights=None, **nothing)
        return make_model(configuration, self.splits.train)

    def _export(self, model, file, folder, **more):
        """Exports a file, and returns the path that its runtime opens."""
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        options = dict(file.options)
        if file.needs_calibration:
            options |= {"calibration": self.splits.train, **more}
        report = model.export(path, file.format, verbose=0, **options)
        if report.format not in FORMATS:
            raise _NotHereError(self.plan.target)
        return file_of_export(path, report.format)

    def _numbers_of(self, model, size, name, path):
        """Measures time and size of a file, and compares them with the limits."""
        megabytes, plan = file_megabytes(path), self.plan
        row = MeasuredFile(model, size, name, megabytes=megabytes)
        if plan.max_mb is not None and megabytes > plan.max_mb:
            return dataclasses.replace(row, reason=f"larger than {plan.max_mb:g} MB")
        times = time_file(
            path, images=self.images, runs=plan.timed_images, threads=plan.threads
        )
        if "median_ms" not in times:
            return dataclasses.replace(row, reason=times["time_reason"], failed=True)
        row = dataclasses.replace(row, median_ms=times["median_ms"])
        if plan.max_ms is not None and row.median_ms > plan.max_ms:
            return dataclasses.replace(row, reason=f"slower than {plan.max_ms:g} ms")
        return row

    def _leave_out_random_starts(self):
        """Excludes models without an ImageNet backbone if other models have one."""
        if self.configuration.weights != "auto":
            return
        sizes = {
            one.model: one.image_size
            for one in self.measured
            if one.reason in ("", _NO_BACKBONE)
        }
        has_backbone = {}
        for name, size in sizes.items():
            options = {"model": name, "image_size": size}
            made = make_model(self.configuration.replace(**options), self.splits.train)
            has_backbone[name] = made.pretrained is not None
        self._check_same_start(has_backbone)
        self.pretrained = has_backbone
        if len(set(has_backbone.values())) == 2:
            self.measured = [
                dataclasses.replace(one, reason=_NO_BACKBONE)
                if not one.reason and not has_backbone[one.model]
                else one
                for one in self.measured
            ]
            left_out = [name for name, has in has_backbone.items() if not has]
            print(f"Left out: {', '.join(left_out)} ({_NO_BACKBONE}).", flush=True)
        self._write()

    def _check_same_start(self, has_backbone):
        """Raises if models of a resumed search would now start from other weights."""
        starts = {True: "an ImageNet backbone", False: "random weights"}
        for name, had in self.pretrained.items():
            has = has_backbone.get(name, had)
            if has != had:
                raise InvalidStateError(
                    f"The search in '{self.folder}' cannot be continued: {name} would "
                    f"now start from {starts[has]}, but it started from {starts[had]} "
                    "before. Begin again with `overwrite` (--overwrite) or in "
                    "another folder."
                )

    def _check_any_fits(self):
        if any(not one.reason for one in self.measured):
            return
        timed = [one for one in self.measured if one.median_ms is not None]
        sized = [one for one in self.measured if one.megabytes is not None]
        told = []
        if timed:
            one = min(timed, key=lambda one: one.median_ms)
            told.append(f"the fastest is {one} with {one.median_ms:.1f} ms")
        if sized:
            one = min(sized, key=lambda one: one.megabytes)
            told.append(f"the smallest is {one} with {one.megabytes:.1f} MB")
        failed = [x for x in self.measured if x.failed]
        if failed:  # failed files are over no limit
            told.append(f"{failed[0]} was {failed[0].reason}")
        if len(failed) == len(self.measured):
            raise InvalidValueError(
                f"No file could be exported and timed. {failed[0]} was "
                f"{failed[0].reason}"
            )
        raise InvalidValueError(
            f"No file is within the limits. Received: max_ms={self.plan.max_ms}, "
            f"max_mb={self.plan.max_mb}; {'; '.join(told)}. Raise the limits "
            "(--max-ms, --max-mb), or give smaller `models` (--models) or `sizes` "
            "(--sizes)."
        )

    def _halve(self):
        """Runs successive halving; returns the candidates trained to the end."""
        ranked = list(dict.fromkeys(x.candidate for x in self.measured if not x.reason))
        plan, count = self.plan, len(ranked)
        rungs = plan.rungs or num_rungs(count, plan.eta, self.epochs)
        if rungs == 1 and plan.rungs is None and count > 1:
            print(
                f"{self.epochs} epochs are too few for successive halving: all "
                f"{count} candidates are trained to the end."
            )
        ends = rung_epochs(self.epochs, rungs, plan.eta)
        # An exhaustive search evaluates as often as a search with the most rungs.
        often = max(self.epochs // plan.eta ** (MOST_RUNGS - 1), 1)
        evaluate_every = ends[0] if rungs > 1 else often
        for number, end in enumerate(ends):
            if number == len(self.rungs):
                self.rungs.append([])
            print(f"\nRung {number + 1} of {rungs}: {end} of {self.epochs} epochs")
            rung = self._train_rung(number, ranked, count, end, evaluate_every)
            by_candidate = {one.candidate: one for one in rung}
            trained = [by_candidate[x] for x in ranked if x in by_candidate]
            order = ranking(
                [one.ap for one in trained],
                self._costs([one.candidate for one in trained]),
                uncertainty(end / self.epochs),
            )
            # Candidates that did not have to be trained follow, to replace failures.
            tried = {one.candidate for one in self.rungs[number]}
            spare = [candidate for candidate in ranked if candidate not in tried]
            finalists = [trained[i].candidate for i in order]
            ranked = finalists + spare
            count = num_survivors(len(finalists), plan.eta)
        return finalists

    def _costs(self, ranked):
        """Returns each candidate's milliseconds, for a file that all have, if any."""
        times = [
            {one.file: one.median_ms for one in self._fitting(candidate)}
            for candidate in ranked
        ]
        shared = set.intersection(*map(set, times))
        return [max(found[name] for name in shared or found) for found in times]

    def _train_rung(self, number, ranked, count, end, evaluate_every):
        """Trains `count` candidates up to an epoch, and returns their results.

        A candidate that fails is replaced by the next one in rank.
        """
        rung = self.rungs[number]
        reached = []
        for candidate in ranked:
            if len(reached) == count:
                break
            found = next((one for one in rung if one.candidate == candidate), None)
            if found is None:
                found = self._train_candidate(candidate, end, evaluate_every)
                rung.append(found)
                self._write()
            print(_rung_line(found), flush=True)
            if not found.reason:
                reached.append(found)
        if not reached:
            raise InvalidStateError(
                "No candidate is left: none could be trained for "
                f"{count_of(end, 'epoch')}. The first, "
                f"{name_of(*rung[0].candidate)}, failed: {rung[0].reason}\n"
                f"'{self.folder / _FILE}' has the reasons for all of them. Correct "
                "the causes, and begin again with `overwrite` (--overwrite) or in "
                "another folder."
            )
        return reached

    def _train_candidate(self, candidate, end, evaluate_every):
        """Continues the training of a candidate up to an epoch; records a failure."""
        keras.utils.clear_session()
        began, log = _cpu_seconds(), RunFolder(self._run_folder(candidate)).log
        ap = median_ms = None
        reason = ""
        try:
            self._fit(candidate, end, evaluate_every)
            rows = [row for row in read_rows(log) if row["epoch"] <= end]
            ap, median_ms = self._ap_at_rung(candidate, rows)
        except _MACHINE_ERRORS:
            raise
        except Exception as error:  # the other candidates must not be lost
            rows, reason = read_rows(log), reason_of(error)
        return RungResult(
            *candidate,
            epochs=end,
            steps=rows[-1]["steps"] if rows else 0,
            ap=ap,
            median_ms=median_ms,
            cpu_seconds=round(_cpu_seconds() - began, 1),
            reason=reason,
        )

    def _fit(self, candidate, end, evaluate_every):
        """Trains a candidate in its run up to an epoch."""
        model, size = candidate
        datasets = {"train": self.splits.train, "val": self.splits.validation}
        fields = {**self.fields, "model": model, "image_size": size}
        fields["evaluate_every"] = evaluate_every
        out = self._run_folder(candidate)
        callbacks = [_StopAtEpoch(end)] if end < self.epochs else []
        with contextlib.suppress(_RungEnd):
            fine_tune(
                datasets,
                out=out,
                resume=RunFolder(out).has_run,
                callbacks=callbacks,
                **fields,
            )

    def _ap_at_rung(self, candidate, rows):
        """Returns the AP of a candidate's best file, and this file's milliseconds.

        A file without rounding has the AP of the Keras model, except for differences in
        its suppression. But if any candidate has only rounded files, then all are
        judged by the AP of a file.
        """
        files = self._fitting(candidate)
        exact = [one for one in files if _is_exact(self.files[one.file])]
        if exact:
            files = [min(exact, key=lambda one: one.median_ms)]
            if self._all_have_exact_files():
                aps = [row["AP"] for row in rows if row.get("AP") is not None]
                return max(aps), files[0].median_ms
        model = EfficientDet.from_archive(self._run_folder(candidate))
        found, errors = [], []
        with tempfile.TemporaryDirectory() as folder:
            for one in files:
                try:
                    path = self._export(
                        model, self.files[one.file], pathlib.Path(folder)
                    )
                    found.append((self._ap_of(path), one.median_ms))
                except _MACHINE_ERRORS:
                    raise
                except Exception as error:  # other files may succeed
                    errors.append(error)
        if not found:
            raise errors[0]
        return max(found, key=lambda pair: (pair[0], -pair[1]))

    def _all_have_exact_files(self):
        fitting = [one for one in self.measured if not one.reason]
        exact = {x.candidate for x in fitting if _is_exact(self.files[x.file])}
        return exact == {one.candidate for one in fitting}

    def _fitting(self, candidate):
        """Returns the measured files of a candidate that are within the limits."""
        return [x for x in self.measured if x.candidate == candidate and not x.reason]

    def _run_folder(self, candidate):
        return self.folder / _RUNS / _folder_name(*candidate)

    def _files_folder(self, candidate):
        return self.folder / _FILES / _folder_name(*candidate)

    def _ap_of(self, path, dataset=None):
        """Returns COCO's AP of a file, in its own runtime."""
        detector = ExportedDetector(open_runtime(path))
        dataset = self.splits.validation if dataset is None else dataset
        return float(evaluate(detector, dataset, verbose=False)["AP"])

    def _measure_finished(self, finalists):
        """Exports, times and evaluates the files of the finalists."""
        for candidate in finalists:
            todo = [
                one
                for one in self._fitting(candidate)
                if not any(
                    x.candidate == candidate and x.file == one.file
                    for x in self.finished
                )
            ]
            if not todo:
                continue
            model = EfficientDet.from_archive(self._run_folder(candidate))
            for one in todo:
                self.finished.append(self._measure_trained(model, one))
                self._write()

    def _measure_trained(self, model, one):
        """Measures a trained file again, with AP; or returns why that failed."""
        file, folder = self.files[one.file], self._files_folder(one.candidate)
        try:
            path = self._export(model, file, folder)
            row = self._numbers_of(*one.candidate, one.file, path)
            opened = path.relative_to(self.folder).as_posix()
            return dataclasses.replace(row, ap=self._ap_of(path), path=opened)
        except _MACHINE_ERRORS:
            raise
        except Exception as error:  # converters raise many kinds
            return _failed_file(*one.candidate, one.file, error)

    def _hand_over(self):
        """Copies the best file to its folder, and writes the results."""
        # Times differ a little between processes. A file that was within the limits
        # before the training, and is over a limit now, is ranked last.
        found = [one for one in self.finished if one.ap is not None]
        if not found:
            one = self.finished[0]
            raise InvalidStateError(
                "No candidate is left: no model that was trained to the end could be "
                f"exported and measured. {one} was {one.reason}"
            )
        best = max(found, key=lambda x: (not x.reason, x.ap, -(x.median_ms or 0)))
        source = self._files_folder(best.candidate)
        target = self.folder / _BEST
        written = (source / self.files[best.file].path).parent
        with atomic_write_all(target) as new:
            shutil.copytree(written, new / _BEST)
        path = target / (self.folder / best.path).relative_to(written)
        if self.splits.test is not None:
            test_ap = self._ap_of(path, self.splits.test)
            best = dataclasses.replace(best, test_ap=test_ap)
        result = SearchResult(
            best=best,
            path=path,
            run=self._run_folder(best.candidate),
            measured=tuple(self.measured),
            rungs=tuple(map(tuple, self.rungs)),
            files=tuple(self.finished),
            num_images=len(self.splits.validation),
        )
        self._write(best=dataclasses.asdict(best), path=os.fspath(path))
        result.save(self.folder / _PAGE)
        return result


def _names_in_folder(description):
    """Returns the names of what a search writes, except its JSON file and its page."""
    search = description["search"]
    names = [_folder_name(m, s) for m in search["models"] for s in search["sizes"]]
    folders = [f"{folder}/{name}" for folder in (_RUNS, _FILES) for name in names]
    return [*folders, _BEST]


def _folder_name(model, size):
    return f"{model}_{size[0]}x{size[1]}"


def _size_of(size, train):
    """Returns `(height, width)` of an input; `size` may be its longest side only."""
    if isinstance(size, (tuple, list)):
        return tuple(size) if len(size) == 2 else tuple(size) * 2
    return input_size_of_side(train.records, size)


def _check_fits_a_model(size, models, model_config):
    """Raises `InvalidValueError` for an input size that none of the models can have."""
    errors = []
    for model in models:
        try:
            EfficientDetConfig.from_name(model, **{**model_config, "image_size": size})
            return
        except InvalidValueError as error:
            errors.append(error)
    raise InvalidValueError(
        f"None of the models can have this size: leave it out of `sizes` (--sizes). "
        f"Received: {size[0]}x{size[1]}, for which {models[0]} says: {errors[0]}"
    )


def _smaller_is_over(size):
    return f"left out, because {size[0]}x{size[1]} is over a limit already"


def _failed_file(model, size, name, error):
    reason = f"not exported: {reason_of(error)}"
    return MeasuredFile(model, size, name, reason=reason, failed=True)


def _rung_line(one):
    """Returns the result of a candidate in a rung, as one line."""
    reached = f"failed: {one.reason}" if one.reason else f"AP {one.ap:.3f}"
    spent = in_words(one.cpu_seconds)
    return f"{name_of(*one.candidate):<36}{reached}  ({spent} of processor time)"


def _measured_line(one):
    """Returns the measurements of a file, as one line."""
    numbers = (one.median_ms, one.megabytes)
    texts = ("-" if x is None else f"{x:.1f}" for x in numbers)
    cells = "".join(f"{text:>8}" for text in texts)
    return f"{name_of(*one.candidate):<30} {one.file:<13}{cells}  {one.reason}".rstrip()


def _cpu_seconds():
    """Returns the CPU seconds of this process and of its child processes that ended."""
    return sum(os.times()[:4])


def _to_rows(found):
    """Converts lists of dataclasses, which may be nested, to dicts for JSON."""
    return [
        _to_rows(x) if isinstance(x, list) else dataclasses.asdict(x) for x in found
    ]


def _read_row(cls, row):
    return cls(**{**row, "image_size": tuple(row["image_size"])})
