"""`label-next`: from a folder of images to a folder for the labelling tool."""

import csv
import json
import shutil

import numpy as np
import pytest
from support.clips import photo, write_clip, write_photo
from support.tiny import tiny_model

from effdet_keras import cli
from effdet_keras.extras.label_next import command
from effdet_keras.extras.label_next import label_next as module
from effdet_keras.extras.label_next.label_next import label_next
from effdet_keras.predictor import Predictor

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def predictor():
    return Predictor(tiny_model())


@pytest.fixture
def pool(tmp_path):
    """Images to label: six photos in two folders, and a clip of near-duplicates."""
    folder = tmp_path / "pool"
    for seed in range(6):
        path = folder / ("day" if seed % 2 else ".") / f"photo{seed}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(seed, 120, 90).save(path)
    for path in write_clip(folder, "clip", seed=20, num_frames=4, step=1):
        path.with_suffix(".txt").unlink()
    (folder / "notes.txt").write_text("")
    (folder / ".hidden").mkdir()
    photo(9).save(folder / ".hidden" / "h.jpg")
    return folder


def rows(folder):
    with open(folder / "ranking.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("tool", ["labelstudio", "cvat", "labelme", "coco"])
def test_the_best_images_are_there_with_a_file_of_the_tool(
    predictor, pool, tmp_path, capsys, tool
):
    out = tmp_path / "next"
    label_next(predictor, pool, out, tool, count=4, verbose=False)
    table = rows(out)
    assert len(table) == 10
    names = [row["written_as"] for row in table]
    assert names[4:] == [""] * 6
    images = {path.name for path in (out / "images").iterdir() if path.suffix == ".jpg"}
    assert images == set(names[:4])
    assert [row["rank"] for row in table] == [str(i) for i in range(1, 11)]
    # The three other frames of the clip are the last, with the one that they look like.
    assert all("clip" in row["image"] for row in table[-3:])
    assert {row["looks_like"][:4] for row in table[-3:]} == {"clip"}
    text = capsys.readouterr().out
    assert "4 of 10 images" in text and "3 that look like" in text
    assert str(out) in text or tool in ("cvat", "coco")


def test_images_of_folders_keep_names_of_their_own(predictor, pool, tmp_path):
    shutil.copy(pool / "photo0.jpg", pool / "day" / "photo0.jpg")
    photo(30, 120, 90).save(pool / "photo0.png")
    label_next(predictor, pool, tmp_path / "next", "labelme", count=None, verbose=False)
    names = {path.name for path in (tmp_path / "next" / "images").glob("*.[jp][pn]g")}
    assert {"photo0.jpg", "photo0_png.png", "day__photo0.jpg"} <= names
    assert len(names) == 12
    assert len(list((tmp_path / "next" / "images").glob("*.json"))) == 12


def test_what_is_labelled_is_left_out_and_what_looks_like_it_comes_last(
    predictor, pool, tmp_path, capsys
):
    data = tmp_path / "data"
    write_photo(data / "first.jpg", seed=2)  # as photo2 of the pool
    write_photo(data / "nothing.jpg", seed=3)  # as photo3, with no object in it
    (data / "nothing.txt").write_text("")
    (data / "classes.txt").write_text("cat\n")
    write_photo(data / "broken.jpg", seed=40)
    (data / "broken.txt").write_text("0 0.5\n")
    out = tmp_path / "next"
    with pytest.warns(UserWarning, match="1 bad box"):
        label_next(predictor, pool, out, "coco", labelled=data, verbose=False)
    for name in ("photo2", "photo3"):
        twin = next(row for row in rows(out) if name in row["image"])
        assert twin["looks_like"] == "labelled" and int(twin["rank"]) > 5
    (data / "broken.jpg").unlink()
    (data / "broken.txt").unlink()
    # A folder that holds the dataset itself.
    shutil.copytree(data, pool / "data")
    label_next(
        predictor,
        pool,
        tmp_path / "again",
        "coco",
        labelled=pool / "data",
        verbose=False,
    )
    said = capsys.readouterr().out
    assert "Left out 2 of 12 images, because they are labelled already." in said
    ranked = " ".join(row["image"] for row in rows(tmp_path / "again"))
    assert "first" not in ranked and "nothing" not in ranked


def test_an_image_that_cannot_be_read_is_left_out_with_a_warning(
    predictor, pool, tmp_path
):
    (pool / "broken.jpg").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"broken\.jpg' is left out"):
        label_next(predictor, pool, tmp_path / "next", "cvat", verbose=False)
    assert len(rows(tmp_path / "next")) == 10


def test_boxes_have_the_threshold_and_ranks_do_not(predictor, pool, tmp_path):
    """A low threshold of what is written changes no rank."""
    orders = []
    for k, threshold in enumerate((0.0, 0.99)):
        out = tmp_path / f"next{k}"
        label_next(
            predictor, pool, out, "coco", score_threshold=threshold, verbose=False
        )
        orders.append([row["image"] for row in rows(out)])
        content = json.loads((out / "annotations.json").read_text())
        assert all(row["score"] >= threshold for row in content["annotations"])
        assert bool(content["annotations"]) == (threshold == 0.0)
    assert orders[0] == orders[1]


def test_bad_input_is_told_before_any_work(predictor, pool, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_look_at", lambda *_: pytest.fail("it began to work"))
    (tmp_path / "there").mkdir()
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileExistsError, match="already exists"):
        label_next(predictor, pool, tmp_path / "there", "coco")
    with pytest.raises(FileNotFoundError, match="no folder of images"):
        label_next(predictor, tmp_path / "nowhere", tmp_path / "next", "coco")
    with pytest.raises(ValueError, match="There is no image in"):
        label_next(predictor, tmp_path / "empty", tmp_path / "next", "coco")
    with pytest.raises(ValueError, match="`to` must be one of 'labelstudio', 'cvat'"):
        label_next(predictor, pool, tmp_path / "next", "paint")
    with pytest.raises(ValueError, match="count"):
        label_next(predictor, pool, tmp_path / "next", "coco", count=-1)
    with pytest.raises(ValueError, match="for the tasks of 'labelstudio' only.*'cvat'"):
        label_next(predictor, pool, tmp_path / "next", "cvat", address="s3://cats/")
    with pytest.raises(NotADirectoryError, match="A folder is needed"):
        label_next(predictor, pool, pool / "notes.txt" / "next", "coco")
    with pytest.raises(ValueError, match="`count` must be .* at least 0. Rec"):
        command.run("runs/cats", str(pool), out="next", to="coco", count=-1)
    assert not (tmp_path / "next").exists()


def test_the_command_takes_a_model_file(predictor, pool, tmp_path, capsys):
    path = tmp_path / "model.keras"
    predictor.detector.save(path)
    out = tmp_path / "next"
    line = [
        "label-next",
        str(path),
        str(pool),
        "--out",
        str(out),
        "--to",
        "labelstudio",
    ]
    assert cli.main([*line, "--count", "0"]) == 0
    assert len(json.loads((out / "tasks.json").read_text())) == 10
    assert "It is not known which images are labelled" in capsys.readouterr().out
    assert np.array([float(row["novelty"]) for row in rows(out)]).min() == 1.0
    assert cli.main(line) == 1
    assert "already exists" in capsys.readouterr().err
