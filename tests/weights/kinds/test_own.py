"""Our own files: every weight and average found, whatever wrote and froze them."""

import math
import zipfile

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import LITE0, tiny_model
from support.weights import whole_match

from effdet_keras.cli import import_
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.kinds.own import OWN, read_own_weights
from effdet_keras.weights.network_arrays import tf1_name

NAMES = ["model.weights.h5", "model.keras"]


def number_everything(model):
    """Gives each weight a number of its own, and each average that and a half."""
    for number, variable in enumerate(model.weights):
        variable.assign(np.full(variable.shape, number, "float32"))
    if model.averages is not None:
        model.averages.reset()
        for average in model.averages.variables:
            average.assign(ops.convert_to_numpy(average) + 0.5)
    return model


def save(model, path):
    save_as = model.save if path.suffix == ".keras" else model.save_weights
    save_as(path)
    return path


def assert_holds(source, model, averaged=()):
    """Each weight is there bit by bit; those in `averaged` by their average."""
    arrays = whole_match(source, model.config)
    assert len(arrays) == len(model.weights)
    averaged = {variable.path for variable in averaged}
    assert source.num_averages == len(averaged)
    for variable in model.weights:
        expected = ops.convert_to_numpy(variable)
        expected = expected + (0.5 if variable.path in averaged else 0.0)
        found = arrays[tf1_name(variable)]
        np.testing.assert_array_equal(found, expected, err_msg=variable.path)


@pytest.fixture(scope="module")
def plain():
    return number_everything(tiny_model(backbone=LITE0, category_ids=(1, 5, 9)))


@pytest.fixture(scope="module")
def compiled():
    model = tiny_model(backbone=LITE0)
    model.compile()
    return number_everything(model)


@pytest.mark.smoke
@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_was_never_compiled_is_read(tmp_path, plain, name):
    source = read_own_weights(save(plain, tmp_path / name))
    assert_holds(source, plain)
    assert (source.scheme, source.others) == (OWN, ())


@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_gives_averages_or_weights(tmp_path, compiled, name, averages):
    source = read_own_weights(save(compiled, tmp_path / name), averages=averages)
    averaged = compiled.averages.sources if averages else []
    assert_holds(source, compiled, averaged)
    assert any(name.startswith("vars/training:") for name in source.others) == averages


def test_weights_frozen_before_training_have_no_averages(tmp_path):
    model = tiny_model(backbone=LITE0)
    for variable in model.weights:
        if variable.path.startswith("efficientnet"):
            variable.trainable = False
    model.compile()
    number_everything(model)
    averaged = model.averages.sources
    assert 0 < len(averaged) < len(model.weights)
    path = tmp_path / "x.weights.h5"
    assert_holds(read_own_weights(save(model, path)), model, averaged)


@pytest.mark.slow_elsewhere  # names are the same on every backend
@pytest.mark.parametrize(
    "fields",
    [
        {"fpn_name": "qufpn", "fpn_cell_repeats": 2, "redundant_bias": False},
        {
            "conv_bn_act_pattern": True,
            "apply_bn_for_resampling": False,
            "fpn_weight_method": "channel_fastattn",
            "separable_conv": False,
            "min_level": 2,
            "max_level": 8,
            "image_size": 256,
        },
    ],
    ids=["qufpn", "vectors"],
)
def test_averages_are_found_whatever_the_network(tmp_path, fields):
    config = EfficientDetConfig.from_name(
        "efficientdet-lite0",
        **{
            "image_size": 128,
            "max_level": 5,
            "num_classes": 3,
            "fpn_num_filters": 8,
            "fpn_cell_repeats": 1,
            "head_repeats": 1,
            **fields,
        },
    )
    model = EfficientDet(config)
    model.compile()
    number_everything(model)
    path = save(model, tmp_path / "x.weights.h5")
    assert_holds(read_own_weights(path), model, model.averages.sources)


def test_a_keras_file_tells_names_ids_and_config(tmp_path, plain):
    source = read_own_weights(save(plain, tmp_path / "x.keras"))
    assert source.class_names == ("cat", "dog", "bird")
    assert source.category_ids == (1, 5, 9)
    assert EfficientDetConfig(**source.config) == plain.config
    assert Postprocess.from_config(source.postprocess) == plain.postprocess
    source = read_own_weights(save(plain, tmp_path / "x.weights.h5"))
    assert (source.class_names, source.category_ids, source.config) == (None,) * 3
    assert source.postprocess is None


def test_boxes_are_chosen_as_the_file_says(tmp_path, plain):
    hard = Postprocess(method="hard", score_threshold=-math.inf, drop_empty=True)
    model = EfficientDet(plain.config, postprocess=hard)
    path = save(model, tmp_path / "x.keras")
    name, size = plain.config.name, plain.config.image_size
    again = EfficientDet.from_preset(name, path, verbose=0)
    assert again.postprocess == hard and again.config.image_size == size
    import_.run(path, tmp_path / "imported.keras")
    imported = EfficientDet.from_archive(tmp_path / "imported.keras")
    assert imported.postprocess == hard

    class Own(Postprocess):
        pass

    model.postprocess = Own()
    source = read_own_weights(save(model, tmp_path / "own.keras"))
    assert source.postprocess is None


# What is no such file


def test_another_models_files_are_named(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "x.keras")
    model.save_weights(tmp_path / "x.weights.h5")
    with pytest.raises(
        ValueError, match=r"x\.keras' contains a model of the class 'Seq"
    ):
        read_own_weights(tmp_path / "x.keras")
    with pytest.raises(
        ValueError, match=r"weights\.h5' contains no weights of this pack"
    ):
        read_own_weights(tmp_path / "x.weights.h5")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("holiday.txt", "sun")
    with pytest.raises(ValueError, match=r"not a checkpoint of Keras.*holiday\.txt"):
        read_own_weights(tmp_path / "x.zip")
