"""`forecast`: its parts, what it measures, its text, its page and how it goes on."""

import json
import types

import numpy as np
import pytest
from support.clips import write_clip
from support.tiny_run import tiny_run

from effdet_keras import cli
from effdet_keras._internal.whole_files import files_in
from effdet_keras.data import from_arrays, load, load_splits, write_shapes
from effdet_keras.data.split_groups import ImageGroups, image_groups
from effdet_keras.extras.forecast import run_forecast
from effdet_keras.extras.forecast.run_forecast import (
    Forecast,
    Measurement,
    forecast,
    nested_subsets,
)

pytestmark = pytest.mark.tensorflow

NOISE = np.random.default_rng(0).integers(0, 256, (100, 8, 8, 3), dtype=np.uint8)


def dataset_of(labels):
    boxes = [[[1, 1, 5, 5]] * len(row) for row in labels]
    return from_arrays(NOISE[: len(labels)], boxes, labels, ["cat", "dog"])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=34, num_valid=6)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """In the place of trainings: what was trained on, and an AP that rises with it."""
    calls = []

    def fine_tune(datasets, out, **fields):
        calls.append({"datasets": datasets, "out": out, **fields})
        number = len(datasets["train"])
        ap = 0.8 - 0.5 * (number / 4) ** -0.5
        numbers = {"AP": ap, "AP50": 0.9, "AP/circle": ap, "AP/square": 0.5}
        return types.SimpleNamespace(numbers={**numbers, "AP/triangle": -1.0})

    monkeypatch.setattr(run_forecast, "fine_tune", fine_tune)
    return calls


# --- The parts.


def test_parts_are_nested_and_have_their_sizes_and_classes():
    dataset = dataset_of([[0]] * 88 + [[0, 1]] * 12)
    parts = nested_subsets(dataset, (12, 25, 50, 100), image_groups(dataset.records), 0)
    assert {p: len(part) for p, part in parts.items()} == {
        12: 12,
        25: 25,
        50: 50,
        100: 100,
    }
    ids = [set(part.image_ids) for part in parts.values()]
    assert ids[0] < ids[1] < ids[2] < ids[3]
    for percent, part in parts.items():
        rare = sum(1 in record.labels for record in part.records)
        assert rare >= max(percent * 12 / 100 / 2, 1)
    again = nested_subsets(dataset, (12, 25), image_groups(dataset.records), 0)
    assert (
        again[12].image_ids
        != nested_subsets(dataset, (12, 25), image_groups(dataset.records), 1)[
            12
        ].image_ids
    )


def test_recordings_are_in_a_part_as_a_whole():
    """A half of the frames of each clip would be as good as all of them."""
    dataset = dataset_of([[0]] * 100)
    groups = np.arange(100) // 5
    parts = nested_subsets(dataset, (25, 50), ImageGroups(groups), 0)
    for part in parts.values():
        sizes = np.bincount(groups[np.array(part.image_ids) - 1], minlength=20)
        assert set(sizes.tolist()) == {0, 5}


# --- A forecast.


def test_the_parts_are_trained_on_and_measured_on_the_same_images(
    shapes, trained, tmp_path, capsys
):
    found = forecast(shapes, tmp_path / "out", **tiny_run(steps=1))
    assert [len(call["datasets"]["train"]) for call in trained] == [4, 8, 17]
    assert {call["datasets"]["val"].image_ids for call in trained} == {
        trained[0]["datasets"]["val"].image_ids
    }
    low, _, high = found.curve().forecast(34)
    assert low < 0.8 - 0.5 * (34 / 4) ** -0.5 < high
    text = str(found)
    assert text.startswith("part") and "50 %" in text and "twice as many" in text
    assert found.curve("triangle") is None  # it has no object to measure on
    page = (tmp_path / "out" / "forecast.html").read_text()
    assert "What more images would gain" in page and "<svg" in page
    assert "12 %: AP 0.300" in capsys.readouterr().out


def test_size_and_anchors_are_fitted_once_to_all_images(shapes, trained, tmp_path):
    """Else a part would have another network than all images will have."""
    fields = {**tiny_run(steps=1), "image_size": "auto", "anchors": "auto"}
    forecast(shapes, tmp_path / "out", **fields)
    chosen = [(call["image_size"], call["model_config"]) for call in trained]
    assert chosen[0][0] != "auto" and "anchor_scale" in chosen[0][1]
    assert chosen[1] == chosen[0] == chosen[2]


