"""The scripts of examples/ run, each on a few images, from a model of 64 x 64 pixels.

`--weights` of a small model of our own makes the script's model as small: its config is
in the file. Steps run eagerly, which is faster for two of them than making a graph.
"""

import functools
import json
import pathlib
import runpy
import sys
import zipfile

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import BACKBONE, tiny_model

import effdet_keras as ek

pytestmark = pytest.mark.tensorflow

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
SHAPES = ("circle", "square", "triangle")
SMALL = ("--epochs", "1", "--batch-size", "2", "--model", "efficientdet-lite0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data in the formats that the scripts read, and weights to start from."""
    folder = tmp_path_factory.mktemp("examples")
    train, valid = ek.data.write_shapes(
        folder / "shapes", num_train=12, num_valid=2, image_size=64
    )
    ek.data.write_voc({"train": train, "val": valid}, folder / "voc")
    for name, dataset in (("train", train), ("valid", valid)):
        lines = map(json.dumps, map(line_of, dataset))
        (folder / "shapes" / f"{name}.jsonl").write_text("\n".join(lines))
    tiny_model(class_names=SHAPES).save(folder / "start.keras")
    return folder


def line_of(example):
    boxes = example["boxes"][:, [1, 0, 3, 2]].tolist()  # left, top, right, bottom
    names = [SHAPES[label] for label in example["labels"]]
    objects = [[name, *box] for name, box in zip(names, boxes)]
    return {"file": example["path"], "objects": objects}


@pytest.fixture
def run(folder, monkeypatch):
    """Runs a script of examples/ in the folder, with some arguments."""
    eager = functools.partialmethod(ek.EfficientDet.compile, run_eagerly=True)
    monkeypatch.setattr(ek.EfficientDet, "compile", eager)
    monkeypatch.chdir(folder)

    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        return runpy.run_path(str(EXAMPLES / script), run_name="__main__")

    return run


def weights_of(path):
    model = keras.saving.load_model(path, compile=False)
    return {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}


def changed(path, folder):
    """The first parts of the paths of what differs from the start."""
    before, after = weights_of(folder / "start.keras"), weights_of(path)
    differing = (p for p in before if not np.array_equal(before[p], after[p]))
    return {path.split("/")[0] for path in differing}


@pytest.mark.slow
def test_fit_coco_json_trains_archives_and_resumes(run, folder):
    data = [f"shapes/{x}" for x in ("train.json", "train", "valid.json", "valid")]
    options = (*SMALL, "--weights", "start.keras", "--out", "coco")
    run("fit_coco_json.py", *data, *options)
    assert changed("coco/detector.keras", folder) > {"class_net", "box_net"}
    run("fit_coco_json.py", *data, *options, "--resume", "--epochs", "2")
    with zipfile.ZipFile("coco/last.keras") as archive:
        info = json.loads(archive.read("archive.json"))
    assert info["epoch"] == 2
    assert ek.EfficientDet.from_archive("coco").category_ids == (1, 2, 3)


@pytest.mark.slow
def test_fit_voc_trains_the_heads_and_then_everything(run, monkeypatch):
    trained = []
    fit = ek.EfficientDet.fit

    def watched(model, *arguments, **options):
        trained.append({v.path.split("/")[0] for v in model.trainable_variables})
        return fit(model, *arguments, **options)

    monkeypatch.setattr(ek.EfficientDet, "fit", watched)
    options = (*SMALL, "--weights", "start.keras", "--out", "voc_run")
    run("fit_voc.py", "voc", *options, "--head-epochs", "1", "--images", "2")
    heads, everything = trained
    assert everything - heads == {BACKBONE}
    assert ek.EfficientDet.from_archive("voc_run").class_names == SHAPES


@pytest.mark.slow
def test_fit_tf_data_trains_on_a_pipeline_of_ones_own(run, folder):
    options = (*SMALL, "--weights", "start.keras", "--steps", "2", "--out", "own.keras")
    names = run(
        "fit_tf_data.py", "shapes/train.jsonl", "shapes/valid.jsonl", *SHAPES, *options
    )
    assert changed("own.keras", folder) > {BACKBONE, "class_net"}
    own = names["examples_of"]("shapes/valid.jsonl", list(SHAPES), (64, 64))
    valid = ek.data.from_coco("shapes/valid.json", "shapes/valid")
    for (image, boxes, labels), example in zip(own, valid):
        assert np.abs(image - example["image"]).mean() < 3.0  # two JPEG decoders
        np.testing.assert_allclose(boxes, example["boxes"], atol=1e-3)
        assert labels.numpy().tolist() == example["labels"].tolist()


@pytest.mark.slow  # tests/hub has each step of it
def test_fit_from_hub_trains_and_exports(run, folder):
    tiny_model().export_hub_module(folder / "module")
    options = ("--out", "hub", *SMALL[:4], "--freeze", "backbone+fpn")
    run("fit_from_hub.py", "shapes", "--module", "module", *options)
    assert ek.EfficientDet.from_archive("hub").class_names == SHAPES
    before, after = named_weights("module"), named_weights("hub/module")
    assert before.keys() == after.keys()
    moved = {n for n in before if not np.array_equal(before[n], after[n])}
    assert {name.split("/")[0] for name in moved} == {"class_net", "box_net"}


def named_weights(module):
    import tensorflow as tf

    variables = tf.saved_model.load(module).variables  # random state among them
    return {v.name: v.numpy() for v in variables if v.dtype.is_floating}


def test_the_flip_of_fit_tf_data_mirrors_boxes_with_images():
    names = runpy.run_path(str(EXAMPLES / "fit_tf_data.py"))
    image = np.zeros((4, 8, 3), "float32")
    image[1:3, 2:5] = 1.0
    seen = set()
    for _ in range(30):
        flipped, boxes, _ = names["flip"](image, np.float32([[1, 2, 3, 5]]), [0])
        top, left, bottom, right = np.asarray(boxes)[0].astype(int)
        assert np.asarray(flipped)[top:bottom, left:right].all()
        assert np.asarray(flipped).sum() == image.sum()
        seen.add(left)
    assert seen == {2, 3}


def test_a_image_of_fit_tf_data_is_stretched_with_its_boxes(tmp_path):
    names = runpy.run_path(str(EXAMPLES / "fit_tf_data.py"))
    path = str(tmp_path / "image.png")
    Image.new("RGB", (80, 40)).save(path)  # width, height
    box = np.float32([[10, 20, 30, 60]])
    image, boxes, _ = names["load"](path, box, [0], (80, 40))
    assert tuple(image.shape) == (80, 40, 3)
    assert np.asarray(boxes).tolist() == [[20, 10, 60, 30]]
