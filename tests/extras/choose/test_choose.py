"""`choose`: what is measured, trained, left out, handed over, and continued."""

import json
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest
from support.tiny import LITE0
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras._internal.whole_files import files_in
from effdet_keras.data import load_splits, write_shapes
from effdet_keras.extras.choose import choose as module
from effdet_keras.extras.choose.choose import choose
from effdet_keras.extras.choose.search_result import (
    MeasuredFile,
    RungResult,
    SearchResult,
)
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.weights.checkpoint_files import CONFIGURATION_FILE

pytestmark = pytest.mark.tensorflow

MODELS = ("efficientdet-lite0", "efficientdet-lite1")
SIZES = (64, 96, 128)
SEARCH = {"models": MODELS, "sizes": SIZES, "target": "litert", "eta": 3}
# AP of each candidate after all epochs: the best of all is the largest of lite1.
REACHED = {
    ("efficientdet-lite0", 64): 0.30,
    ("efficientdet-lite0", 96): 0.40,
    ("efficientdet-lite0", 128): 0.45,
    ("efficientdet-lite1", 64): 0.35,
    ("efficientdet-lite1", 96): 0.50,
    ("efficientdet-lite1", 128): 0.60,
}
LOST = {"float32": 0.0, "float16": 0.0, "dynamic": 0.01, "int8": 0.2}
FASTER = {"float32": 1.0, "float16": 1.0, "dynamic": 0.8, "int8": 0.5}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=8, num_valid=4)
    return folder


class World:
    """Stand-ins: models are their names and sizes, files are text, times are areas."""

    def __init__(self):
        self.trained = []  # candidate, first and last epoch
        self.exported = []  # candidate and precision
        self.drawn = []  # those of models whose batch norms have numbers of their own
        self.pretrained = {}  # by model: what was loaded
        self.dies_before = None  # the number of a training
        self.diverges = {}  # candidate -> the epoch that it does not finish
        self.cannot_export = set()  # candidates and precisions
        self.drift = 1.0  # of a later measurement

    def make_model(self, configuration, train):
        size = configuration.image_size[0]
        name = configuration.model
        found = self.pretrained.get(name)
        return FakeModel(self, (name, size), pretrained=found)

    def draw_weights(self, model):
        model.is_drawn = True

    def fine_tune(self, datasets, out, resume, callbacks, **fields):
        if len(self.trained) == self.dies_before:
            raise KeyboardInterrupt
        log = RunFolder(out).log
        rows = log.read_text().splitlines() if resume else []
        assert resume == bool(rows)
        candidate = (fields["model"], fields["image_size"][0])
        first = len(rows)
        try:
            for epoch in range(first, fields["epochs"]):
                if epoch == self.diverges.get(candidate):
                    raise ek.errors.NonFiniteLossError(
                        "The loss is not finite.\nSee x."
                    )
                for callback in callbacks:
                    callback.on_epoch_begin(epoch)
                row = {"epoch": epoch + 1, "steps": 2 * (epoch + 1)}
                if (epoch + 1) % fields["evaluate_every"] == 0:
                    row["AP"] = REACHED[candidate] * (epoch + 1) / fields["epochs"]
                rows.append(json.dumps(row))
        finally:
            self.trained.append((candidate, first, len(rows)))
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("".join(f"{row}\n" for row in rows))
            (log.parent / CONFIGURATION_FILE).write_text("")

    def from_archive(self, path):
        name, _, size = pathlib.Path(path).name.partition("_")
        return FakeModel(self, (name, int(size.partition("x")[0])))

    def time_file(self, path, *, images, runs, threads):
        model, size, precision = path.read_text().split()
        number = 2 if model.endswith("lite1") else 1
        milliseconds = number * int(size) / 8 * FASTER[precision]
        is_kept = "files" in path.parts
        return {"median_ms": milliseconds * (self.drift if is_kept else 1.0)}

    def evaluate(self, path, dataset, **options):
        model, size, precision = path.read_text().split()
        return {"AP": REACHED[model, int(size)] - LOST[precision]}


