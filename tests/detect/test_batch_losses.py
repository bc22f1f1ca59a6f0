"""Losses and detections from one forward pass: equal to `evaluate`, and to both."""

import json
import types

import numpy as np
import pytest
from PIL import Image
from support.tiny import EAGER, batch, lively_model, tiny_model

import effdet_keras as ek
from effdet_keras.callbacks import COCOEvaluation
from effdet_keras.data import from_arrays, from_coco
from effdet_keras.detect.evaluate import evaluate

NAMES = ("bird", "cat", "dog")  # another order than the model's
LOSSES = {"loss", "class_loss", "box_loss", "reg_l2_loss"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Five images of other shapes: without objects, with a crowd, with a border box."""
    rng = np.random.default_rng(0)
    sizes = [(50, 96), (96, 50), (64, 64), (33, 70), (70, 33)]
    images = [rng.integers(0, 255, (*size, 3), "uint8") for size in sizes]
    boxes = [
        [[4, 4, 30, 40], [10, 20, 50, 96]],
        [],
        [[0, 0, 64, 64]],
        [[2, 2, 30, 30]],
        [[8, 8, 40, 30]],
    ]
    labels = [[0, 2], [], [1], [2], [0]]
    content = from_arrays(images, boxes, labels, NAMES).to_coco()
    content["annotations"][0]["iscrowd"] = 1
    folder = tmp_path_factory.mktemp("images")
    for image, row in zip(images, content["images"]):
        row["file_name"] = f"{row['id']}.png"
        Image.fromarray(image).save(folder / row["file_name"])
    (folder / "truth.json").write_text(json.dumps(content))
    return from_coco(folder / "truth.json", folder)


@pytest.fixture(scope="module")
def model():
    model = lively_model(
        category_ids=(2, 3, 1), postprocess=ek.Postprocess(max_detections=9)
    )
    model.compile(recipe="reference", run_eagerly=EAGER)
    return model


@pytest.mark.tensorflow
def test_losses_of_a_dataset_are_those_of_evaluate(model, dataset, monkeypatch, capsys):
    batches = model.batches(dataset, 2)  # the last has one image
    expected = model.evaluate(batches, verbose=0, return_dict=True)
    numbers = evaluate(model, dataset, batch_size=2, verbose=False)
    # Nothing goes through the images a second time.
    monkeypatch.setattr(type(model), "predict_on_batch", None)
    both = evaluate(model, dataset, batch_size=2, losses=True)
    assert {name for name in both if name not in numbers} == LOSSES
    for name in LOSSES:
        assert both[name] == pytest.approx(float(expected[name]), rel=1e-4), name
    assert {name: both[name] for name in numbers} == pytest.approx(numbers, abs=1e-9)
    assert f"loss {both['loss']:.4f}: class_loss" in capsys.readouterr().out
    again = ek.Predictor(model).evaluate(batches, verbose=False, losses=True)
    for name in LOSSES:
        assert again[name] == pytest.approx(float(expected[name]), rel=1e-4), name


def test_what_has_no_losses_says_so(model, dataset):
    with pytest.raises(RuntimeError, match="never compiled.*model.compile()"):
        evaluate(tiny_model(), batch(2), losses=True, verbose=False)
    exported = types.SimpleNamespace(class_names=NAMES, category_ids=None)
    with pytest.raises(ValueError, match="a model that runs in Keras"):
        evaluate(exported, dataset, losses=True, verbose=False)


def test_fit_logs_the_losses_under_the_names_of_keras(model):
    images, truth = batch(2)
    callback = COCOEvaluation((images, truth), verbose=False, losses=True)
    callback.set_model(model)
    logs = {}
    callback.on_epoch_end(0, logs)
    assert {f"val_{name}" for name in LOSSES} | {"AP", "AP/cat"} <= set(logs)
    expected = model.evaluate(images, truth, verbose=0, return_dict=True)
    assert logs["val_loss"] == pytest.approx(float(expected["loss"]), rel=1e-4)


def test_a_loss_that_is_not_finite_is_an_error():
    model = tiny_model()
    model.compile(recipe="reference", run_eagerly=EAGER)
    model.trainable_variables[0].assign(model.trainable_variables[0].value * np.nan)
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        evaluate(model, batch(2), losses=True, verbose=False)
