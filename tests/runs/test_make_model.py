"""The model of a run: for its data, with the weights that can be had."""

import numpy as np
import pytest
from support.tiny import tiny_model
from support.tiny_run import tiny_run

from effdet_keras.data import from_arrays
from effdet_keras.extras import multiprocess
from effdet_keras.runs import parts
from effdet_keras.runs.configuration import RunConfiguration

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def train():
    image = np.zeros((64, 64, 3), "uint8")
    boxes = [[[0, 0, 30, 10], [8, 8, 60, 20]]] * 2
    return from_arrays([image] * 2, boxes, [[0, 1]] * 2, {3: "cat", 7: "dog"})


def made(train, **fields):
    return parts.make_model(RunConfiguration(**tiny_run(**fields)), train)


def test_it_has_the_classes_of_the_data_and_what_was_set(train):
    fields = {"postprocess": {"max_detections": 7}, "loss": {"gamma": 2.0}}
    model = made(train, **fields, learning_rate=0.5, freeze="efficientnet")
    assert (model.class_names, model.category_ids) == (("cat", "dog"), (3, 7))
    assert model.config.image_size == (64, 64)
    assert model.postprocess.max_detections == 7
    recipe = model.settings.open_recipe
    assert (recipe.loss.gamma, recipe.learning_rate) == (2.0, 0.5)
    assert not any("efficientnet" in w.path for w in model.trainable_variables)


@pytest.fixture
def asked(monkeypatch):
    """What `from_preset` is asked for; it has no backbone."""
    asked = []

    def from_preset(name, weights=None, **options):
        if weights is not None:
            raise ConnectionError("no network here")
        asked.append(options)
        return tiny_model()

    monkeypatch.setattr(parts.EfficientDet, "from_preset", from_preset)
    return asked


def test_anchors_and_size_are_fitted_to_the_boxes_unless_they_are_set(train, asked):
    config = {"max_level": 5}
    made(train, anchors="auto", image_size="auto", model_config=config)
    assert asked[-1]["anchors"] == asked[-1]["image_size"] == "auto"
    assert asked[-1]["dataset"] is train and asked[-1]["max_level"] == 5
    for own in ("anchor_scale", "aspect_ratios"):
        value = {"anchor_scale": 2.5, "aspect_ratios": (1.0, 3.0)}[own]
        made(train, anchors="auto", image_size=None, model_config={own: value})
        assert asked[-1]["anchors"] is None and "image_size" not in asked[-1]


def test_without_a_backbone_it_says_so_and_starts_from_random_weights(
    train, asked, capsys
):
    made(train, weights="auto")
    said = capsys.readouterr().out
    assert "starts from random weights" in said and "no network here" in said
    with pytest.raises(ConnectionError):  # it was asked for
        made(train, weights="imagenet")


def test_the_precision_is_the_models_and_nobody_elses(train):
    model = made(train, precision="mixed_bfloat16")
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert parts.keras.config.dtype_policy().name == "float32"


def test_a_strategy_holds_model_and_optimizer(train, monkeypatch):
    monkeypatch.setattr(multiprocess, "_started", {})
    model = made(train, distribute="mirrored")
    assert model.config.sync_batch_norm
    assert type(model.distribute_strategy).__name__ == "MirroredStrategy"


def test_a_module_brings_its_own_weights(train, tmp_path):
    with pytest.raises(ValueError, match="brings its own weights"):
        made(train, model=str(tmp_path), weights="coco", model_config={})