class FakeModel:
    quantization = None
    is_drawn = False

    def __init__(self, world, candidate, pretrained=None):
        self.world, self.candidate, self.pretrained = world, candidate, pretrained

    def export(self, path, format, *, verbose, precision="float32", **options):
        assert ("calibration" in options) == (precision == "int8")
        if (*self.candidate, precision) in self.world.cannot_export:
            raise RuntimeError("no such operation\nin many lines")
        if self.is_drawn:
            assert precision in ("float32", "float16")
            self.world.drawn.append((*self.candidate, precision))
        self.world.exported.append((*self.candidate, precision))
        path.write_text(f"{self.candidate[0]} {self.candidate[1]} {precision}")
        return types.SimpleNamespace(format=format)


@pytest.fixture
def world(monkeypatch):
    world = World()
    for name in ("make_model", "fine_tune", "time_file", "evaluate"):
        monkeypatch.setattr(module, name, getattr(world, name))
    fake = types.SimpleNamespace(from_archive=world.from_archive)
    monkeypatch.setattr(module, "EfficientDet", fake)
    monkeypatch.setattr(module, "open_runtime", lambda path: path)
    monkeypatch.setattr(module, "ExportedDetector", lambda path: path)
    monkeypatch.setattr(module, "draw_weights", world.draw_weights)
    # Nothing is made that would have to be cleared, which takes a second.
    monkeypatch.setattr(module.keras.utils, "clear_session", lambda: None)
    return world


def fields(**more):
    made = tiny_run(epochs=9)
    del made["image_size"]
    return {**made, **SEARCH, **more}


def candidates_of(rows):
    return [(one.model, one.image_size[0]) for one in rows]


# --- The search.


@pytest.mark.smoke
def test_the_better_third_is_trained_on_and_the_best_file_is_handed_over(
    shapes, world, tmp_path, capsys
):
    found = choose(shapes, tmp_path / "out", **fields())
    first, second, last = found.rungs
    assert [len(rung) for rung in found.rungs] == [6, 2, 1]
    assert [(rung[0].epochs, rung[0].steps) for rung in found.rungs] == [
        (1, 2),
        (3, 6),
        (9, 18),
    ]
    assert candidates_of(second) == [(MODELS[1], 128), (MODELS[1], 96)]
    assert candidates_of(last) == [(MODELS[1], 128)]
    assert first[0].ap == pytest.approx(0.30 / 9)
    exact = [one for one in world.exported[:24] if one[2] in ("float32", "float16")]
    assert world.drawn == exact and len(exact) == 12
    # Each epoch is trained once, and none beyond the rung.
    assert world.trained[6:] == [
        ((MODELS[1], 128), 1, 3),
        ((MODELS[1], 96), 1, 3),
        ((MODELS[1], 128), 3, 9),
    ]
    assert {epochs[1:] for epochs in world.trained[:6]} == {(0, 1)}
    # Of two files with the same AP it is the faster, and they are alike.
    assert str(found.best) == "efficientdet-lite1 at 128x128 as litert"
    assert (found.best.ap, found.best.median_ms) == (0.60, 32.0)
    assert found.path.read_text() == "efficientdet-lite1 128 float32"
    assert found.path == tmp_path / "out" / "best" / "model.tflite"
    assert found.run == tmp_path / "out" / "runs" / "efficientdet-lite1_128x128"
    assert {(x.file, round(x.ap, 2)) for x in found.files} == {
        ("litert", 0.60),
        ("litert-float16", 0.60),
        ("litert-dynamic", 0.59),
        ("litert-int8", 0.40),
    }
    page = (tmp_path / "out" / "choose.html").read_text()
    assert "<svg" in page and "AP and latency" in page
    assert "after 6 steps" in page and "validation split, by which" in page
    assert "AP 0.067" in capsys.readouterr().out


