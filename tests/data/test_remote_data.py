"""Datasets and images at addresses are those of the files that they were made of."""

import numpy as np
import pytest
from support.remote import put_folder, web_server

from effdet_keras.data import (
    from_coco,
    load,
    load_splits,
    write_csv,
    write_shapes,
    write_voc,
    write_yolo,
)
from effdet_keras.data.pipeline.image_reader import ImageReader
from effdet_keras.detect.detect import image_sources
from effdet_keras.images import list_images, read_image, read_image_size
from effdet_keras.runs.run_folder import fingerprint

WRITERS = {"voc": write_voc, "yolo": write_yolo, "csv": write_csv}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shapes"
    write_shapes(folder, num_train=3, num_valid=2, image_size=64)
    return folder


def assert_same(remote, local):
    assert (remote.class_names, len(remote)) == (local.class_names, len(local))
    for one, other in zip(remote, local):
        for name in ("image", "boxes", "labels"):
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("kind", ["coco", *WRITERS])
def test_a_dataset_of_a_storage_is_that_of_its_folder(kind, shapes, memory, tmp_path):
    folder = shapes
    if kind != "coco":
        folder = tmp_path / kind
        WRITERS[kind](load_splits(shapes), folder)
    put_folder(folder, "/bucket/data")
    local, remote = load_splits(folder), load_splits("memory://bucket/data")
    assert remote.keys() == local.keys()
    for split, dataset in remote.items():
        assert_same(dataset, local[split])
        assert dataset[0]["path"].startswith("memory://bucket/data/")
        assert fingerprint(dataset) == fingerprint(dataset)


def test_coco_is_read_of_an_annotation_file_and_its_images(shapes, memory):
    put_folder(shapes, "/bucket/data")
    remote = from_coco("memory://bucket/data/train.json", "memory://bucket/data/train")
    assert_same(remote, load(shapes, "train"))
    assert_same(load("memory://bucket/data/train.json"), load(shapes, "train"))


def test_an_image_that_is_missing_in_a_storage_is_named(shapes, memory):
    put_folder(shapes, "/bucket/data")
    name = load(shapes, "train").records[1].file_name
    memory.rm_file(f"/bucket/data/train/{name}")
    with pytest.raises(FileNotFoundError, match=f"memory://.*/train/{name}"):
        load("memory://bucket/data", "train")


def test_formats_that_are_read_of_this_machine_alone_say_so(memory):
    memory.pipe_file("/bucket/a.tfrecord", b"")
    with pytest.raises(ValueError, match="No dataset was found"):
        load("memory://bucket", format="tfrecord")
    with pytest.raises(FileNotFoundError, match="memory://nothing"):
        load("memory://nothing")


def test_coco_is_read_of_a_web_server(shapes, memory):
    with web_server(shapes) as server:
        dataset = load(f"{server.address}/train.json")
        assert_same(dataset, load(shapes, "train"))
        with pytest.raises(ValueError, match="do not list their files.*from_coco"):
            load(server.address)
        asked_before = len(server.asked)
        from_coco(f"{server.address}/train.json", f"{server.address}/train")
        # Sizes are in the json file: no image is asked for, and 118,000 would be slow.
        assert not [p for p in server.asked[asked_before:] if p.endswith(".jpg")]


def test_the_threads_of_a_training_read_images_of_addresses(shapes, memory, capsys):
    put_folder(shapes, "/bucket/data")
    local, remote = load(shapes, "train"), load("memory://bucket/data", "train")
    memory.rm_file(remote.records[0].image.replace("memory://", "/"))
    reader = ImageReader(remote, replace=True)
    image, *_, is_there = reader.read(0)
    np.testing.assert_array_equal(image, local[1]["image"])  # in place of the first
    assert is_there
    reader.report()
    said = capsys.readouterr().err
    assert "00001.jpg" in said and "00002.jpg" not in said


def test_an_image_is_read_of_an_address(shapes, memory):
    path = list_images(shapes / "train")[0]
    memory.pipe_file("/bucket/photos/street.jpg", path.read_bytes())
    memory.pipe_file("/bucket/photos/broken.jpg", b"no image")
    np.testing.assert_array_equal(
        read_image("memory://bucket/photos/street.jpg"), read_image(path)
    )
    assert read_image_size("memory://bucket/photos/street.jpg") == (64, 64)
    names = [path.name for path in list_images("memory://bucket/photos")]
    assert names == ["broken.jpg", "street.jpg"]
    sources, is_single = image_sources("memory://bucket/photos/street.jpg")
    assert is_single and str(sources[0]) == "memory://bucket/photos/street.jpg"
    with pytest.raises(ValueError, match="memory://bucket/photos/broken.jpg"):
        read_image("memory://bucket/photos/broken.jpg")
    with pytest.raises(FileNotFoundError, match="memory://bucket/photos/none.jpg"):
        read_image("memory://bucket/photos/none.jpg")
