"""The digest of a run's data: the same for the same data, and no other."""

import dataclasses
import json

import numpy as np
import pytest

from effdet_keras.data import from_arrays, from_coco, load_splits
from effdet_keras.runs.run_folder import describe_data, fingerprint

pytestmark = pytest.mark.tensorflow


def test_the_same_data_has_the_same_digest_wherever_it_is(shapes, tmp_path):
    copy = tmp_path / "copy"
    (copy / "train").mkdir(parents=True)
    for path in [shapes / "train.json", *(shapes / "train").iterdir()]:
        (copy / path.relative_to(shapes)).write_bytes(path.read_bytes())
    here = from_coco(shapes / "train.json", shapes / "train")
    there = from_coco(copy / "train.json", copy / "train")
    assert fingerprint(here) == fingerprint(there)


def test_every_part_of_it_counts(shapes, tmp_path):
    image = np.zeros((16, 16, 3), "uint8")

    def digest(pixel=0, box=(0, 0, 8, 8), names=("cat", "dog"), label=0):
        pixels = image + np.uint8(pixel)
        return fingerprint(from_arrays([pixels], [[box]], [[label]], names))

    others = [digest(), digest(pixel=1), digest(box=(0, 0, 8, 9)), digest(label=1)]
    others.append(digest(names=("cat", "fox")))
    assert len(set(others)) == len(others)


def test_an_image_file_of_another_size_counts(tmp_path):
    for name, size in (("a", 80), ("b", 81)):
        (tmp_path / f"{name}.png").write_bytes(bytes(size))
    dataset = from_arrays([np.zeros((8, 8, 3), "uint8")], [[]], [[]], ["cat"])
    digests = set()
    for path in ("a.png", "b.png", "nowhere.png"):
        record = dataclasses.replace(dataset.records[0], image=str(tmp_path / path))
        digests.add(fingerprint(dataset.__class__([record], ["cat"])))
    assert len(digests) == 3


def test_data_is_described_for_json(shapes, capsys):
    described = describe_data(load_splits(shapes))
    assert json.loads(json.dumps(described)) == described
    assert described["class_names"] == ["circle", "square", "triangle"]
    assert described["splits"]["train"]["images"] == 4