def test_a_forecast_goes_on_where_it_stopped(shapes, trained, tmp_path):
    out, fields = tmp_path / "out", tiny_run(steps=1)
    first = forecast(shapes, out, percents=(12, 25), **fields)
    del trained[:]
    with pytest.raises(FileExistsError, match=r"--resume.*--overwrite"):
        forecast(shapes, out, **fields)
    found = forecast(shapes, out, resume=True, **fields)
    assert [len(call["datasets"]["train"]) for call in trained] == [17]
    assert found.measurements[:2] == first.measurements
    with pytest.raises(RuntimeError, match="begun with another value of `fields`"):
        forecast(shapes, out, resume=True, **{**fields, "steps": 2})
    other = load_splits(shapes)
    other["train"] = other["train"].subset(range(33, -1, -1))
    with pytest.raises(RuntimeError, match="begun with another value of `data`"):
        forecast(other, out, resume=True, **fields)
    (out / "notes.txt").write_text("mine")
    (out / "12_percent").mkdir()
    (out / "12_percent" / "configuration.yaml").write_text("{}")
    (out / "mine_percent").mkdir()
    forecast(shapes, out, percents=(25, 50), overwrite=True, **fields)
    assert len(trained) == 3
    assert not (out / "12_percent").exists() and (out / "mine_percent").is_dir()
    assert (out / "notes.txt").read_text() == "mine"


def contents(folder):
    return {name: (folder / name).read_bytes() for name in files_in(folder)}


def test_a_forecast_without_a_result_gives_the_earlier_one_back(
    shapes, tmp_path, capsys
):
    """A mistyped path of weights must not cost an earlier forecast."""
    out, fields = tmp_path / "out", tiny_run(steps=1)
    (out / "12_percent" / "archive").mkdir(parents=True)
    (out / "12_percent" / "configuration.yaml").write_text("{}")
    (out / "12_percent" / "archive" / "last.keras").write_text("an hour of training")
    (out / "forecast.json").write_text('{"measurements": []}')
    (out / "forecast.html").write_text("charts")
    (out / "notes.txt").write_text("mine")
    before = contents(out)
    with pytest.raises(FileNotFoundError, match="nope"):
        forecast(shapes, out, overwrite=True, **{**fields, "weights": "nope.keras"})
    assert before.items() <= contents(out).items()
    assert not (out / "replaced_forecast").exists()
    assert f"the earlier one is again in '{out}'" in capsys.readouterr().out


def test_the_earlier_forecast_is_kept_until_the_new_one_is_complete(
    shapes, trained, tmp_path, monkeypatch, capsys
):
    out, fields = tmp_path / "out", tiny_run(steps=1)
    replaced = out / "replaced_forecast"
    forecast(shapes, out, **fields)
    earlier, train = contents(out), run_forecast.fine_tune

    def stopped(*arguments, **options):
        if len(trained) == 4:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    for _ in range(2):  # the earlier one is kept, not an incomplete one
        del trained[3:]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(run_forecast, "fine_tune", stopped)
            forecast(shapes, out, overwrite=True, **fields)
        assert contents(replaced).items() <= earlier.items()
        assert (replaced / "forecast.html").is_file()
        assert f"is still in '{replaced}'" in capsys.readouterr().out
    forecast(shapes, out, resume=True, **fields)
    assert not replaced.exists() and (out / "forecast.html").is_file()


def test_a_forecast_that_was_killed_while_its_files_moved_is_whole_again(
    shapes, trained, tmp_path
):
    out, fields = tmp_path / "out", tiny_run(steps=1)
    replaced = out / "replaced_forecast"
    forecast(shapes, out, **fields)
    before = contents(out)
    for names in (["forecast.html"], ["forecast.html", "forecast.json"]):
        replaced.mkdir()
        for name in names:
            (out / name).rename(replaced / name)
        with pytest.raises(FileExistsError, match="is not empty"):
            forecast(shapes, out, **fields)
        assert contents(out) == before and not replaced.exists()


def test_a_forecast_is_resumed_or_replaced_but_not_both(shapes, trained, tmp_path):
    with pytest.raises(ValueError, match="`resume`.*give one of the two"):
        forecast(shapes, tmp_path, resume=True, overwrite=True, **tiny_run(steps=1))
    assert not trained


