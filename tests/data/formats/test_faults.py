"""What is wrong in one place of a dataset is named, or left out with a warning."""

import numpy as np
import pytest
from support.small_datasets import features, save_image, write_shard

from effdet_keras import data
from effdet_keras.extras.tfds import from_tfds

BOX = "<bndbox><xmin>{}</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
XML = "<annotation><object>{}</object></annotation>"
NAME = "<name>cat</name>"


# How each format is read that has one right box, and something wrong.


def coco(folder, change):
    item, changes = change
    box = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 14]}
    content = {
        "images": [{"id": i, "file_name": f"{'ab'[i]}.png"} for i in (0, 1)],
        "annotations": [{"id": 100, **box, "image_id": 0}, {"id": 101, **box}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    content[item][0] |= changes
    return lambda **options: data.from_coco(content, folder, **options)


def voc(folder, fault):
    (folder / "a.xml").write_text(fault)
    (folder / "b.xml").write_text(XML.format(NAME + BOX.format(3)))
    return lambda **options: data.from_voc(folder, **options)


def yolo(folder, line):
    (folder / "a.txt").write_bytes(line.encode("latin-1"))
    (folder / "b.txt").write_text("0 0.5 0.5 1 1")
    (folder / "classes.txt").write_text("cat\ndog")
    return lambda **options: data.from_yolo(folder, **options)


def csv(folder, row):
    header = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    (folder / "train.csv").write_text(f"{header}b.png,40,20,cat,1,2,3,4\n{row}")
    options = {"class_names": ["cat"]}
    return lambda **more: data.from_csv(folder / "train.csv", **options, **more)


def tfrecord(folder, changes):
    encoded = (folder / "a.png").read_bytes()
    changed = features(**{"encoded": encoded, "source_id": "6", **changes})
    path = write_shard(folder, features(encoded, source_id="5"), changed)
    return lambda **options: data.from_tfrecord(path, **options)


def example_of(image=None, **objects):
    image = np.zeros((30, 40, 3), np.uint8) if image is None else image
    objects = {"bbox": [[0.1, 0.25, 0.3, 0.5]], "label": [1], **objects}
    return {"image": image, "objects": objects}


def tfds(folder, example):
    names = ("cat", "dog")
    examples = [example_of(), example]
    return lambda **options: from_tfds(examples, class_names=names, **options)


def bad_box(value):
    return "annotations", {"bbox": value}


FAULTS = {
    coco: [
        (("annotations", {"category_id": 3}), "unknown class.*3, the class of 1 box"),
        (bad_box(None), r"bad box: a\.png: bbox=None of annotation 100"),
        (bad_box([1, 2, 3]), r"\[1, 2, 3\].*four finite"),
        (bad_box([1, 2, 3, np.inf]), r"1 bad box: a\.png: .*four finite"),
        (bad_box([1, 2, 3, "x"]), r"1 bad box: a\.png: .*four finite"),
    ],
    voc: [
        ("<annotation><object>", r"unreadable annotation: a\.xml.*well-formed"),
        (XML.format(NAME), r"bad box: a\.xml.*four finite"),
        (XML.format(NAME + BOX.format("nan")), r"bad box: a\.xml.*four finite"),
        (XML.format(BOX.format(3)), r"a.xml: a `name`"),
    ],
    yolo: [
        ("0 0.5 0.5 0.5", "bad box.*line 1: four numbers"),
        ("0 0.5 0.5 0.5 0.5 -0.9", "confidence from 0 to 1 or a track id.*turned"),
        ("0 0.5 0.5 0.5 0.5 nan", "confidence from 0 to 1"),
        ("0 0.5 0.5 0.5 0.5 0.5 nan", "fractions"),
        ("inf 0.5 0.5 0.5 0.5", "must be a class number"),
        ("0", "four numbers"),
        ("0 0.5 cat 0.5 0.5", "numbers are expected.*cat"),
        ("0.5 0.5 0.5 0.5 0.5", "must be a class number"),
        ("-1 0.5 0.5 0.5 0.5", "must be a class number"),
        ("0 20 10 10 10", "not pixels"),
        ("0 nan 0.5 0.5 0.5", "fractions"),
        ("2 0.5 0.5 0.5 0.5", r"a\.png: 1 box with the class number 2: .* 2 names"),
    ],
    csv: [
        ("a.png,40,20,cat,1,2,3,", r"bad box: train\.csv: row 3: four finite"),
        ("a.png,40,20,cat,1,2,3,nan", "four finite"),
        ("a.png,40,20,cat,1,2,3,1e99", "four finite"),
        ("a.png,40,20,cat,1,2", "four finite"),
        ("a.png,40,20,,1,2,3,4", "a class is expected"),
        (",40,20,cat,1,2,3,4", "name of an image"),
        ("a.png,40,20,dog,1,2,3,4", "unknown class: a.png: 'dog'"),
        ("c.png,40,20,cat,1,2,3,4", r"missing image: .*c\.png"),
    ],
    tfrecord: [
        ({"encoded": None}, "a.tfrecord record 2: no `image/encoded`"),
        ({"encoded": b""}, "a.tfrecord record 2: no `image/encoded`"),
        ({"object__class__label": np.array([1, 2])}, "boxes=1, labels=2"),
        ({"object__bbox__xmax": None}, "have different lengths.*xmax=0"),
        ({"object__area": np.array([1.0, 2.0])}, "areas=2"),
        ({"object__is_crowd": np.array([1, 1])}, r"crowd flag.*flags=\[2\]"),
        ({"object__bbox__xmin": np.array([np.nan])}, "1 bad box: .*record 2.*xmin=nan"),
        ({"object__bbox__xmax": np.array([np.inf])}, "1 bad box: .*record 2.*xmax=inf"),
        ({"object__bbox__xmax": np.array([20.0])}, "must be from 0 to 1"),
        ({"object__class__label": np.array([2.0])}, "labels=0"),
        (
            {"object__class__label": np.array([0])},
            "unknown class.*0, the class of 1 box",
        ),
        ({"object__class__label": np.array([2**62])}, f"{2**62}, the class of 1 box"),
    ],
    tfds: [
        ({"objects": {}}, "example 2: no 'image' in it"),
        ({"image": np.zeros((3, 3, 3), np.uint8)}, "example 2: no 'objects' in it"),
        (example_of(np.zeros((30, 40, 3))), "must be uint8"),
        (example_of(np.zeros((2, 30, 40, 3), np.uint8)), "must be uint8"),
        (example_of(bbox=[0.1, 0.2, 0.3, 0.4]), r"shape \[n, 4\]"),
        (example_of(label=[1, 0]), "labels=2"),
        (example_of(label=["dog"]), "`label` must be numbers"),
        (example_of(label=[2]), "1 unknown class: example 2: 3, the class of 1 box"),
        (example_of(label=[-1]), "1 unknown class: example 2"),
        (example_of(bbox=[[0, 0, np.nan, 1]]), "1 bad box: example 2"),
        (example_of(bbox=[[0, 0, 20, 30]]), "example 2.*must be from 0 to 1"),
        ("text", "example 2: string indices"),
    ],
}


@pytest.mark.parametrize(
    "write, fault, message",
    [(write, *case) for write, cases in FAULTS.items() for case in cases],
)
def test_a_fault_is_named_or_left_out(tmp_path, write, fault, message):
    for name in "ab":
        save_image(tmp_path / f"{name}.png")
    read = write(tmp_path, fault)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read()
    with pytest.warns(UserWarning, match=message):
        dataset = read(on_error="skip")
    kinds = [problem.kind for problem in dataset.problems]
    assert len(set(kinds) - {"images without a box left"}) == 1
    assert len(kinds) <= 2
    assert sum(len(record.labels) for record in dataset.records) == 1
