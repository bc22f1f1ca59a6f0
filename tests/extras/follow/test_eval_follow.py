"""`effdet-keras eval RUN DATA --follow`: evaluation beside a training."""

import json
import shutil
import threading
import time

import numpy as np
import pytest
from support.tiny import LITE0, lively_model, tiny_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.extras import follow as following
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.weights.archive import read_archive_info, write_archive

pytestmark = pytest.mark.tensorflow
SHAPES = ("circle", "square", "triangle")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Checkpoints of two epochs, with averages."""
    folder = tmp_path_factory.mktemp("models")
    model = lively_model(backbone=LITE0, class_names=SHAPES)
    model.compile("sgd", learning_rate=0.1)
    for epoch in (1, 2):
        for average in model.averages.variables:
            average.assign(average * 1.01)
        write_archive(model, folder / f"{epoch}.keras", {"epoch": epoch})
    return folder


@pytest.fixture
def run(tmp_path, data):
    folder = RunFolder(tmp_path / "run")
    folder.begin(ek.RunConfiguration(data=str(data)))
    folder.archive.mkdir()
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(following, "_PAUSE", 0.05)
    monkeypatch.setattr(following, "_PAUSE_OF_REMOTE", 0.05)


@pytest.fixture
def stand_in(monkeypatch):
    """Evaluates in no time: what is tested is what is around it."""

    def numbers(self, path, info, dataset, batch_size):
        assert path.is_file() and (len(dataset), batch_size) in ((4, 2), (4, 8))
        return {"AP": 0.25, "AP50": 0.5, "APl": -1.0}

    monkeypatch.setattr(following.OneModel, "numbers", numbers)


def follow(run, data, *arguments):
    return cli.main(["eval", str(run.path), str(data), "--follow", *arguments])


def rows(folder):
    return list(map(json.loads, (folder / "numbers.jsonl").read_text().splitlines()))


def test_each_checkpoint_of_a_training_is_evaluated_until_the_run_is_done(
    run, data, archives, tmp_path, stand_in, capsys
):
    def train():
        shutil.copy(archives / "1.keras", run.archive / "last.keras")
        while not (run.followed / "numbers.jsonl").exists():
            time.sleep(0.05)
        shutil.copy(archives / "2.keras", tmp_path / "new")
        (tmp_path / "new").replace(run.archive / "last.keras")
        run.finish(2)

    training = threading.Thread(target=train)
    training.start()
    assert follow(run, data, "--timeout", "2m", "--batch-size", "2") == 0
    training.join()
    said = capsys.readouterr().out
    assert "on the 4 images of 'validation'" in said and "The run is done. 2 " in said
    found = rows(run.followed)
    assert [(row["epoch"], row["checkpoint"]) for row in found] == [
        (1, "last.keras"),
        (2, "last.keras"),
    ]
    lines = [line for line in said.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2 and lines[0].endswith(", the best so far")
    assert lines[1].startswith("epoch 2  AP 0.2500  AP50 0.5000  last.keras, ")
    # Of equals the first: it is a copy that stays.
    kept = (run.followed / "best.keras").read_bytes()
    assert kept == (archives / "1.keras").read_bytes()
    assert list(run.followed.glob("events.out.tfevents*"))


@pytest.mark.slow
def test_one_model_takes_the_weights_of_each_checkpoint(archives, data, monkeypatch):
    one = following.OneModel()
    info = read_archive_info(archives / "1.keras")
    other_order = ek.data.load(data, "valid").with_classes(SHAPES[::-1])
    found = one.numbers(archives / "1.keras", info, other_order, 2)
    assert list(found)[-3:] == [f"AP/{name}" for name in SHAPES]
    first, before = one.model, one.model.get_weights()
    one.take(archives / "2.keras", info)
    assert one.model is first
    expected = ek.EfficientDet.from_archive(archives / "2.keras").get_weights()
    for value, other in zip(one.model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(value, other)
    assert any((a != b).any() for a, b in zip(before, expected))
    monkeypatch.setattr(following.EfficientDet, "from_archive", lambda path: "another")
    one.take(archives / "2.keras", {**info, "class_names": ["other"]})
    assert one.model == "another"


def test_each_checkpoint_has_the_ranges_of_its_quantization(tmp_path):
    model = tiny_model().quantize_aware()
    one, found = following.OneModel(), []
    for epoch in (1, 2):
        for variable in model.quantization.variables:  # ranges, and steps trained
            variable.assign(np.full(variable.shape, epoch, variable.dtype))
        write_archive(model, path := tmp_path / f"{epoch}.keras", {"epoch": epoch})
        one.take(path, read_archive_info(path))
        ranges = set(one.model.quantization.ranges().values())
        found.append((ranges, one.model.quantization.is_rounding))
    assert found == [({(1.0, 1.0)}, True), ({(2.0, 2.0)}, True)]


def test_it_ends_when_nothing_new_comes_and_goes_on_where_it_was(
    run, data, archives, tmp_path, stand_in, capsys, monkeypatch
):
    out = tmp_path / "numbers"
    flags = ["--timeout", "0.3s", "--out", str(out), "--split", "valid"]
    shutil.copy(archives / "1.keras", run.archive / "last.keras")
    assert follow(run, data, *flags) == 0
    assert (
        "No new checkpoint appeared for 0.3s. 1 checkpoint" in capsys.readouterr().out
    )
    shutil.copy(archives / "2.keras", run.archive / "last.keras")
    assert follow(run, data, *flags) == 0
    assert [row["epoch"] for row in rows(out)] == [1, 2]
    assert capsys.readouterr().out.count("\nepoch ") == 1
    monkeypatch.chdir(run.path.parent)
    assert cli.main(["eval", "run", str(data), "--follow", *flags]) == 0
    # Numbers of another run or of other images are no part of this curve.
    shutil.copytree(run.path, tmp_path / "another")
    assert cli.main(["eval", "another", str(data), "--follow", *flags]) == 1
    assert "already has results of '" in capsys.readouterr().err
    assert follow(run, data, *flags[:-1], "train") == 1
    assert "on 'valid'. Received: " in capsys.readouterr().err


def test_a_run_at_an_address_is_followed_from_another_machine(
    run, data, archives, tmp_path, stand_in, memory, capsys
):
    address, out = "memory://bucket/run", tmp_path / "found"
    numbers = out / "numbers.jsonl"

    def copy(file, name):
        memory.pipe_file(f"/bucket/run/{name}", file.read_bytes())

    def train():
        time.sleep(0.2)  # the follower waits already
        copy(archives / "1.keras", "archive/last.keras")
        copy(run.path / "configuration.yaml", "configuration.yaml")
        while not numbers.exists():
            time.sleep(0.05)
        copy(archives / "2.keras", "archive/last.keras")
        run.finish(2)
        copy(run.finished, "finished.json")

    training = threading.Thread(target=train)
    training.start()
    command = ["eval", address, str(data), "--follow", "--timeout", "60s"]
    assert cli.main([*command, "--out", str(out)]) == 0
    training.join()
    assert "Following 'memory://bucket/run'" in capsys.readouterr().out
    assert [row["epoch"] for row in rows(out)] == [1, 2]
    assert cli.main(command) == 1
    assert "name a folder (--out)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--follow", "--timeout", "20"], "must be a duration such as"),
        (["a", "--follow", "--json", "found.json"], "--follow takes the folder"),
    ],
)
def test_what_does_not_go_together_is_told(data, arguments, message, capsys):
    at = arguments.index(next(text for text in arguments if text[0] == "-"))
    given = [*arguments[:at], str(data), *arguments[at:]]
    assert cli.main(["eval", *given]) == 1
    assert message in capsys.readouterr().err


def test_a_run_may_move_and_keeps_its_numbers_and_its_format(
    run, data, archives, tmp_path, stand_in, monkeypatch
):
    """As a drive that another machine has under another name."""
    formats = []
    choose = following.choose_splits

    def choose_splits(configuration):
        formats.append(configuration.format)
        return choose(configuration)

    monkeypatch.setattr(following, "choose_splits", choose_splits)
    run.begin(ek.RunConfiguration(data=str(data), format="coco"))
    run.archive.mkdir(exist_ok=True)
    shutil.copy(archives / "1.keras", run.archive / "last.keras")
    assert follow(run, data, "--timeout", "0.3s") == 0
    moved = RunFolder(run.path.rename(tmp_path / "moved"))
    assert follow(moved, data, "--timeout", "0.3s") == 0
    assert len(rows(moved.followed)) == 1 and formats == ["coco", "coco"]
