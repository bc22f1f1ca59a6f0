"""Files of any content at all end in the package's own errors, or are read."""

import contextlib
import copy
import json
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.small_datasets import features, write_shard

from effdet_keras import data
from effdet_keras.data import from_arrays
from effdet_keras.data.record import describe_example, load_example

FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 100)
    | st.sampled_from([10**400, -(2**63), 2**63, 1e308, -1e308])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a.png", "../a.png", "/a.png", "a\0b", "\ud800", "1", "nan"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "name", "bbox", "images", "0"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value, path=()):
    """The path of each part of a json value."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def changed_json(draw, value):
    """A json value with some of its parts replaced or removed."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from([p for p in places(value) if p]))
        part = value
        for key in parents:
            part = part[key]
        if draw(st.integers(0, 3)):
            part[last] = draw(JSON)
        else:
            del part[last]
        if not value:
            break
    return value


@st.composite
def changed_text(draw, text, tokens):
    """A text with pieces cut out and others put in, as bytes."""
    content = text.encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from(tokens) | st.binary(max_size=4))
        content = content[:start] + piece + content[end:]
    return content


def read_both(read):
    """Reads once for each `on_error`: only the package's errors may come out."""
    for on_error in ("raise", "skip"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                dataset = read(on_error)
            except (ValueError, OSError) as error:
                assert str(error)
                continue
        json.dumps(dataset.to_coco())
        dataset.summary()
        for record in dataset.records:
            assert np.isfinite(describe_example(record)["boxes"]).all()
            with contextlib.suppress(ValueError, OSError):  # another size, or damaged
                load_example(record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of one dataset in each format, without sidecars but `kept`."""
    folder = tmp_path_factory.mktemp("sets")
    images = [np.zeros((30, 40, 3), np.uint8)] * 2
    boxes = [[[4, 8, 20, 40], [1, 2, 3, 5]], []]
    dataset = from_arrays(images, boxes, [[0, 1], []], ["cat", "dog"])
    for format in ("coco", "voc", "yolo", "csv"):
        getattr(data, f"write_{format}")(dataset, folder / format)
    data.write_csv(dataset, folder / "automl", format="automl")
    for sidecar in folder.glob("*/effdet_keras.json"):
        sidecar.unlink()
    data.write_yolo(dataset, folder / "kept")
    darknet = "train = images/train\nnames = n.names\n"
    (folder / "yolo" / "fuzz.data").write_text(darknet)
    (folder / "yolo" / "n.names").write_text("cat\ndog\n")
    (folder / "csv" / "a.csv").write_text("train/000000000001.png,8,4,40,20,cat\n")
    return folder


@pytest.fixture(scope="module")
def originals(folder):
    return {name: (folder / name).read_text() for name in FILES}


NUMBERS = [b"nan", b"-1", b"1e999", b"9" * 5000, b"0x1", b"1_0", b"", b" ", b"\n"]
XML_TOKENS = [
    *NUMBERS,
    *(b"<object>", b"</object>", b"<bndbox/>", b"&x;", b"<!--", b"<![CDATA["),
    b'<?xml version="1.0" encoding="utf-16"?>',
    b'<?xml version="1.0" encoding="rot13"?>',
    b'<!DOCTYPE a [<!ENTITY x "y">]>',
    b'<annotation xmlns="u">',
    b"<a>" * 2000,
]
YAML_TOKENS = [
    *NUMBERS,
    *(b"names:", b"train: ", b"- ", b"? ", b"{", b"[", b"&a ", b"*a", b"!!bool x"),
    *(b"!!python/object:os.system ", b"!!timestamp x", b"!!int ''", b"\t", b": "),
    *(b"path: /", b"nc: 99999999999\n", b"[" * 2000, b"2001-99-99", b"null"),
]
CSV_TOKENS = [*NUMBERS, b",", b'"', b"\r", b"\0", b"TRAIN", b"gs://", b"\xef\xbb\xbf"]


@FUZZ
@given(draws=st.data())
def test_coco_json(folder, originals, draws):
    original = json.loads(originals["coco/train.json"])
    content = draws.draw(changed_json(original) | JSON)
    if isinstance(content, dict):
        read_both(lambda e: data.from_coco(content, folder / "coco/train", on_error=e))
    path = folder / "coco" / "train.json"
    path.write_text(json.dumps(content))
    read_both(lambda e: data.from_coco(path, on_error=e))


# What files are changed with, and how what is there is read.
COCO_TOKENS = [b"[" * 99999, b"\xef\xbb\xbf", b"NaN", b"{"]
FILES = {
    "coco/train.json": (
        COCO_TOKENS,
        lambda f, e: data.from_coco(f / "train.json", f / "train", on_error=e),
        lambda f, e: data.load(f / "train.json", on_error=e),
    ),
    "voc/Annotations/000000000001.xml": (
        XML_TOKENS,
        lambda f, e: data.from_voc(f, on_error=e),
    ),
    "voc/ImageSets/Main/train.txt": (
        NUMBERS,
        lambda f, e: data.from_voc(f, "train", on_error=e),
    ),
    "yolo/labels/train/000000000001.txt": (
        [*NUMBERS, b" 0.1 0.1 0.3 0.1"],
        lambda f, e: data.from_yolo(f, on_error=e),
    ),
    "yolo/data.yaml": (
        YAML_TOKENS,
        lambda f, e: data.from_yolo(f / "data.yaml", on_error=e),
        lambda f, e: data.load(f, on_error=e),
    ),
    "yolo/fuzz.data": (
        YAML_TOKENS,
        lambda f, e: data.from_yolo(f / "fuzz.data", on_error=e),
    ),
    **{
        name: (
            CSV_TOKENS,
            lambda f, e, name=name: data.from_csv(f.parent / name, on_error=e),
            lambda f, e: data.load(f, on_error=e),
        )
        for name in ("csv/train.csv", "csv/a.csv", "automl/data.csv")
    },
}
VALUES_OF_YAML = JSON.flatmap(
    lambda value: st.sampled_from(
        [
            {"train": "images/train", "names": value},
            {"train": value, "names": ["a", "b"]},
            {"path": value, "train": ".", "nc": value},
        ]
    )
).map(json.dumps)


@FUZZ
@given(draws=st.data())
@pytest.mark.parametrize("name", FILES)
def test_files_of_any_content(folder, originals, draws, name):
    tokens, *readers = FILES[name]
    contents = changed_text(originals[name], tokens) | st.binary(max_size=30)
    if name == "yolo/data.yaml":
        contents |= VALUES_OF_YAML.map(str.encode)
    (folder / name).write_bytes(draws.draw(contents))
    for read in readers:
        read_both(lambda e, read=read: read(folder / name.partition("/")[0], e))


@FUZZ
@given(draws=st.data())
def test_a_broken_sidecar_stops_nothing(folder, draws):
    path = folder / "kept" / "effdet_keras.json"
    original = path.read_bytes()
    changed = changed_json(json.loads(original)) | JSON
    content = draws.draw(changed.map(json.dumps).map(str.encode) | st.binary())
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = data.from_yolo(folder / "kept")
    finally:
        path.write_bytes(original)
    assert [len(record.labels) for record in found.records] in ([2, 0], [0, 2])
    json.dumps(found.to_coco())


FEATURES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(
        lambda v: np.array(v, np.int64)
    ),
    st.lists(st.floats(width=32), max_size=4).map(lambda v: np.array(v, float)),
    st.binary(max_size=40),
)
RECORD = features(b"", [[0.5, 0.5, 0.9, 0.9]])
OTHERS = ["image/height", "image/width", "image/source_id", "image/filename"]
OTHERS += [f"image/object/{k}" for k in ("area", "is_crowd", "group_of", "class/text")]
OF_TFDS = {"objects/bbox": np.array([0.1, 0.2, 0.5, 0.6])}
OF_TFDS["objects/label"] = np.array([0])
OTHERS_OF_TFDS = ["image/id", "image/filename", "objects/area", "objects/is_crowd"]


@settings(FUZZ, max_examples=60)
@given(draws=st.data())
@pytest.mark.parametrize(
    "image, record, others, name",
    [
        ("image/encoded", RECORD, OTHERS, "a.tfrecord"),
        ("image", OF_TFDS, OTHERS_OF_TFDS, "x-train.tfrecord-00000-of-00001"),
    ],
    ids=["tfrecord", "tfds"],
)
def test_features_of_records(folder, draws, image, record, others, name):
    png = next((folder / "coco" / "train").iterdir()).read_bytes()
    record = {**record, image: png}
    changes = st.dictionaries(st.sampled_from([*record, *others]), FEATURES, max_size=3)
    place = folder / image.replace("/", "_")
    place.mkdir(exist_ok=True)
    write_shard(place, {**record, **draws.draw(changes)}, name=name)
    if name == "a.tfrecord":
        read_both(lambda e: data.from_tfrecord(place, on_error=e))
        return
    (place / "features.json").touch()
    names = draws.draw(st.one_of(st.just(b"cat\n"), st.binary(max_size=9)))
    (place / "objects-label.labels.txt").write_bytes(names)
    read_both(lambda e: data.from_tfds(place, "train", on_error=e))


NAMES = [
    *("a.json", "data.yaml", "a.csv", "a.xml", "a.txt", "a.data", "classes.txt"),
    *("train.tfrecord", "dataset_info.json", "features.json", "effdet_keras.json"),
    *("Annotations/a.xml", "labels/a.txt", "annotations/instances_a.json", "a.png"),
]


@settings(FUZZ, max_examples=60)
@given(files=st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=20)))
def test_a_folder_of_anything_is_explained(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("any")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    for path in [folder, *(folder / name for name in files)]:
        read_both(lambda e, path=path: data.load(path, on_error=e))


@FUZZ
@given(
    boxes=st.lists(st.lists(st.floats(), min_size=4, max_size=4), max_size=3),
    labels=st.lists(st.integers(-2, 3), max_size=3),
    names=st.sampled_from(["ab", ["a", "b"]]),
    box_format=st.sampled_from(["yxyx", "xyxy", "xywh"]),
)
def test_arrays(boxes, labels, names, box_format):
    image = np.zeros((8, 8, 3), np.uint8)
    read_both(
        lambda _: from_arrays([image], [boxes], [labels], names, box_format=box_format)
    )


@FUZZ
@given(content=st.binary(max_size=40), cut=st.integers(0, 60))
def test_images(tmp_path_factory, content, cut):
    path = tmp_path_factory.getbasetemp() / "fuzz.png"
    Image.new("RGB", (8, 8)).save(path)
    for bytes_ in (content, path.read_bytes()[:cut]):
        path.write_bytes(bytes_)
        read_both(lambda _: from_arrays([path], [[]], [[]], ["cat"]))
