"""Generated images: repeatable, correctly annotated, and as described."""

import errno
import json

import numpy as np
import pytest

from effdet_keras.data import write_shapes
from effdet_keras.data.record import pixels_of_shape
from effdet_keras.extras import shapes


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return folder, *write_shapes(folder, num_train=60, num_valid=20, image_size=64)


def test_files_are_a_json_and_a_folder_each(written):
    folder, train, valid = written
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["train", "train.json", "valid", "valid.json"]
    assert len(train) == 60 and len(valid) == 20
    assert len(list((folder / "train").glob("*.jpg"))) == 60
    assert len(json.loads((folder / "valid.json").read_text())["images"]) == 20


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.json", '{"images": [], "categories": [{"id": 1, "name": "cat"}]}'),
        ("train.json", "[]"),
        ("valid.json", "not json"),
        ("valid/00001.jpg", "a photo"),
    ],
)
def test_a_dataset_of_the_user_is_not_overwritten(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(FileExistsError, match=rf"{name}'.*Give another folder"):
        write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [path] and path.read_text() == content


def test_shapes_of_an_earlier_call_are_replaced_and_other_files_stay(tmp_path):
    write_shapes(tmp_path, num_train=3, num_valid=1, image_size=64)
    (tmp_path / "train" / "notes.txt").write_text("mine")
    before = (tmp_path / "train" / "00001.jpg").read_bytes()
    train, _ = write_shapes(tmp_path, num_train=2, num_valid=1, image_size=64, seed=1)
    assert len(train) == 2
    assert (tmp_path / "train" / "00001.jpg").read_bytes() != before
    names = sorted(path.name for path in (tmp_path / "train").iterdir())
    assert names == ["00001.jpg", "00002.jpg", "00003.jpg", "notes.txt"]


def test_an_error_leaves_the_shapes_of_an_earlier_call(tmp_path, monkeypatch):
    """A full disk names the user's folder."""
    write_shapes(tmp_path, num_train=2, num_valid=1, image_size=64)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(image, path, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shapes.Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left.*train'"):
        write_shapes(tmp_path, num_train=2, num_valid=1, image_size=64, seed=1)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_every_class_several_objects_and_empty_images_occur(written):
    _, train, _ = written
    counts = [len(record["boxes"]) for record in train]
    assert min(counts) == 0 and max(counts) >= 4
    labels = np.concatenate([example["labels"] for example in train])
    assert set(labels.tolist()) == {0, 1, 2}
    assert train.class_names == shapes.SHAPE_NAMES


def test_same_seed_same_images_and_more_keeps_the_first(written, tmp_path):
    folder, train, valid = written
    write_shapes(tmp_path / "more", num_train=61, num_valid=1, image_size=64)
    for name in ("train/00001.jpg", "train/00060.jpg", "valid/00001.jpg"):
        assert (tmp_path / "more" / name).read_bytes() == (folder / name).read_bytes()
    write_shapes(tmp_path / "other", num_train=1, num_valid=1, image_size=64, seed=1)
    other = (tmp_path / "other" / "train/00001.jpg").read_bytes()
    assert other != (folder / "train/00001.jpg").read_bytes()
    assert not np.array_equal(train[0]["image"], valid[0]["image"])


def test_boxes_are_tight_around_masks(written):
    folder, *_ = written
    content = json.loads((folder / "train.json").read_text())
    on_top = {a["image_id"]: a for a in content["annotations"]}  # seen whole
    for annotation in on_top.values():
        places = np.argwhere(pixels_of_shape(annotation["segmentation"], 64, 64))
        (top, left), (bottom, right) = places.min(0), places.max(0) + 1
        assert annotation["bbox"] == [left, top, right - left, bottom - top]


def test_masks_are_where_shapes_are_drawn_and_others_hide_little_of_them():
    for seed in range(40):
        pixels, drawn = shapes.draw_shapes(np.random.default_rng(seed), 160)
        above = np.zeros((160, 160), bool)
        for label, mask in reversed(drawn):
            visible = mask & ~above
            assert visible.sum() >= 0.6 * mask.sum()
            above |= mask
            # One color, with noise; pixels of others would be 90 and more away.
            colors = pixels[visible].astype(float)
            near = np.abs(colors - np.median(colors, axis=0)).max(axis=1) < 45
            assert near.mean() > 0.9
            rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
            is_whole = min(rows[0], columns[0]) > 0 and max(rows[-1], columns[-1]) < 159
            if shapes.SHAPE_NAMES[label] == "circle" and is_whole:
                assert abs(len(rows) - len(columns)) <= 1
                filled = mask.sum() / (len(rows) * len(columns))
                assert filled == pytest.approx(np.pi / 4, abs=0.03)