def test_what_is_over_a_limit_is_not_trained_and_larger_sizes_not_even_written(
    shapes, world, tmp_path
):
    found = choose(
        shapes, tmp_path / "out", max_ms=20, **fields(precisions=["float32"])
    )
    assert candidates_of(found.rungs[0]) == [
        (MODELS[0], 64),
        (MODELS[0], 96),
        (MODELS[0], 128),
        (MODELS[1], 64),
    ]
    assert (MODELS[1], 96, "float32") in world.exported  # 24 ms
    assert (MODELS[1], 128, "float32") not in world.exported
    reasons = {(x.model, x.image_size[0]): x.reason for x in found.measured}
    assert reasons[MODELS[1], 96] == "slower than 20 ms"
    assert reasons[MODELS[1], 128] == "left out, because 96x96 is over a limit already"
    assert str(found.best) == "efficientdet-lite0 at 128x128 as litert"


def test_nothing_within_the_limits_names_the_fastest_and_the_smallest(
    shapes, world, tmp_path
):
    message = (
        "No file is within the limits. Received: max_ms=1, max_mb=None; the fastest is "
        "efficientdet-lite0 at 64x64 as litert-int8 with 4.0 ms; the smallest is .* MB"
    )
    with pytest.raises(ValueError, match=message):
        choose(shapes, tmp_path / "out", max_ms=1, **fields())
    assert not world.trained
    with pytest.raises(ValueError, match="max_mb=1e-09; the smallest is"):
        choose(shapes, tmp_path / "other", max_mb=1e-9, **fields())


def test_a_file_that_could_not_be_timed_says_why(shapes, world, tmp_path, monkeypatch):
    told = {"time_reason": "not timed: MemoryError"}
    monkeypatch.setattr(module, "time_file", lambda *x, **y: told)
    message = "No file could be exported and timed.*litert was not timed: MemoryError"
    with pytest.raises(ValueError, match=message):
        choose(shapes, tmp_path / "out", **fields())


def test_a_candidate_that_fits_in_8_bits_alone_is_judged_in_8_bits(
    shapes, world, tmp_path
):
    """Its live model would win each rung, and its file none."""
    options = fields(precisions=["float32", "int8"], sizes=(96, 128))
    found = choose(shapes, tmp_path / "out", max_ms=16, **options)
    by_candidate = {(x.model, x.image_size[0]): x for x in found.rungs[0]}
    # 32 ms in float32, and 16 in int8, which loses 0.2.
    rounded = by_candidate[MODELS[1], 128]
    assert (rounded.ap, rounded.median_ms) == (pytest.approx(0.40), 16.0)
    # All are judged by a file then: those of the others round nothing.
    assert by_candidate[MODELS[0], 128].ap == 0.45


def test_the_slower_of_candidates_is_told_by_files_of_the_same_kind(
    shapes, world, tmp_path, monkeypatch
):
    """Of the larger one the fast file has more AP, of the smaller the slow one."""
    lost = {"dynamic": 0.01, "int8": 0.0, "float32": 0.0, "float16": 0.0}

    def evaluate(path, dataset, **options):
        model, _, precision = path.read_text().split()
        worse = {"int8": "dynamic", "dynamic": "int8"}.get(precision, precision)
        name = precision if model == MODELS[1] else worse
        return {"AP": (0.500 if model == MODELS[1] else 0.501) - lost[name]}

    monkeypatch.setattr(module, "evaluate", evaluate)
    monkeypatch.setitem(FASTER, "int8", 0.3)
    options = fields(precisions=["dynamic", "int8"], sizes=(64,))
    found = choose(shapes, tmp_path / "out", **options)
    # Of files of one kind the larger one has twice the time.
    assert [one.median_ms for one in found.rungs[0]] == pytest.approx([6.4, 4.8])
    assert candidates_of(found.rungs[1]) == [(MODELS[1], 64)]


def test_what_learns_far_better_goes_on_though_it_is_smaller(
    shapes, world, tmp_path, monkeypatch
):
    """0.100 after a ninth of the steps, where the larger ones have 0.006."""
    small = (MODELS[0], 64)
    reached = {one: 0.9 if one == small else 0.05 for one in REACHED}
    monkeypatch.setattr(sys.modules[__name__], "REACHED", reached)
    found = choose(shapes, tmp_path / "out", **fields(precisions=["float32"]))
    assert candidates_of(found.rungs[1])[0] == small
    assert (found.best.model, found.best.image_size[0]) == small


