"""What the writers share: splits, images as files, folders that are whole."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

import effdet_keras as ek
from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.data.formats.writing import encode_image, image_stems, named_splits

PIXELS = np.random.default_rng(0).integers(0, 255, (6, 9, 3)).astype(np.uint8)


def one(image, names=("cat",)):
    return from_arrays([image], [[]], [[]], names)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_files_that_all_programs_see_alike_stay_byte_by_byte(tmp_path, suffix):
    path = tmp_path / f"a.{'JPEG' if suffix == '.jpg' else 'png'}"
    Image.fromarray(PIXELS).save(path)
    data, found = encode_image(one(path).records[0])
    assert data == path.read_bytes() and found == suffix


@pytest.mark.parametrize("kind", ["turned", "webp", "array"])
def test_others_become_png_of_what_the_boxes_are_for(tmp_path, kind):
    exif = Image.Exif()
    if kind == "turned":
        exif[0x0112] = 6
    path = tmp_path / ("a.webp" if kind == "webp" else "a.jpg")
    Image.fromarray(PIXELS).save(path, exif=exif)
    dataset = one(PIXELS if kind == "array" else path)
    data, suffix = encode_image(dataset.records[0])
    assert suffix == ".png"
    stored = np.asarray(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(stored, dataset[0]["image"])
    assert stored.shape == ((9, 6, 3) if kind == "turned" else (6, 9, 3))


def test_file_names_differ_in_every_file_system():
    records = [
        dataclasses.replace(one(PIXELS).records[0], file_name=name, image_id=5)
        for name in ("x/a.jpg", r"y\A.png", "a.webp", "../../etc/b.jpg", "")
    ]
    stems = image_stems(records)
    assert stems == ["a", "A_2", "a_3", "b", "000000000005"]
    names = ("a_3", "a", "b/a", "c/a", "A_2", "d/a")
    records = [dataclasses.replace(records[0], file_name=name) for name in names]
    assert image_stems(records) == ["a_3", "a", "a_2", "a_4", "A_2_2", "a_5"]


def test_names_that_windows_refuses_are_written_in_a_form_that_it_takes():
    names = (
        "a:b.jpg",
        "q?.jpg",
        "CON.jpg",
        "aux.png",
        "x .jpg",
        "t*|.jpg",
        "com1.a.jpg",
    )
    names += ("console.jpg", "a_b.jpg", "\x07.jpg", "cafe\u0301.jpg", "café.jpg")
    records = [
        dataclasses.replace(one(PIXELS).records[0], file_name=name, image_id=5)
        for name in names
    ]
    assert image_stems(records) == [
        "a_b",
        "q_",
        "CON_",
        "aux_",
        "x",
        "t__",
        "com1_.a",
        "console",
        "a_b_2",
        "_",
        "cafe\u0301",
        "café_2",
    ]


@pytest.mark.parametrize("split", ["a:b", "con", "NUL", "aux.part", "x."])
def test_a_split_has_a_name_that_every_system_takes(split):
    with pytest.raises(ValueError, match="a valid name for a folder"):
        named_splits({split: one(PIXELS)})


def test_splits_are_checked():
    cats, dogs = one(PIXELS), one(PIXELS, ("dog",))
    assert named_splits(cats) == {"train": cats}
    assert named_splits({"a": cats, "b": cats}) == {"a": cats, "b": cats}
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="valid name for a folder"):
            named_splits({name: cats})
    with pytest.raises(ValueError, match="must have at least one split"):
        named_splits({})
    with pytest.raises(ValueError, match="same classes.*'dog'"):
        named_splits({"a": cats, "b": dogs})
    other_ids = DetectionDataset(cats.records, cats.class_names, (7,))
    with pytest.raises(ValueError, match="same classes and category ids"):
        named_splits({"a": cats, "b": other_ids})


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["coco", "csv", "tfrecord", "voc", "yolo"])
def test_swapped_arguments_are_told_what_each_is(tmp_path, name):
    write = getattr(ek.data, f"write_{name}")
    message = "first argument, `datasets`, must be a `DetectionDataset`.*second, `fold"
    for datasets in (tmp_path / "out", "out", None, [one(PIXELS)], {"train": "out"}):
        with pytest.raises(TypeError, match=message):
            write(datasets, one(PIXELS))
    with pytest.raises(TypeError, match="must be text or a path. Received: Detection"):
        write(one(PIXELS), one(PIXELS))
    assert not list(tmp_path.iterdir())
