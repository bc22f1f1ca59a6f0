"""Settings of Keras that the network lacks, and `clone_model`, get a plain error."""

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.model.efficientdet import EfficientDet


@pytest.fixture
def settings_of_keras():
    """Settings that a test changes are as before after it."""
    before = keras.config.floatx(), keras.config.image_data_format()
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_image_data_format(before[1])
    keras.config.set_dtype_policy(policy)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_channels_first_names_the_cure(settings_of_keras, model):
    keras.config.set_image_data_format("channels_first")
    cure = r'set_image_data_format\("channels_last"\)'
    with pytest.raises(RuntimeError, match=cure):
        tiny_model()
    with pytest.raises(RuntimeError, match=cure):  # made before
        model(np.zeros((1, 64, 64, 3), "uint8"))
    with pytest.raises(RuntimeError, match=cure):
        model.detect(np.zeros((64, 64, 3), "uint8"))


@pytest.mark.parametrize("floatx", ["float64", "float16"])
def test_another_floatx_names_the_cure(settings_of_keras, floatx):
    keras.config.set_floatx(floatx)
    with pytest.raises(ValueError, match=rf"set_floatx\('float32'\).*{floatx}"):
        tiny_model()


def test_a_policy_of_float64_names_the_cure(settings_of_keras):
    for policy in ("float64", keras.DTypePolicy("float64")):
        with pytest.raises(
            ValueError, match="does not work in float64.*'mixed_bfloat16'"
        ):
            tiny_model(dtype=policy)
    keras.config.set_dtype_policy("float64")
    with pytest.raises(ValueError, match="does not work in float64.*'float32'"):
        tiny_model()


def test_a_preset_takes_a_policy_as_those_of_keras_hub_do():
    options = {"num_classes": 2, "image_size": 64, "fpn_num_filters": 8}
    preset = "efficientdet-lite0"
    model = EfficientDet.from_preset(preset, dtype="mixed_bfloat16", **options)
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert model.get_layer("class_net").compute_dtype == "bfloat16"
    with pytest.raises(ValueError, match="does not work in float64.*'mixed_bfloat16'"):
        EfficientDet.from_preset(preset, dtype="float64", **options)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_clone_model_names_what_copies_a_detector(is_compiled):
    model = tiny_model()
    if is_compiled:
        model.compile("sgd", run_eagerly=EAGER)
    with pytest.raises(RuntimeError, match="EfficientDet.from_config.*set_weights"):
        keras.models.clone_model(model)
    # Which is true.
    copy = EfficientDet.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    assert_equal(copy.variables, model.variables)
    images, _ = batch()
    assert_equal([copy(images)["box_deltas"]], [model(images)["box_deltas"]])


def test_a_model_that_holds_a_detector_can_be_cloned(model):
    images = keras.Input((64, 64, 3))
    outer = keras.Model(images, model(images))
    inner = keras.models.clone_model(outer).layers[-1]
    assert isinstance(inner, EfficientDet) and inner.config == model.config