def test_parts_that_are_added_later_are_nested_with_those_before(
    shapes, trained, tmp_path
):
    dataset = dataset_of([[0]] * 88 + [[0, 1]] * 12)
    grouping = image_groups(dataset.records)
    before = nested_subsets(dataset, (12, 50), grouping, 0)
    parts = nested_subsets(dataset, (5, 12, 25, 80), grouping, 0, drawn=(50, 12))
    assert {p: len(part) for p, part in parts.items()} == {
        p: p for p in (5, 12, 25, 50, 80)
    }
    ids = [set(part.image_ids) for part in parts.values()]
    assert ids[0] < ids[1] < ids[2] < ids[3] < ids[4]
    for percent, part in before.items():
        assert parts[percent].image_ids == part.image_ids
    # In a folder, the order of drawing is kept.
    for percents in ((12, 50), (12, 25, 50), (12, 25, 40, 50, 90)):
        forecast(shapes, tmp_path, percents=percents, resume=True, **tiny_run(steps=1))
    sizes = [len(call["datasets"]["train"]) for call in trained]
    assert sizes == [4, 17, 8, 14, 31]
    by_size = sorted((call["datasets"]["train"] for call in trained), key=len)
    ids = [set(part.image_ids) for part in by_size]
    assert ids[0] < ids[1] < ids[2] < ids[3] < ids[4]


def test_groups_that_fill_a_smaller_part_add_nothing_to_the_next():
    dataset = dataset_of([[0]] * 40)
    grouping = ImageGroups(np.arange(40) // 20)
    parts = nested_subsets(dataset, (40,), grouping, 0, drawn=(30,))
    assert parts[30].image_ids == parts[40].image_ids and len(parts[30]) == 20


def test_overwrite_is_for_the_folder_of_a_forecast(shapes, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        forecast(shapes, tmp_path, overwrite=True, **tiny_run(steps=1))
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["notes.txt"]


def test_two_forecasts_do_not_write_to_one_folder(
    shapes, trained, tmp_path, monkeypatch
):
    out, fine_tune = tmp_path / "out", run_forecast.fine_tune

    def beside(*arguments, **options):
        with pytest.raises(RuntimeError, match=r"A forecast needs a folder of its own"):
            forecast(shapes, out, resume=True, **tiny_run())
        return fine_tune(*arguments, **options)

    monkeypatch.setattr(run_forecast, "fine_tune", beside)
    found = forecast(shapes, out, percents=(12, 25), **tiny_run())
    assert len(trained) == len(found.measurements) == 2


def test_all_images_are_trained_on_if_there_is_time(shapes, trained, tmp_path):
    """The trainings of this test take none."""
    found = forecast(shapes, tmp_path / "out", time_budget="1h", **tiny_run())
    assert [m.percent for m in found.measurements] == [12, 25, 50, 100]
    assert {call["time_budget"] for call in trained[:3]} == {"900s"}
    assert "all  " not in str(found).partition("\n\n")[0]
    assert "twice as many" in str(found)


def test_a_forecast_that_goes_on_has_the_time_that_is_left(
    shapes, trained, tmp_path, monkeypatch
):
    """Each training of this test takes 800 seconds; the second is stopped."""
    clock, fine_tune = [0.0], run_forecast.fine_tune

    def training(*arguments, **options):
        if len(trained) == 1 and not clock[0] > 1000:
            clock[0] = 2000.0
            raise KeyboardInterrupt
        clock[0] += 800.0
        return fine_tune(*arguments, **options)

    monkeypatch.setattr(run_forecast, "fine_tune", training)
    monkeypatch.setattr(
        run_forecast, "time", types.SimpleNamespace(monotonic=lambda: clock[0])
    )
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        forecast(shapes, out, time_budget="1h", **tiny_run())
    for other in (None, "2h"):
        with pytest.raises(RuntimeError, match=f"budget`. Received: {other}, before"):
            forecast(shapes, out, time_budget=other, resume=True, **tiny_run())
    forecast(shapes, out, time_budget="1h", resume=True, **tiny_run())
    assert [call["time_budget"] for call in trained] == ["900s"] * 4


def test_many_parts_have_no_more_time_than_there_is(shapes, trained, tmp_path):
    percents = (20, 30, 40, 50, 60)
    forecast(
        shapes, tmp_path / "out", percents=percents, time_budget="1h", **tiny_run()
    )
    assert [call["time_budget"] for call in trained] == ["600s"] * 6


def test_fewer_than_40_images_are_refused(shapes, trained, tmp_path):
    splits = load_splits(shapes)
    splits["train"] = splits["train"][1:]
    with pytest.raises(
        ValueError, match="needs 40 images or more.*Received: 39 images"
    ):
        forecast(splits, tmp_path / "out", **tiny_run())
    assert not trained and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"percents": (50,)}, "two or more different whole percentages"),
        ({"percents": (0, 50)}, "from 1 to 100"),
        ({"time_budget": "soon"}, "a duration such as '90s'"),
        ({"time_budget": "1h", "steps": 5}, "The length of a training is given"),
        ({"evaluate_every": 0}, "needs the AP of each training"),
        ({"epoch": 5}, "Did you mean 'epochs'"),
    ],
)
def test_what_cannot_be_right_is_told_before_a_training(
    shapes, trained, tmp_path, fields, message
):
    with pytest.raises(ValueError, match=message):
        forecast(shapes, tmp_path / "out", **{**tiny_run(), **fields})
    assert not trained and not (tmp_path / "out").exists()


