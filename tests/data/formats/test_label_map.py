"""Label maps as dicts, names and files, wherever readers take `class_names`."""

import json

import numpy as np
import pytest
from support.small_datasets import features, save_image, write_shard

from effdet_keras import data
from effdet_keras.data.formats.label_map import (
    label_map_of,
    read_label_map,
    requested_classes,
)

BOX = [[4, 8, 20, 40]]


@pytest.fixture
def dataset():
    image = np.zeros((32, 48, 3), "uint8")
    boxes = [[*BOX, [0, 0, 9, 9]], BOX]
    return data.from_arrays([image] * 2, boxes, [[0, 1], [1]], {3: "cat", 7: "dog"})


def file_of(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("name", ["coco", "voc", "waymo"])
def test_the_named_ones_are_the_references(name, golden_path):
    maps = json.loads(golden_path("label_maps.json").read_text())
    assert label_map_of(name) == {int(i): n for i, n in maps[name].items()}


def test_every_way_to_give_one(tmp_path):
    expected = {1: "cat", 18: "hot dog"}
    for label_map in (
        {18: "hot dog", 1: "cat"},
        {"18": "hot dog", "1": "cat", 0: "background"},
        {np.int64(18): "hot dog", 1: "cat"},
        file_of(tmp_path, "a.yaml", "18: hot dog\n1: cat\n"),
        str(file_of(tmp_path, "a.yml", "label_map: {18: hot dog, 1: cat}")),
        file_of(tmp_path, "a.json", '{"cat": 1, "hot dog": 18, "background": 0}'),
        file_of(
            tmp_path, "a.pbtxt", "item {id: 1 name: 'cat'} item {id:18 name:'hot dog'}"
        ),
    ):
        assert label_map_of(label_map) == expected
        assert requested_classes(label_map) == (("cat", "hot dog"), [1, 18])


@pytest.mark.parametrize(
    "label_map", [{0: "cat", 1: "dog"}, {1: "cat", 2: "cat"}, {1: 5}, "cococo"]
)
def test_what_is_no_label_map_is_explained(label_map):
    with pytest.raises(ValueError, match="label map must.*Received: .*c|5"):
        label_map_of(label_map)


@pytest.mark.parametrize("to", ["voc", "yolo", "csv", "tfrecord"])
def test_class_names_with_ids_give_the_dataset_these_ids(tmp_path, dataset, to):
    _written(dataset, tmp_path, to)
    (tmp_path / "out" / "label_map.pbtxt").unlink(missing_ok=True)
    asked = {3: "cat", 5: "cow", 7: "dog"}
    read = data.load(tmp_path / "out", class_names=asked)
    assert read.class_names == ("cat", "cow", "dog")
    assert read.category_ids == (3, 5, 7)
    assert sorted(read.records[0].labels.tolist()) == [0, 2]


@pytest.mark.parametrize("to", ["coco", "voc", "yolo", "csv", "tfrecord"])
def test_class_names_bring_a_second_dataset_in_line(tmp_path, dataset, to):
    folder = _written(dataset, tmp_path, to)
    read = data.load(folder, class_names=["dog", "kite", "cat"])
    assert read.class_names == ("dog", "kite", "cat")
    assert sorted(read.records[0].labels.tolist()) == [0, 2]
    assert read.category_ids[1] not in (read.category_ids[0], read.category_ids[2])
    if to in ("coco", "tfrecord"):
        assert read.category_ids == (7, 8, 3)
    what = "7" if to in ("coco", "tfrecord") else "'dog'"
    message = f"1 unknown class: .*{what}, the class of 2 boxes.*filter"
    with pytest.raises(ValueError, match=message):
        data.load(folder, class_names=["cat"])


def test_ids_of_a_coco_file_stay_its_own(tmp_path, dataset):
    folder = _written(dataset, tmp_path, "coco")
    read = data.load(folder, class_names={1: "dog", 2: "cat", 5: "cow", 7: "kite"})
    assert read.class_names == ("dog", "cat", "cow", "kite")
    assert read.category_ids[:3] == (7, 3, 5)
    assert read.category_ids[3] not in (7, 3, 5)


def test_records_without_names_get_those_of_a_label_map(tmp_path):
    encoded = save_image(tmp_path / "a.png").read_bytes()
    boxes = [[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.6, 0.6]]
    path = write_shard(tmp_path, features(encoded, boxes, [3, 90]))
    for options in ({"label_map": "coco"}, {"class_names": "coco"}):
        read = data.from_tfrecord(path, **options)
        assert len(read.class_names) == 80
        assert [read.category_ids[i] for i in read.records[0].labels] == [3, 90]
        names = [read.class_names[i] for i in read.records[0].labels]
        assert names == ["car", "toothbrush"]


def _written(dataset, folder, to):
    getattr(data, f"write_{to}")(dataset, folder / "out")
    return folder / "out"


def test_text_of_the_object_detection_api(tmp_path):
    path = tmp_path / "map.pbtxt"
    path.write_text(
        "# classes\nitem {\n  name: '/m/01'\n  id: 2 display_name: \"B\\303\\244r\""
        " keypoints { id: 9 name: 'nose' } }\n"
        "item{id:1,name:'it\\'s'}; item { id: 0 name: 'background' }"
    )
    assert read_label_map(path) == {1: "it's", 2: "Bär"}


@pytest.mark.parametrize(
    "name, texts",
    [
        ("a.yaml", ["[1, 2]", "1: [", "cat: 1", "0: cat"]),
        ("a.json", ["{", '{"a": "b"}', "[1]"]),
        ("a.pbtxt", ["item { id: 1 }", "item { name: 'a' }", "x", "item {"]),
        ("b.pbtxt", ["item { id: 1 name: 'a' } item { id: 1 name: 'b' }"]),
    ],
)
def test_a_wrong_file_is_named(tmp_path, name, texts):
    for text in texts:
        with pytest.raises(ValueError, match=f"label map must.*{name}"):
            label_map_of(file_of(tmp_path, name, text))