def test_models_without_a_backbone_do_not_compete_with_those_that_have_one(
    shapes, world, tmp_path, capsys
):
    world.pretrained = {MODELS[0]: "backbone"}
    found = choose(shapes, tmp_path / "out", **fields(weights="auto"))
    assert {model for model, _ in candidates_of(found.rungs[0])} == {MODELS[0]}
    assert f"Left out: {MODELS[1]} (no ImageNet backbone" in capsys.readouterr().out
    # Another one is installed meanwhile: the search would mix both starts.
    world.pretrained = dict.fromkeys(MODELS, "backbone")
    said = f"{MODELS[1]} would now start from an ImageNet"
    with pytest.raises(RuntimeError, match=said):
        choose(shapes, tmp_path / "out", resume=True, **fields(weights="auto"))
    world.pretrained = {}
    found = choose(shapes, tmp_path / "other", **fields(weights="auto"))
    assert len(found.rungs[0]) == 6


def test_one_rung_is_an_exhaustive_search(shapes, world, tmp_path):
    found = choose(shapes, tmp_path / "out", rungs=1, **fields(precisions=["float32"]))
    assert [one[1:] for one in world.trained] == [(0, 9)] * 6
    assert len(found.files) == 6 and found.best.ap == 0.60


@pytest.mark.parametrize("lost", [0.0, 0.019, 0.021])
def test_ap_that_the_file_loses_is_told(lost):
    """Suppression across classes loses much where these look alike."""
    file = MeasuredFile("efficientdet-lite0", (192, 192), "litert", 9.0, 13.1, ap=0.4)
    rung = RungResult(*file.candidate, 9, 90, 0.4 + lost, 9.0, 80.0)
    places = pathlib.Path("best"), pathlib.Path("run")
    found = SearchResult(file, *places, (file,), ((rung,),), (file,), num_images=40)
    said = f"The trained model has AP {0.4 + lost:.3f} on these images"
    assert (said in str(found)) == (lost > 0.02)


def test_a_time_that_is_over_the_limit_in_the_end_is_told(
    shapes, world, tmp_path, capsys
):
    world.drift = 1.1
    options = fields(precisions=["float32"], models=MODELS[:1], sizes=(128,))
    found = choose(shapes, tmp_path / "out", max_ms=16, **options)
    assert found.best.median_ms == pytest.approx(17.6)
    said = "and is now slower than 16 ms: times on this machine vary by that much."
    table, _, lines = str(found).partition("model and size")
    assert said in lines and "slower than 16 ms" in table
    assert said in (tmp_path / "out" / "choose.html").read_text()


# --- A search that was stopped.