def test_images_to_measure_on_must_have_boxes(trained, tmp_path):
    splits = {"train": dataset_of([[0]] * 50), "val": dataset_of([[]] * 10)}
    with pytest.raises(ValueError, match="AP cannot be measured: the images of 'valid"):
        forecast(splits, tmp_path / "out", **tiny_run())


def made(values, num_objects=(400, 400)):
    numbers = [{"AP": v, "AP/cat": v + 0.05, "AP/dog": v - 0.05} for v in values]
    counts = (24, 50, 100, 200)
    rows = [Measurement(p, n, x, 1.0) for p, n, x in zip((12, 25, 50), counts, numbers)]
    return Forecast(200, ("cat", "dog"), (300, 200), num_objects, "test", tuple(rows))


def test_the_text_says_what_is_worth_it():
    rising, flat = str(made([0.30, 0.42, 0.52])), str(made([0.70, 0.70, 0.70]))
    assert "label images of it first" in rising and "800 objects of 'test'" in rising
    assert "check the labels" in flat and "check the labels" not in rising
    lines = rising.splitlines()
    assert lines[1].split()[:3] == ["12", "%", "24"] and "(" not in lines[3]
    assert lines[4].startswith("all ") and "to" in lines[4]


def test_an_ap_that_falls_with_more_images_is_told():
    fell = "AP fell from 0.57 with 50 images to 0.47 with 100. The trainings may be too"
    assert fell in str(made([0.52, 0.57, 0.47]))
    assert "AP fell" not in str(made([0.52, 0.57, 0.55]))
    assert "AP fell" not in str(made([0.52, -1.0, 0.55]))


def test_the_command_passes_fields_of_a_run_on(shapes, trained, tmp_path, capsys):
    out = str(tmp_path / "out")
    line = [
        "forecast",
        str(shapes),
        "--out",
        out,
        "--steps",
        "1",
        "--percents",
        "25",
        "50",
    ]
    settings = [
        "--image-size",
        "64",
        "--set",
        "weights=none",
        "--set",
        "tensorboard=false",
    ]
    assert cli.main([*line, *settings, "--set", "model_config.max_level=5"]) == 0
    assert [call["steps"] for call in trained] == [1, 1]
    assert trained[0]["model_config"]["max_level"] == 5
    assert "twice as many" in capsys.readouterr().out
    assert cli.main(["forecast", str(shapes), "--out", out]) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.slow
def test_a_forecast_of_real_trainings(shapes, tmp_path):
    out = tmp_path / "out"
    found = forecast(shapes, out, percents=(25, 50), **tiny_run(steps=2))
    assert [m.num_images for m in found.measurements] == [8, 17]
    assert all(0 <= m.numbers["AP"] <= 1 for m in found.measurements)
    assert (out / "25_percent" / "report.html").is_file()
    rows = json.loads((out / "forecast.json").read_text())["measurements"]
    assert [row["percent"] for row in rows] == [25, 50]


def test_a_dataset_of_clips_is_divided_by_clips(trained, tmp_path):
    for k in range(6):
        write_clip(tmp_path / "data", f"clip{k}", seed=k, num_frames=10)
    (tmp_path / "data" / "classes.txt").write_text("circle\n")
    forecast(load(tmp_path / "data"), tmp_path / "out", **tiny_run(steps=1))
    for call in trained:
        clips = [
            {record.file_name.split("_")[0] for record in part.records}
            for part in call["datasets"].values()
        ]
        assert not clips[0] & clips[1]
