"""The table of published weights: complete, consistent, and told in the docs."""

import json
import pathlib

import pytest
from keras.src.applications import efficientnet as keras_applications

import effdet_keras as ek
from effdet_keras.network.config import MODEL_NAMES
from effdet_keras.weights.presets import (
    COCO_CATEGORY_IDS,
    COCO_CLASS_NAMES,
    KERAS_APPLICATIONS,
    WEIGHTS_KEYS,
    find_published_weights,
)

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PRESETS = ek.list_presets()


def models_of(weights):
    return {preset.model for preset in PRESETS if preset.weights == weights}


def test_every_key_has_the_models_it_was_published_for():
    d = [f"efficientdet-d{i}" for i in range(8)]
    # effdet trained none of these, and timm has no address of a B5.
    untrained = {f"effdet-d{i}" for i in range(2, 6)} | {"effdet-lite0"}
    assert models_of("coco") == set(MODEL_NAMES) - untrained
    assert models_of("imagenet") == set(MODEL_NAMES) - {"effdet-d5"}
    assert models_of("coco-advprop") == set(d[:6])
    assert models_of("coco-640") == set(d[2:7])
    assert {preset.weights for preset in PRESETS} == set(WEIGHTS_KEYS)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: f"{p.model}-{p.weights}")
def test_published_weights_have_a_config_and_fit_its_classes(preset):
    config = preset.config()
    assert config.name == preset.model
    is_640, is_advprop = preset.weights == "coco-640", preset.weights == "coco-advprop"
    assert not is_640 or config.image_size == (640, 640)
    # There 0 and 255 become -1 and 1.
    assert not is_advprop or config.mean_rgb == config.stddev_rgb == (127.5,) * 3
    names = preset.class_names or COCO_CLASS_NAMES
    ids = preset.category_ids or COCO_CATEGORY_IDS
    assert config.num_classes == len(names) == len(ids)
    assert (preset.class_names is None) == (preset.weights == "imagenet")
    assert (preset.category_ids is None) == (preset.weights == "imagenet")
    figures = {preset.ap, preset.ap_val}
    assert (figures == {None}) == (preset.weights == "imagenet")
    assert find_published_weights(preset.model, preset.weights) is preset


def test_backbones_are_those_of_keras_applications():
    assert keras_applications.BASE_WEIGHTS_PATH == KERAS_APPLICATIONS
    for preset in PRESETS:
        if "keras-applications" in preset.url:
            name = preset.config().backbone.removeprefix("efficientnet-")
            assert preset.url == f"{KERAS_APPLICATIONS}efficientnet{name}_notop.h5"
            assert preset.md5 == keras_applications.WEIGHTS_HASHES[name][1]
    for model, end in (("d7", "b6_notop.h5"), ("d7x", "b7_notop.h5")):
        published = find_published_weights(f"efficientdet-{model}", "imagenet")
        assert published.url.endswith(end)


def test_the_classes_of_coco_are_those_of_the_reference(golden_path):
    maps = json.loads(golden_path("label_maps.json").read_text())
    expected = {int(number): name for number, name in maps["coco"].items()}
    named = dict(zip(COCO_CATEGORY_IDS, COCO_CLASS_NAMES))
    used = {i: name for i, name in named.items() if name != f"unused-{i}"}
    assert used == expected and len(expected) == 80 and list(named) == [*range(1, 91)]


@pytest.mark.parametrize(
    "model, key, message",
    [
        ("efficient-d0", "coco", "Did you mean 'efficientdet-d0'"),
        ("efficientdet-d0", "Coco", "Did you mean 'coco'.*weights='Coco'"),
        (
            "efficientdet-d7",
            "coco-640",
            "weights='coco-640'. Available for this model: coco,",
        ),
        ("efficientdet-d0", None, "weights=None"),
    ],
)
def test_weights_that_do_not_exist(model, key, message):
    with pytest.raises(ValueError, match=message):
        find_published_weights(model, key)


def test_the_list_prints_as_a_table_and_the_docs_have_it():
    lines = str(PRESETS).splitlines()
    assert len(lines) == 1 + len(PRESETS) and lines[0].startswith("model")
    starts = {line.index("http") for line in lines[1:]}
    assert starts == {lines[0].index("file")}
    published = {(preset.model, preset.weights): preset for preset in PRESETS}
    keys = " | ".join(f"`{key}`" for key in WEIGHTS_KEYS)
    rows = [f"| model | {keys} |", "|---" * (1 + len(WEIGHTS_KEYS)) + "|"]
    for model in MODEL_NAMES:
        found = [published.get((model, key)) for key in WEIGHTS_KEYS]
        numbers = [one and (one.ap or one.ap_val or "backbone") for one in found]
        cells = [f"[{n}]({one.url})" if one else "" for n, one in zip(numbers, found)]
        rows.append(" | ".join((f"| {model}", *cells)) + " |")
    text = (DOCS / "weights.md").read_text()
    between = text.split("<!-- weights table -->")[1].split("<!--")[0]
    assert between.strip().splitlines() == rows
