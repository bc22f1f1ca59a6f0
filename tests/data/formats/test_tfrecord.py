"""`from_tfrecord`, `write_tfrecord`: the reference's records, damage, round trips."""

import gzip
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from support.small_datasets import encoded, features, odd_splits, write_shard

from effdet_keras.data import (
    DetectionDataset,
    from_arrays,
    load,
    load_splits,
    write_shapes,
)
from effdet_keras.data.formats.label_map import read_label_map, write_label_map
from effdet_keras.data.formats.tfrecord import (
    decode_example,
    from_tfrecord,
    pattern_readers,
    read_records,
    tfrecord_splits,
    write_records,
    write_tfrecord,
)

pytestmark = pytest.mark.tensorflow


def texts(**defaults):
    return {
        f"image/{key.replace('__', '/')}": tf.io.FixedLenFeature((), tf.string, default)
        for key, default in defaults.items()
    }


def columns(dtype, *keys):
    return {f"image/object/{key}": tf.io.VarLenFeature(dtype) for key in keys}


CORNERS = ("bbox/xmin", "bbox/xmax", "bbox/ymin", "bbox/ymax")
# What google/automl's parser asks of a record (facts, section 9).
REFERENCE_FEATURES = {
    **texts(encoded=None, source_id=""),
    "image/height": tf.io.FixedLenFeature((), tf.int64, -1),
    "image/width": tf.io.FixedLenFeature((), tf.int64, -1),
    **columns(tf.float32, *CORNERS, "area"),
    **columns(tf.int64, "class/label", "is_crowd"),
}
# What the TF Object Detection API's decoder asks for besides.
API_FEATURES = {
    **texts(filename="", key__sha256="", format="jpeg"),
    **columns(tf.string, "class/text"),
    **columns(tf.int64, "difficult"),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return odd_splits(tmp_path_factory.mktemp("images"))["train"]


def png(tmp_path, size=(30, 40)):
    path = tmp_path / f"{size}.png"
    Image.new("RGB", size[::-1], (9, 8, 7)).save(path)
    return path.read_bytes()


# The reference's records.


def test_the_references_records_are_read_as_they_are(golden_path):
    with pytest.warns(UserWarning, match="1 empty box"):
        dataset = from_tfrecord(golden_path("records.tfrecord"))
    assert dataset.class_names == tuple(str(i) for i in range(1, 91))
    first, second, third = dataset.records
    assert dataset.category_ids == tuple(range(1, 91))
    assert [dataset.category_ids[i] for i in first.labels] == [1, 90, 3, 17, 44, 62]
    np.testing.assert_array_equal(first.is_crowd, [0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(first.boxes_xywh[0], [51.2, 63.6, 358.4, 286.2], 1e-6)
    np.testing.assert_allclose(first.area[0], 102574.08, 1e-6)
    # No sizes, areas nor flags: of the image, of the boxes, none.
    assert second.image_size == (636, 1024) and not second.is_crowd.any()
    np.testing.assert_allclose(second.area, [102574.08, 207427.58], 1e-6)
    assert len(third.labels) == 0
    # Two have one id, the third none: all are counted.
    assert dataset.image_ids == (1, 2, 3)
    assert [r.source_id for r in dataset.records] == ["397133", 2, "397133"]


def test_the_references_boxes_are_those_of_its_pipeline(golden_path, golden):
    with pytest.warns(UserWarning):
        record = from_tfrecord(golden_path("records.tfrecord")).records[0]
    arrays = golden("d_input_boxes.npz")
    y0, x0, y1, x1 = (arrays["boxes"] * np.tile(arrays["raw_size"], 2)).T
    expected = np.stack([x0, y0, x1 - x0, y1 - y0], axis=1)
    np.testing.assert_allclose(record.boxes_xywh, expected, atol=1e-4)
    np.testing.assert_array_equal(record.labels + 1, arrays["classes"].ravel())


def test_the_references_parsers_read_what_is_written(tmp_path, dataset):
    write_tfrecord({"train": dataset}, tmp_path / "out", num_shards=2)
    shards = sorted((tmp_path / "out").glob("*.tfrecord"))
    assert [path.name for path in shards] == [
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]
    # Dealt out in turn, as the reference's converters do.
    for first, path in enumerate(shards):
        records = dataset.records[first::2]
        parsed = list(tf.data.TFRecordDataset(str(path)))
        assert len(parsed) == len(records)
        for serialized, record in zip(parsed, records):
            example = tf.io.parse_single_example(
                serialized, {**REFERENCE_FEATURES, **API_FEATURES}
            )
            check_parsed(example, record, dataset)


def check_parsed(example, record, dataset):
    height, width = record.image_size
    encoded = example["image/encoded"].numpy()
    assert tf.io.decode_image(encoded, channels=3).shape == (height, width, 3)
    assert len(example["image/key/sha256"].numpy()) == 64
    texts = {
        "source_id": str(record.image_id),
        "filename": record.file_name,
        "format": "jpeg" if encoded[:2] == b"\xff\xd8" else "png",
    }
    for key, text in texts.items():
        assert example[f"image/{key}"] == text.encode()
    assert (example["image/height"], example["image/width"]) == (height, width)
    left, top, box_width, box_height = record.boxes_xywh.T
    columns = {
        "bbox/xmin": left / width,
        "bbox/ymin": top / height,
        "bbox/xmax": (left + box_width) / width,
        "bbox/ymax": (top + box_height) / height,
        "class/label": np.array(dataset.category_ids)[record.labels],
        "is_crowd": record.is_crowd,
        "area": record.area,
        "difficult": np.zeros(len(record.labels)),
    }
    for key, expected in columns.items():
        column = tf.sparse.to_dense(example[f"image/object/{key}"])
        np.testing.assert_allclose(column, expected, 1e-6, 1e-6)
    names = [dataset.class_names[i].encode() for i in record.labels]
    assert example["image/object/class/text"].values.numpy().tolist() == names


# Round trips.


def test_images_in_memory_and_ids_below_one_come_back(tmp_path):
    images = [np.random.default_rng(i).integers(0, 255, (9 + i, 7, 3)) for i in (0, 1)]
    images = [image.astype(np.uint8) for image in images]
    arrays = from_arrays(images, [[[1, 2, 5, 6]], []], [[1], []], ["a", "b"])
    dataset = DetectionDataset(arrays.records, ["a", "b"], [0, -4])
    write_tfrecord({"x": dataset}, tmp_path / "out")
    # The keys count from 1, or programs take the class for the background.
    assert read_label_map(tmp_path / "out" / "label_map.pbtxt") == {1: "a", 2: "b"}
    read = from_tfrecord(tmp_path / "out")
    assert read.class_names == ("a", "b") and read.image_ids == (1, 2)
    for one, other in zip(read, images):
        np.testing.assert_array_equal(one["image"], other)


def test_one_split_of_several_is_read_by_a_pattern(tmp_path, dataset):
    write_tfrecord({"train": dataset, "valid": dataset[:1]}, tmp_path / "out")
    splits = tfrecord_splits(tmp_path / "out")
    assert [(name, len(paths)) for name, paths in splits.items()] == [
        ("train", 1),
        ("valid", 1),
    ]
    with pytest.raises(ValueError, match=r"\['train', 'valid'\]"):
        from_tfrecord(tmp_path / "out")
    (record,) = from_tfrecord(tmp_path / "out" / "valid-*").records
    np.testing.assert_allclose(
        record.boxes_xywh, dataset.records[0].boxes_xywh, atol=1e-4
    )
    with pytest.raises(ValueError, match="num_shards=0"):
        write_tfrecord(dataset, tmp_path / "new", num_shards=0)


# Which files.


@pytest.mark.parametrize(
    "name",
    [
        "train.tfrecord",
        "train.record",
        "train.tfrecord-00000-of-00001",
        "train-00000-of-00001",
        "train-00000-of-00001.tfrecord",
    ],
)
def test_names_of_shards_and_patterns(tmp_path, name):
    path = write_shard(tmp_path, features(png(tmp_path)), name=name)
    assert tfrecord_splits(tmp_path) == {"train": [str(path)]}
    for files in (path, str(path), [path], tmp_path, tmp_path / "tr*", [path, path]):
        dataset = from_tfrecord(files)
        assert len(dataset) == (2 if files == [path, path] else 1)


@pytest.mark.parametrize(
    "names, expected",
    [
        ([f"train_{i:03d}" for i in range(11)], {"train": 11}),
        ([f"train_{i}" for i in range(10)], {f"train_{i}": 1 for i in range(10)}),
        (
            [f"train-{i}" for i in range(11)] + [f"val{i}" for i in range(12)],
            {"train": 11, "val": 12},
        ),
        ([f"segment-{i}_{i}_labels" for i in range(11)], {"segment_labels": 11}),
        ([str(i) for i in range(11)], {"train": 11}),
        (
            [f"train_{i}" for i in range(11)] + ["val_0", "val_1", "test"],
            {"train": 11, "val": 2, "test": 1},
        ),
        (["a", *(f"a{i}" for i in range(10))], {"train": 11}),
        (["train", *map(str, range(10))], dict.fromkeys(["train", *"0123456789"], 1)),
        (
            [f"fold{i}_{name}" for i in range(11) for name in ("train", "val")],
            {f"fold{i}_{n}": 1 for i in range(11) for n in ("train", "val")},
        ),
        ([f"{name}_scene" for name in "abcdefghijk"], {"train": 11}),
        (["cats", "dogs"], {"cats": 1, "dogs": 1}),
    ],
)
def test_many_files_that_differ_in_a_number_are_one_split(tmp_path, names, expected):
    for name in names:
        (tmp_path / f"{name}.tfrecord").write_bytes(bytes(64))
    splits = tfrecord_splits(tmp_path)
    assert {split: len(files) for split, files in splits.items()} == expected


@pytest.mark.parametrize("name", ["model.ckpt.data", "variables.data"])
def test_checkpoints_of_tensorflow_are_no_records(tmp_path, name):
    (tmp_path / f"{name}-00000-of-00001").write_bytes(b"weights")
    assert tfrecord_splits(tmp_path) == {}
    path = write_shard(tmp_path, features(png(tmp_path)), name="data-00000-of-00001")
    assert tfrecord_splits(tmp_path) == {"train": [str(path)]}
    assert len(load(tmp_path)) == 1


@pytest.mark.parametrize("files", ["no-*", ""])
def test_nothing_found(tmp_path, files):
    with pytest.raises(FileNotFoundError, match="where there are none"):
        from_tfrecord(tmp_path / files)


@pytest.mark.parametrize("is_empty", [True, False])
def test_without_an_object_class_names_are_needed(tmp_path, is_empty):
    records = [] if is_empty else [features(png(tmp_path), [], [])]
    path = write_shard(tmp_path, *records)
    what = "no image and no object" if is_empty else "no object: pass `class_names`"
    with pytest.raises(ValueError, match=f"found {what}"):
        from_tfrecord(path)
    assert len(from_tfrecord(path, class_names=["cat"])) == len(records)


def test_a_missing_shard_is_told(tmp_path):
    for i in (0, 2):
        name = f"train-{i:05d}-of-00003.tfrecord"
        write_shard(tmp_path, features(png(tmp_path)), name=name)
    with pytest.warns(UserWarning, match="2 of the 3 files"):
        assert len(from_tfrecord(tmp_path)) == 2


# Classes.


def test_names_of_classes_by_rank(tmp_path):
    encoded = png(tmp_path)
    texts = {"object__class__text": ["cat", "dog"]}
    path = write_shard(tmp_path, features(encoded, [[0.1, 0.1, 0.5, 0.5]] * 2, [7, 2]))
    assert from_tfrecord(path).class_names == ("1", "2", "3", "4", "5", "6", "7")
    assert from_tfrecord(path, class_names=list("abcdefg")).category_ids[-1] == 7
    write_shard(
        tmp_path, features(encoded, [[0.1, 0.1, 0.5, 0.5]] * 2, [7, 2], **texts)
    )
    dataset = from_tfrecord(path)
    assert dataset.class_names == ("dog", "cat") and dataset.category_ids == (2, 7)
    write_label_map(tmp_path / "x.pbtxt", {2: "Hund", 5: "Kuh", 7: "Katze"})
    dataset = from_tfrecord(path, label_map=tmp_path / "x.pbtxt")
    assert dataset.class_names == ("Hund", "Kuh", "Katze")
    assert dataset.records[0].labels.tolist() == [2, 0]
    (tmp_path / "map.json").write_text(json.dumps({"background": 0, "d": 2, "c": 7}))
    dataset = from_tfrecord(path, label_map=tmp_path / "map.json")
    assert dataset.class_names == ("d", "c") and dataset.category_ids == (2, 7)


VOC_MAP = "item { id: 1 name: 'aeroplane' } item { id: 2 name: 'bicycle' }"
TWO_BENCHES = (  # as the map of Open Images has some display names twice
    "item { id: 1 name: '/m/1' display_name: 'Bench' }"
    "item { id: 2 name: '/m/2' display_name: 'Bench' }"
)


def write_named(folder, *names, labels=None):
    """A record of objects with these names, whose labels count from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = range(1, len(names) + 1) if labels is None else labels
    boxes, texts = [[0.1, 0.1, 0.5, 0.5]] * len(names), [*names]
    record = features(png(folder), boxes, [*labels], object__class__text=texts)
    return write_shard(folder, record)


def test_label_maps_of_other_datasets_do_not_count(tmp_path):
    path = write_named(tmp_path / "data", "pawn")
    for name, text in (("voc", VOC_MAP), ("oid", TWO_BENCHES), ("broken", "item {")):
        (path.parent / f"{name}.pbtxt").write_text(text)
    message = "3 label maps do not fit the records, such as .*broken.*pass `label_map`"
    with pytest.warns(UserWarning, match=message):
        dataset = from_tfrecord(path)
    assert dataset.class_names == ("pawn",) and dataset.category_ids == (1,)
    assert [p.kind for p in dataset.problems] == ["other label map"]
    own = {1: "pawn", 2: "rook"}
    for place in (tmp_path, path.parent):  # the folder around, and that of the records
        write_label_map(place / "own.pbtxt", own)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert from_tfrecord(path).class_names == ("pawn", "rook")
    write_label_map(path.parent / "larger.pbtxt", {**own, 3: "king"})
    assert from_tfrecord(path).class_names == ("pawn", "rook")


def test_one_label_map_that_does_not_fit_names_no_class(tmp_path):
    path = write_named(tmp_path, "pawn")
    (tmp_path / "voc.pbtxt").write_text(VOC_MAP)
    message = (
        "voc.pbtxt' does not fit .*label 1 is 'pawn' in the records, but 'aeroplane'"
    )
    with pytest.warns(UserWarning, match=message):
        assert from_tfrecord(path).class_names == ("pawn",)
    write_named(tmp_path, "pawn", labels=[3])
    with pytest.warns(
        UserWarning, match="label 3 is 'pawn' in the records, but missing in the map"
    ):
        assert from_tfrecord(path).category_ids == (3,)
    assert from_tfrecord(path, label_map={3: "Bauer"}).class_names == ("Bauer",)


def test_a_label_map_fits_by_its_names_or_its_display_names(tmp_path):
    path = write_named(tmp_path, "/m/1", "/m/2")
    (tmp_path / "a.pbtxt").write_text(TWO_BENCHES)
    assert from_tfrecord(path).class_names == ("/m/1", "/m/2")
    (tmp_path / "a.pbtxt").write_text(TWO_BENCHES.replace("Bench", "Stool", 1))
    assert from_tfrecord(path).class_names == ("Stool", "Bench")
    write_named(tmp_path, "stool", "bench")
    assert from_tfrecord(path).class_names == ("Stool", "Bench")


@pytest.mark.parametrize("names", [[], ["legoperson"]])
def test_id_0_of_a_label_map_is_the_background(tmp_path, names):
    path = write_named(tmp_path, "legoperson")
    if not names:
        write_shard(tmp_path, features(png(tmp_path)))
    text = "item { id: 0 name: 'none_of_the_above' } item { id: 1 name: 'legoperson' }"
    (tmp_path / "a.pbtxt").write_text(text)
    for options in ({}, {"label_map": tmp_path / "a.pbtxt"}):
        dataset = from_tfrecord(path, **options)
        assert dataset.class_names == ("legoperson",)
        assert dataset.category_ids == (1,)


@pytest.mark.parametrize(
    "texts, message",
    [
        ([VOC_MAP, TWO_BENCHES], "label map must give each class"),
        ([VOC_MAP, VOC_MAP.replace("id: 2", "id: 4")], "Exactly one label map must"),
        (["item {"], "A label map must be items"),
    ],
)
def test_without_names_in_the_records_the_label_map_must_be_right(
    tmp_path, texts, message
):
    path = write_shard(tmp_path, features(png(tmp_path)))
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.pbtxt").write_text(text)
    with pytest.raises(ValueError, match=message):
        from_tfrecord(path)


# Objects.


def test_flags_that_make_a_crowd(tmp_path):
    boxes, labels = [[0.1, 0.1, 0.5, 0.5]] * 4, [1] * 4
    flags = {
        "object__is_crowd": np.array([1, 0, 0, 0]),
        "object__group_of": np.array([0, 1, 0, 0]),
        "object__difficult": np.array([0, 0, 1, 0]),
    }
    path = write_shard(tmp_path, features(png(tmp_path), boxes, labels, **flags))
    assert from_tfrecord(path).records[0].is_crowd.tolist() == [1, 1, 1, 0]


def test_areas_as_fractions_become_pixels(tmp_path):
    boxes = [[0.1, 0.25, 0.3, 0.5]] * 2
    area = np.array([0.2 * 0.25, 33.0])
    path = write_shard(
        tmp_path, features(png(tmp_path), boxes, [1, 1], object__area=area)
    )
    area = from_tfrecord(path).records[0].area
    np.testing.assert_allclose(area, [0.2 * 30 * 0.25 * 40, 33.0], rtol=1e-6)


def test_ids_are_taken_if_all_are_ints_and_differ(tmp_path):
    encoded = png(tmp_path)

    def ids(*source_ids):
        records = [features(encoded, source_id=source_id) for source_id in source_ids]
        dataset = from_tfrecord(write_shard(tmp_path, *records))
        return dataset.image_ids, tuple(r.source_id for r in dataset.records)

    assert ids("7", "3") == ((7, 3), (7, 3))
    assert ids("007", "3") == ((7, 3), ("007", 3))
    assert ids("7", "x") == ((1, 2), ("7", "x"))
    assert ids("7", "7") == ((1, 2), ("7", "7"))
    assert ids("", "3") == ((1, 2), (1, "3"))
    assert ids("9" * 5000, "3")[0] == (1, 2)


# Damage.


def test_offsets_point_at_the_images_even_if_their_head_repeats(tmp_path):
    head, tail = b"h" * 64, b"tail"
    other = features(head + tail, a=head + b"other")  # a lies before the image
    encoded = png(tmp_path)
    path = write_shard(tmp_path, features(encoded), other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = from_tfrecord(path, on_error="skip", class_names=["a"])
    assert dataset.records[0].image.read() == encoded
    (_, _), (offset, data) = read_records(path)
    example = decode_example(data, "image/encoded", path, offset)
    assert example["image/encoded"].read() == head + tail


@pytest.mark.parametrize(
    "damage, message",
    [
        (
            lambda data: data[:-9],
            "a.tfrecord: the file is cut off, damaged or compressed",
        ),
        (lambda data: b"no records but some text", "a.tfrecord: the file is cut off"),
        (gzip.compress, "a.tfrecord: .*without compression"),
        (
            lambda data: b"version https://git-lfs.github.com/spec/v1\nsize 9\n",
            "a.tfrecord: it is a pointer of Git LFS: .*`git lfs pull`",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, damage, message):
    path = write_shard(tmp_path, *[features(png(tmp_path))] * 3)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        from_tfrecord(path)
    if message.endswith("compressed"):
        with pytest.warns(UserWarning, match="1 unreadable annotation"):
            assert len(from_tfrecord(path, on_error="skip")) == 2


def test_records_of_another_kind_are_named(tmp_path):
    write_records(tmp_path / "a.tfrecord", [b"\xff\xff\xff"])
    with pytest.raises(ValueError, match="record 1: it is not a tf.train.Example"):
        from_tfrecord(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        (
            "train-*",
            ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"],
            {"train": 2},
        ),
        (
            "train-?????-of-*",
            ["train-00000-of-00001", "val-00000-of-00001"],
            {"train": 1},
        ),
        ("val*", ["val-a.tfrecord", "val-b.tfrecord", "train.tfrecord"], {"val": 2}),
        ("val*", ["val.bin"], {"val": 1}),
        (
            "*.tfrecord",
            ["train-1-of-1.tfrecord", "val.tfrecord"],
            {"train": 1, "val": 1},
        ),
        ("*", ["train.record", "label_map.pbtxt"], {"train": 1}),
        ("*", ["label_map.pbtxt"], {}),
    ],
)
def test_a_pattern_is_one_split_unless_names_say_others(
    tmp_path, pattern, names, expected
):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    readers = pattern_readers(f"{tmp_path}/{pattern}")
    assert {split: len(one.args[0]) for split, one in readers.items()} == expected


def test_a_pattern_is_a_dataset_of_load_and_of_commands(tmp_path, command):
    train, valid = write_shapes(
        tmp_path / "shapes", num_train=3, num_valid=2, image_size=64
    )
    write_tfrecord({"train": train, "val": valid}, tmp_path / "records", num_shards=2)
    assert len(load(f"{tmp_path}/records/val-*")) == 2
    assert list(load_splits(f"{tmp_path}/records/*.tfrecord")) == ["train", "val"]
    said = command("inspect", f"{tmp_path}/records/val-*.tfrecord")
    assert "== val ==" in said and "2 images" in said
    with pytest.raises(FileNotFoundError, match="test-"):
        load(f"{tmp_path}/records/test-*")
    with pytest.raises(ValueError, match="is only for TFRecord files"):
        load(f"{tmp_path}/records/val-*", format="coco")
    with pytest.raises(ValueError, match="has the name of a TFRecord file"):
        load(f"{tmp_path}/records/*.pbtxt")


# --- Files of other tools.

VOTT_MAP = "item {\n id: 1\n name: 'cat'\n}\nitem {\n id: 2\n name: 'dog'\n}\n"


def write_vott(folder, labels, names, label_map=VOTT_MAP):
    """A record whose labels count from 0, and the label map beside it, from 1."""
    boxes = [(0.1, 0.25, 0.3, 0.5)] * len(labels)
    image = encoded(np.zeros((20, 40, 3), np.uint8))
    values = {"object__class__text": names, "source_id": "7"}
    write_shard(folder, features(image, boxes, labels, **values))
    if label_map:
        (folder / "tf_label_map.pbtxt").write_text(label_map)


@pytest.mark.parametrize(
    "label_map, names",
    [
        (VOTT_MAP, ("cat", "dog")),
        ("", ("cat", "dog")),
        ("item {\n id: 5\n name: 'dog'\n}\n", ("cat", "dog")),
    ],
)
def test_labels_from_zero_are_read_by_their_names(tmp_path, label_map, names):
    write_vott(tmp_path, [1, 0, 1], ["dog", "cat", "dog"], label_map)
    dataset = from_tfrecord(tmp_path / "a.tfrecord")
    assert dataset.class_names == names
    labels = dataset.records[0].labels
    assert [names[label] for label in labels] == ["dog", "cat", "dog"]
    with_names = from_tfrecord(tmp_path / "a.tfrecord", class_names=["dog", "cat"])
    assert with_names.records[0].labels.tolist() == [0, 1, 0]


def test_labels_from_zero_are_known_without_the_first_class(tmp_path):
    write_vott(tmp_path, [1, 1], ["dog", "dog"])
    dataset = from_tfrecord(tmp_path / "a.tfrecord")
    assert dataset.class_names == ("cat", "dog")
    assert dataset.records[0].labels.tolist() == [1, 1]
    write_vott(tmp_path, [1, 2], ["cat", "dog"])  # which count from 1
    assert from_tfrecord(tmp_path / "a.tfrecord").records[0].labels.tolist() == [0, 1]
    write_vott(tmp_path, [1, 1], ["dog", "cow"])  # of names that are other ones
    assert from_tfrecord(tmp_path / "a.tfrecord").records[0].labels.tolist() == [0, 0]


@pytest.mark.parametrize("names", [[], ["cat"], ["cat", ""]])
def test_labels_from_zero_without_all_names_are_refused(tmp_path, names):
    write_vott(tmp_path, [0, 1], names)
    with pytest.raises(ValueError, match="unknown class"):
        from_tfrecord(tmp_path / "a.tfrecord")


@pytest.mark.parametrize("label_map", [VOTT_MAP, ""])
def test_texts_name_the_classes_where_labels_are_missing(tmp_path, label_map):
    boxes = [(0.1, 0.25, 0.3, 0.5)] * 3
    image = encoded(np.zeros((20, 40, 3), np.uint8))
    names = ["dog", "cat", "dog"]
    write_shard(tmp_path, features(image, boxes, [], object__class__text=names))
    if label_map:
        (tmp_path / "label_map.pbtxt").write_text(label_map)
    dataset = load(tmp_path)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.records[0].labels.tolist() == [1, 0, 1]
    for wrong in (["dog", "cat"], ["dog", "", "dog"], []):
        write_shard(tmp_path, features(image, boxes, [], object__class__text=wrong))
        with pytest.raises(ValueError, match="boxes=3, labels=0"):
            load(tmp_path)


def test_an_empty_shard_among_others_is_told(tmp_path):
    image = np.zeros((20, 40, 3), np.uint8)
    box = [[[4, 8, 20, 40]]]
    dataset = from_arrays([image] * 3, box * 3, [[0]] * 3, ["cat"])
    write_tfrecord(dataset, tmp_path / "set", num_shards=3)
    shard = sorted((tmp_path / "set").glob("*.tfrecord"))[1]
    shard.write_bytes(b"")
    with pytest.warns(UserWarning, match=rf"1 of 3 files is empty.*{shard.name}"):
        assert len(load(tmp_path / "set")) == 2
