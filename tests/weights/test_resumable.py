"""A training goes on from the newest checkpoint that is whole, and nothing is lost."""

import dataclasses
import os
import pathlib

import pytest
from support.tiny import StandIn

from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.train.resume import TrainingPosition
from effdet_keras.weights.archive import read_archive_info, write_archive
from effdet_keras.weights.pretrained import (
    checkpoint_to_resume,
    load_checkpoint_to_resume,
    set_aside_damaged,
)

pytestmark = pytest.mark.tensorflow


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # and not the file that has the same content by another name
    path.write_bytes(content)


def begun(folder, steps_done, **options):
    model = StandIn()
    model.optimizer.iterations.assign(steps_done)
    callback = CheckpointArchive(folder, verbose=False, **options)
    callback.set_model(model)
    callback.on_train_begin()
    return callback


@pytest.fixture
def folder(tmp_path):
    """Three epochs, of which the first was the best."""
    callback = begun(tmp_path / "run", 0)
    for epoch, value in enumerate([0.5, 0.3, 0.2]):
        callback.model.optimizer.iterations.assign(10 * epoch + 10)
        callback.on_epoch_end(epoch, {"AP": value})
    callback.on_train_end()
    return tmp_path / "run"


def epoch_to_resume(folder):
    path, damages = checkpoint_to_resume(folder)
    return read_archive_info(path)["epoch"], len(damages)


def test_the_newest_whole_checkpoint_is_taken(folder):
    assert epoch_to_resume(folder) == (3, 0)
    flip(folder / "last.keras")
    assert epoch_to_resume(folder) == (2, 1)
    flip(folder / "last.previous.keras")
    assert epoch_to_resume(folder) == (1, 2)
    flip(folder / "best.keras")
    with pytest.raises(ValueError, match="cannot be resumed") as error:
        checkpoint_to_resume(folder)
    names = [path.name for path in folder.glob("*.keras")]
    assert len(names) == 3 and all(name in str(error.value) for name in names)


def test_a_model_that_goes_on_from_another_says_so(folder, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "effdet_keras.weights.pretrained.load_archive",
        lambda path, resume: loaded.append((path.name, resume)),
    )
    flip(folder / "last.keras")
    with pytest.warns(UserWarning, match=r"last\.keras' is damaged.*continues from"):
        load_checkpoint_to_resume(folder)
    assert loaded == [("last.previous.keras", True)]


def test_without_a_checkpoint_there_is_nothing_to_resume_from(tmp_path):
    assert checkpoint_to_resume(tmp_path) == (None, [])
    with pytest.raises(FileNotFoundError, match=r"last\.keras"):
        load_checkpoint_to_resume(tmp_path)


def test_damaged_files_stay_under_another_name(folder, capsys):
    for name in ("last.keras", "best.keras"):
        flip(folder / name)
    damaged = (folder / "last.keras").read_bytes()
    callback = begun(folder, 20)
    assert callback.best is None
    callback.on_epoch_end(2, {"AP": 0.2})
    callback.on_train_end()
    assert (folder / "last.damaged.keras").read_bytes() == damaged
    assert (folder / "best.damaged.keras").exists()
    assert read_archive_info(folder / "best.keras")["epoch"] == 3
    # The last but one is the whole file that the training went on from.
    assert read_archive_info(folder / "last.previous.keras")["epoch"] == 2
    assert "last.keras' is damaged" in capsys.readouterr().out


def test_the_last_but_one_is_of_the_same_training(folder):
    callback = begun(folder, 0)
    callback.on_epoch_end(0, {"AP": 0.1})
    assert not (folder / "last.previous.keras").exists()
    callback.on_epoch_end(1, {"AP": 0.1})
    assert read_archive_info(folder / "last.previous.keras")["epoch"] == 1
    callback.close()