@pytest.mark.parametrize("dies_before", [0, 4, 7, 8])
def test_a_killed_search_continues_where_it_stood(
    shapes, world, tmp_path, dies_before, monkeypatch
):
    whole = choose(shapes, tmp_path / "whole", **fields())
    trained = world.trained[:]
    del world.trained[:]
    world.dies_before = dies_before
    with pytest.raises(KeyboardInterrupt):
        choose(shapes, tmp_path / "out", **fields())
    world.dies_before = None
    exported = len(world.exported)
    found = choose(shapes, tmp_path / "out", resume=True, **fields())
    assert world.trained == trained
    assert len(world.exported) == exported + 4  # those of the winner alone
    assert candidates_of(found.rungs[1]) == candidates_of(whole.rungs[1])
    assert (found.best, found.files) == (whole.best, whole.files)
    # What was removed is made again, and the file that was handed over stays.
    shutil.rmtree(tmp_path / "out" / "files")
    again = choose(shapes, tmp_path / "out", resume=True, **fields())
    assert world.trained == trained and len(world.exported) == exported + 8
    assert again.best == found.best and again.path.is_file()
    shutil.rmtree(tmp_path / "out" / "files")
    with monkeypatch.context() as patch:
        patch.setattr(FakeModel, "export", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            choose(shapes, tmp_path / "out", resume=True, **fields())
    assert again.path.is_file()
    choose(shapes, tmp_path / "out", resume=True, **fields())
    exported = len(world.exported) - 4
    # Nothing is left to do.
    choose(shapes, tmp_path / "out", resume=True, **fields())
    assert world.trained == trained and len(world.exported) == exported + 4


def test_only_the_same_search_continues(shapes, world, tmp_path):
    out = tmp_path / "out"
    choose(shapes, out, **fields())
    with pytest.raises(FileExistsError, match=r"--resume.*--overwrite"):
        choose(shapes, out, **fields())
    with pytest.raises(RuntimeError, match="begun with another value of `search`"):
        choose(shapes, out, resume=True, max_ms=30, **fields())
    with pytest.raises(RuntimeError, match="begun with another value of `fields`"):
        choose(shapes, out, resume=True, **fields(seed=1))
    other = load_splits(shapes)
    other["train"] = other["train"].subset(range(6))
    with pytest.raises(RuntimeError, match="begun with another value of `data`"):
        choose(other, out, resume=True, **fields())
    written = (out / "choose.json").read_text()
    for damaged in (written[:99], "[1]", "{}"):
        (out / "choose.json").write_text(damaged)
        for how in ("resume", "overwrite"):
            with pytest.raises(
                RuntimeError, match=r"choose\.json' was not written.*Move the file"
            ):
                choose(shapes, out, **{how: True}, **fields())
    (out / "choose.json").write_text(written)
    del world.trained[:]
    # What it wrote goes, and nothing else.
    mine = [out / "notes.txt", out / "runs" / "mine" / "log.txt", out / "files.txt"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    gone = [
        out / "runs" / "efficientdet-lite0_64x64" / "log.jsonl",
        out / "files" / "efficientdet-lite1_128x128",
        out / "best",
    ]
    assert all(path.exists() for path in gone)
    world.dies_before = 0
    with pytest.raises(KeyboardInterrupt):
        choose(shapes, out, overwrite=True, **fields(sizes=(96,)))
    assert not any(
        path.exists() for path in (*gone, out / "files", out / "choose.html")
    )
    world.dies_before = None
    choose(shapes, out, overwrite=True, **fields())
    assert len(world.trained) == 9
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not (out / "replaced_search").exists()
    with pytest.raises(ValueError, match="`resume`.*give one of the two"):
        choose(shapes, out, resume=True, overwrite=True, **fields())
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        choose(shapes, tmp_path / "files", overwrite=True, **fields())


def test_a_search_that_ends_before_its_trainings_gives_the_earlier_one_back(
    shapes, world, tmp_path, capsys
):
    out = tmp_path / "out"
    choose(shapes, out, **fields())
    (out / "runs" / "notes.txt").write_text("mine")
    before = {name: (out / name).read_bytes() for name in files_in(out)}
    with pytest.raises(ValueError, match="No file is within the limits"):
        choose(shapes, out, overwrite=True, max_mb=1e-9, **fields())
    assert {name: (out / name).read_bytes() for name in files_in(out)} == before
    assert not (out / "replaced_search").exists()
    assert f"the earlier one is again in '{out}'" in capsys.readouterr().out
    # If a training began, the new search can be resumed, and the earlier one stays.
    world.dies_before = len(world.trained)
    with pytest.raises(KeyboardInterrupt):
        choose(shapes, out, overwrite=True, **fields())
    aside = out / "replaced_search"
    assert f"is still in '{aside}'" in capsys.readouterr().out
    kept = {name: (aside / name).read_bytes() for name in files_in(aside)}
    assert {**kept, "runs/notes.txt": b"mine"} == before
    world.dies_before = None
    choose(shapes, out, resume=True, **fields())
    assert not aside.exists()


def test_two_searches_do_not_write_to_one_folder(shapes, world, tmp_path, monkeypatch):
    """The second is told at once, and the first goes on as if it had not been there."""
    out, told = tmp_path / "out", []
    fine_tune = module.fine_tune

    def beside(*arguments, **options):
        for again in ({"resume": True}, {"overwrite": True}) if not told else ():
            with pytest.raises(RuntimeError) as error:
                choose(shapes, out, **again, **fields())
            told.append(str(error.value))
        return fine_tune(*arguments, **options)

    monkeypatch.setattr(module, "fine_tune", beside)
    found = choose(shapes, out, **fields())
    assert len(world.trained) == 9 and found.best.ap == 0.60
    assert len(told) == 2
    for text in told:
        assert text.startswith("A search needs a folder of its own")
        assert str(out) in text and "Name another folder, or wait" in text
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


# --- Candidates that fail.


def test_a_training_that_diverges_ends_its_candidate_alone(
    shapes, world, tmp_path, capsys
):
    """The next in rank takes its place."""
    world.diverges = {(MODELS[0], 96): 0, (MODELS[1], 128): 2}
    found = choose(shapes, tmp_path / "out", **fields())
    first, second, last = found.rungs
    assert [(x.ap is None, x.steps) for x in first].count((True, 0)) == 1
    # Of six the first failed, and two of five go on: the better one fails later.
    assert candidates_of(second) == [
        (MODELS[1], 128),
        (MODELS[1], 96),
        (MODELS[0], 128),
    ]
    assert (second[0].ap, second[0].steps) == (None, 4)
    assert second[0].reason == "The loss is not finite."
    assert candidates_of(last) == [(MODELS[1], 96)]
    assert (found.best.model, found.best.ap) == (MODELS[1], 0.50)
    said = (
        "efficientdet-lite1 at 128x128 failed in training, after 4 steps: The loss is"
    )
    text, page = str(found), (tmp_path / "out" / "choose.html").read_text()
    assert said in text and said in page
    assert "The chart does not show 2 failures, listed below." in page
    assert "AP, 6 steps" in text and "failed" in text.partition("before training")[0]
    assert "failed: The loss is not finite." in capsys.readouterr().out
    # It stays left out, and nothing is trained again.
    count = len(world.trained)
    world.diverges = {}
    again = choose(shapes, tmp_path / "out", resume=True, **fields())
    assert (again.best, again.rungs) == (found.best, found.rungs)
    assert len(world.trained) == count


def test_a_search_ends_in_an_error_where_all_trainings_fail(shapes, world, tmp_path):
    world.diverges = dict.fromkeys(REACHED, 0)
    message = (
        "No candidate is left: none could be trained for 1 epoch. The first, "
        "efficientdet-lite0 at 64x64, failed: The loss is not finite."
    )
    with pytest.raises(RuntimeError, match=message):
        choose(shapes, tmp_path / "out", **fields())
    assert len(world.trained) == 6
    rows = json.loads((tmp_path / "out" / "choose.json").read_text())["rungs"][0]
    assert [row["reason"] for row in rows] == ["The loss is not finite."] * 6


def test_a_file_that_cannot_be_written_is_left_out(shapes, world, tmp_path):
    """Larger sizes are tried all the same: an error is no limit."""
    broken = [(model, 64, precision) for model in MODELS for precision in LOST]
    world.cannot_export = {*broken, (MODELS[1], 128, "float32")}
    found = choose(shapes, tmp_path / "out", **fields())
    reasons = {(x.candidate, x.file): x.reason for x in found.measured if x.reason}
    assert reasons == {
        **{
            ((model, (64, 64)), file.name): (
                "not exported: RuntimeError: no such operation"
            )
            for model in MODELS
            for file in module.candidates()
            if file.format == "litert"
        },
        ((MODELS[1], (128, 128)), "litert"): (
            "not exported: RuntimeError: no such operation"
        ),
    }
    assert {one.image_size[0] for one in found.rungs[0]} == {96, 128}
    assert str(found.best) == "efficientdet-lite1 at 128x128 as litert-float16"
    assert "no such operation" in str(found)


def chosen_where_export_breaks(shapes, world, out, broken, options):
    """What a search finds whose files can be written before the training alone."""
    world.dies_before = 0
    with pytest.raises(KeyboardInterrupt):
        choose(shapes, out, **options)
    world.dies_before = None
    world.cannot_export = broken
    return choose(shapes, out, resume=True, **options)


def test_a_file_that_cannot_be_written_of_trained_weights_is_told(
    shapes, world, tmp_path
):
    options = fields(models=MODELS[:1], sizes=(64,), precisions=["float32", "int8"])
    broken = {(MODELS[0], 64, "float32")}
    found = chosen_where_export_breaks(shapes, world, tmp_path / "out", broken, options)
    assert found.best.file == "litert-int8"
    said = "efficientdet-lite0 at 64x64 as litert was not exported: RuntimeError: no"
    assert said in str(found)
    assert said in (tmp_path / "out" / "choose.html").read_text()


def test_who_was_not_needed_takes_the_place_of_who_fails_later(shapes, world, tmp_path):
    """Both of the second rung fail in the end, and a third goes on from the first."""
    world.diverges = {(MODELS[1], 128): 5, (MODELS[1], 96): 2}
    found = choose(shapes, tmp_path / "out", **fields(precisions=["float32"]))
    _, second, last = found.rungs
    assert candidates_of(second) == [
        (MODELS[1], 128),
        (MODELS[1], 96),
        (MODELS[0], 128),
    ]
    world.diverges[MODELS[0], 128] = 7
    found = choose(shapes, tmp_path / "other", **fields(precisions=["float32"]))
    *_, last = found.rungs
    assert candidates_of(last)[:2] == [(MODELS[1], 128), (MODELS[0], 128)]
    assert not last[-1].reason and found.best.candidate == last[-1].candidate
    assert world.trained[-1][1:] == (1, 9)


def test_a_file_that_fails_in_a_rung_leaves_the_other(shapes, world, tmp_path):
    options = fields(precisions=["dynamic", "int8"], models=MODELS[:1], sizes=(64,))
    broken = {(MODELS[0], 64, "int8")}
    found = chosen_where_export_breaks(shapes, world, tmp_path / "out", broken, options)
    assert found.best.file == "litert-dynamic"
    assert [one.reason for one in found.rungs[0]] == [""]


def test_files_that_cannot_be_timed_any_more_are_told_and_tried_again(
    shapes, world, tmp_path, monkeypatch
):
    options = fields(models=MODELS[:1], sizes=(64,), precisions=["float32"])
    time_file = world.time_file

    def dies(path, **how):
        lacks = "files" in path.parts
        return {"time_reason": "not timed: killed"} if lacks else time_file(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(module, "time_file", dies)
        found = choose(shapes, tmp_path / "out", **options)
    assert found.best.median_ms is None and "and is now not timed: killed" in str(found)
    found = choose(shapes, tmp_path / "out", resume=True, **options)
    assert (found.best.median_ms, found.best.reason) == (8.0, "")
    assert len(world.trained) == 1


def _full_disk(*arguments, **options):
    raise OSError(28, "No space left on device")


def test_a_full_disk_ends_the_search_and_is_no_fault_of_a_candidate(
    shapes, world, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(module, "fine_tune", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            choose(shapes, tmp_path / "out", **fields())
    found = choose(shapes, tmp_path / "out", resume=True, **fields())
    assert not found.failures() and len(world.trained) == 9


# --- What cannot be right.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": "litertt"}, "`target` must be one of"),
        ({"models": ("efficientdet-lite9",)}, "`models` must be one of"),
        ({"sizes": (0,)}, "`sizes`"),
        ({"sizes": ()}, "`sizes`"),
        ({"sizes": (64, 7)}, "leave it out of `sizes`.*Received: 7x7.*`max_level`"),
        ({"target": "hailo"}, "Files for 'hailo' do not run on this machine"),
        (
            {"target": "foo"},
            "'executorch', 'torch', 'mediapipe', 'coral', 'frigate', 'litert-gpu', "
            "'litert-npu', 'tf-serving', 'triton', 'browser', 'coreml'",
        ),
        ({"precisions": ("int4",)}, "`precisions` must be one of 'float32'"),
        ({"target": "coral", "precisions": ("int8",)}, "has a fixed precision"),
        ({"max_ms": 0}, "`max_ms`"),
        ({"eta": 1}, "`eta`"),
        ({"rungs": 0}, "`rungs`"),
        ({"image_size": 64}, "`choose` sets `image_size` itself, by `sizes`"),
        ({"time_budget": "1h"}, "`choose` sets `time_budget` itself, by `steps`"),
        ({"batch_size": "auto"}, "`batch_size` must be a number of images"),
        ({"epoch": 5}, "Did you mean 'epochs'"),
    ],
)
def test_what_cannot_be_right_is_told_before_any_work(
    shapes, world, tmp_path, wrong, message
):
    with pytest.raises((ValueError, TypeError), match=message):
        choose(shapes, tmp_path / "out", **fields(**wrong))
    assert not world.exported and not (tmp_path / "out").exists()


def test_a_target_that_runs_on_a_device_alone_is_refused(
    shapes, world, tmp_path, monkeypatch
):
    def export(self, path, format, **options):
        path.mkdir()
        return types.SimpleNamespace(format="hailo")

    monkeypatch.setattr(FakeModel, "export", export)
    message = "Files for 'triton' do not run on this machine.*--target triton"
    with pytest.raises(ValueError, match=message):
        choose(shapes, tmp_path / "out", **fields(target="triton"))
    assert not world.trained


def test_a_training_too_short_for_its_rungs(shapes, world, tmp_path, capsys):
    with pytest.raises(ValueError, match="need 9 epochs or more. Received: epochs=4"):
        choose(shapes, tmp_path / "out", rungs=3, **fields(epochs=4))
    assert not world.exported
    found = choose(shapes, tmp_path / "out", **fields(epochs=4))
    assert [rung[0].epochs for rung in found.rungs] == [1, 4]
    capsys.readouterr()
    found = choose(shapes, tmp_path / "other", **fields(epochs=2))
    assert len(found.rungs) == 1 and len(world.trained) == 8 + 6
    assert "2 epochs are too few for successive halving" in capsys.readouterr().out


def test_the_validation_split_must_have_boxes(world, tmp_path):
    images = np.zeros((12, 8, 8, 3), "uint8")
    boxes = [[[1, 1, 5, 5]]] * 12
    train = ek.data.from_arrays(images, boxes, [[0]] * 12, ["cat"])
    empty = ek.data.from_arrays(images, [[]] * 12, [[]] * 12, ["cat"])
    with pytest.raises(ValueError, match="AP cannot be measured"):
        choose({"train": train, "val": empty}, tmp_path / "out", **fields())


def test_the_command_passes_its_arguments_on(shapes, world, tmp_path, capsys):
    out = str(tmp_path / "out")
    line = ["choose", str(shapes), "--out", out, "--max-ms", "20", "--sizes", "64"]
    line += ["128x128", "--models", MODELS[0], "--precisions", "float32", "int8"]
    line += ["--set", "weights=none", "--set", "epochs=9", "--batch-size", "4"]
    assert cli.main(line) == 0
    said = capsys.readouterr().out
    assert "efficientdet-lite0 at 128x128 as litert: AP 0.450, 16.0 ms" in said
    assert "best/model.tflite" in said and "choose.html" in said
    assert cli.main(line) == 1
    assert "is not empty" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["choose", str(shapes), "--out", out, "--sizes", "abc"])
    assert "such as 192x256. Received: 'abc'" in capsys.readouterr().err


# --- Real trainings.


@pytest.mark.slow
def test_the_winner_has_the_weights_of_a_training_that_never_stopped(shapes, tmp_path):
    pytest.importorskip("onnxruntime")
    made = fields(target="onnx", models=MODELS[:1], sizes=(64, 96), timed_images=1)
    made["epochs"] = 3
    made["model_config"]["backbone"] = LITE0  # the process that times files knows it
    found = choose(shapes, tmp_path / "out", **made)
    assert [len(rung) for rung in found.rungs] == [2, 1]
    assert not found.best.reason and found.path.suffix == ".onnx"
    (last,) = found.rungs[-1]
    settings = {name: made[name] for name in made.keys() - SEARCH.keys()}
    del settings["timed_images"]
    straight = fine_tune(
        load_splits(shapes),
        MODELS[0],
        out=tmp_path / "straight",
        image_size=last.image_size,
        evaluate_every=1,
        verbose=0,
        **settings,
    )
    chosen = ek.EfficientDet.from_archive(found.run)
    for ours, theirs in zip(chosen.get_weights(), straight.model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)
    assert found.best.ap == pytest.approx(last.ap, abs=0.02)
