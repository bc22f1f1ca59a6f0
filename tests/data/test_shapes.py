"""Generated images: repeatable, correctly annotated, and as described."""

import json

import numpy as np
import pytest

from effdet_keras.data import shapes, write_shapes


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return folder, *write_shapes(folder, num_train=60, num_valid=20, image_size=64)


def test_files_are_a_json_and_a_folder_each(written):
    folder, train, valid = written
    assert sorted(path.name for path in folder.iterdir()) == [
        "train",
        "train.json",
        "valid",
        "valid.json",
    ]
    assert len(train) == 60 and len(valid) == 20
    assert len(list((folder / "train").glob("*.jpg"))) == 60
    assert len(json.loads((folder / "valid.json").read_text())["images"]) == 20


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


def test_boxes_are_tight_around_the_drawn_shape():
    """On a flat background the pixels that differ are the shape's."""
    flat = np.full((96, 96, 3), 128.0)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        label = seed % 3
        alpha = shapes._shape_alpha(rng, shapes.SHAPE_NAMES[label], 96)
        left, top, width, height = shapes._box_of(alpha > 0.5)
        pixels = flat + alpha[..., None] * (np.array([255, 0, 0]) - flat)
        changed = np.argwhere(np.abs(pixels - flat).max(axis=-1) > 64)
        low, high = changed.min(0), changed.max(0) + 1
        assert [left, top, width, height] == [
            low[1],
            low[0],
            high[1] - low[1],
            high[0] - low[0],
        ]


def test_a_circle_is_as_wide_as_high_and_fills_its_box():
    rng = np.random.default_rng(0)
    while True:
        mask = shapes._shape_alpha(rng, "circle", 128) > 0.5
        left, top, width, height = shapes._box_of(mask)
        if min(left, top) > 0 and max(left + width, top + height) < 128:
            break
    assert abs(width - height) <= 1
    assert mask.sum() / (width * height) == pytest.approx(np.pi / 4, abs=0.03)


def test_objects_stay_visible():
    bottom, top = np.zeros((2, 32, 32), bool)
    bottom[:20, :20] = True
    top[:20, :8] = True  # leaves 60 of 100
    assert not shapes._hides_another(top, [bottom])
    top[:20, :9] = True  # leaves 55
    assert shapes._hides_another(top, [bottom])
    # Two that cover it together count together.
    first, second = np.zeros((2, 32, 32), bool)
    first[:20, :5], second[:20, 5:9] = True, True
    assert shapes._hides_another(second, [bottom, first])


@pytest.mark.parametrize(
    "wrong", [{"num_train": 0}, {"num_valid": 0}, {"image_size": 16}]
)
def test_wrong_arguments_are_named(tmp_path, wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        write_shapes(tmp_path, **{"num_train": 1, "num_valid": 1, **wrong})


def test_an_address_is_refused_and_makes_no_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be on this machine.*memory://shapes"):
        write_shapes("memory://shapes", num_train=1, num_valid=1)
    assert not list(tmp_path.iterdir())