def test_there_is_a_last_checkpoint_at_every_moment(folder, monkeypatch):
    seen, replace = [], os.replace

    def watched(source, target):
        if folder in pathlib.Path(target).parents:  # nobody else's
            seen.append((folder / "last.keras").exists())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    callback = begun(folder, 30)
    callback.on_epoch_end(3, {"AP": 0.1})
    callback.close()
    assert len(seen) == 3 and all(seen)


def checkpoint(folder, name, epoch):
    """A checkpoint of ten steps per epoch."""
    position = TrainingPosition(epoch=epoch, total_steps=10 * epoch)
    info = {"epoch": epoch, "training_position": dataclasses.asdict(position)}
    write_archive(StandIn(), folder / name, info)


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ({"last.previous": 7, "best": 5}, 7),
        ({"last.previous": 5, "best": 7}, 7),  # of a run that saves within epochs
        ({"last.previous": 5, "best": 3, "step-00000060": 6, "step-00000020": 2}, 6),
        ({"step-00000100": 10, "step-00000090": 9}, 10),
        ({"best": 7, "step-00000060": 6}, 7),
    ],
    ids=str,
)
def test_in_the_place_of_a_damaged_one_the_newest_of_all_others_is_taken(
    tmp_path, epochs, expected
):
    for name, epoch in {"last": 11, **epochs}.items():
        checkpoint(tmp_path, f"{name}.keras", epoch)
    flip(tmp_path / "last.keras")
    assert epoch_to_resume(tmp_path) == (expected, 1)
    (tmp_path / "last.keras").unlink()
    assert epoch_to_resume(tmp_path) == (expected, 0)


def test_damaged_copies_are_passed_over_and_set_aside(tmp_path, capsys):
    names = ["last", "last.previous", "step-00000080", "step-00000070", "step-00000060"]
    for number, name in enumerate(names):
        checkpoint(tmp_path, f"{name}.keras", 10 - number)
    for name in names[:3]:
        flip(tmp_path / f"{name}.keras")
    path, damages = checkpoint_to_resume(tmp_path)
    assert path.name == "step-00000070.keras"
    assert [any(f"{n}.keras" in text for text in damages) for n in names] == [
        True,
        True,
        True,
        False,
        False,
    ]
    set_aside_damaged(tmp_path)
    assert (tmp_path / "step-00000080.damaged.keras").exists()
    assert "step-00000080.keras' is damaged" in capsys.readouterr().out


def test_a_second_damaged_file_does_not_replace_the_first(tmp_path):
    contents = []
    for epoch in (1, 2):
        checkpoint(tmp_path, "last.keras", epoch)
        flip(tmp_path / "last.keras")
        contents.append((tmp_path / "last.keras").read_bytes())
        set_aside_damaged(tmp_path)
    names = ("last.damaged.keras", "last.damaged-2.keras")
    assert [(tmp_path / name).read_bytes() for name in names] == contents


def test_a_new_training_keeps_what_an_earlier_one_left(tmp_path, capsys):
    for name, epoch in {"last": 19, "best": 4, "step-00000190": 19}.items():
        checkpoint(tmp_path, f"{name}.keras", epoch)
    earlier = (tmp_path / "last.keras").read_bytes()
    callback = begun(tmp_path, 0, keep=2)
    for epoch in range(3):
        callback.model.optimizer.iterations.assign(10 * epoch + 10)
        callback.on_epoch_end(epoch, {"AP": 0.1})
    callback.on_train_end()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "best.keras",
        "best.previous.keras",
        "last.earlier.keras",
        "last.keras",
        "last.previous.keras",
        "step-00000020.keras",
        "step-00000030.keras",
        "step-00000190.earlier.keras",
    ]
    assert (tmp_path / "last.earlier.keras").read_bytes() == earlier
    assert read_archive_info(tmp_path / "best.previous.keras")["epoch"] == 4
    assert "of an earlier training stays as" in capsys.readouterr().out
    flip(tmp_path / "last.keras")
    assert epoch_to_resume(tmp_path) == (3, 1)  # the copy, and none of the earlier
