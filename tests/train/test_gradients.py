"""What happens to gradients: factors, clipping, L2 decay."""

import math
import re
import types

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model, values, without_stochastic_depth

from effdet_keras.extras.tfod.recipe import tfod_decay
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.optimizers import (
    check_found,
    clip_gradients,
    decay_factors,
    factors_of,
    multiply_gradients,
)
from effdet_keras.train.recipe import Recipe


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("limit", [0.5, 3.0, 100.0, None])
@pytest.mark.parametrize("shapes", [((5, 3), (40,), (), (2,)), ((5, 3), ()), ((40,),)])
def test_gradients_are_clipped_one_by_one_and_then_together(shapes, limit, scale):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) * (s != (2,)) for s in shapes]  # that of 2 is zero
    expected = arrays
    if limit:
        expected = [g * min(1, limit / (np.linalg.norm(g) or 1)) for g in arrays]
        together = np.sqrt(sum(np.sum(g**2) for g in expected))
        expected = [g * min(1, limit / together) for g in expected]
    given = [ops.array(g * (scale or 1.0), "float32") for g in arrays]
    ours, norm = clip_gradients(given, limit, scale=scale)
    for a, b in zip(ours, expected, strict=True):
        a = ops.convert_to_numpy(a) / (scale or 1.0)
        np.testing.assert_allclose(a, b, rtol=1e-5)
    total = np.sqrt(sum(np.sum(g**2) for g in expected))
    assert float(norm) == pytest.approx(total, rel=1e-5)


@pytest.mark.slow_elsewhere
def test_a_step_logs_its_norm_and_rate_and_moves_by_what_was_clipped():
    model = tiny_model()
    model.compile(
        keras.optimizers.SGD(0.5),
        clip_norm=0.02,
        weight_decay=None,
        ema_decay=None,
        run_eagerly=EAGER,
    )
    before = values(model.trainable_variables)
    logs = model.fit(*batch(), verbose=0).history
    assert logs["gradient_norm"] == [pytest.approx(0.02, rel=1e-4)]
    assert logs["learning_rate"] == [0.5]
    after = values(model.trainable_variables)
    moved = np.sqrt(sum(np.sum((a - b) ** 2.0) for a, b in zip(after, before)))
    assert moved == pytest.approx(0.5 * 0.02, rel=1e-3)
    assert "gradient_norm" not in model.evaluate(*batch(), verbose=0, return_dict=True)


PATHS = ["backbone/stem/kernel", "class_head/predict/bias", "box_head/predict/bias"]
VARIABLES = [types.SimpleNamespace(path=path) for path in PATHS]


@pytest.mark.parametrize(
    ("multipliers", "expected"),
    [
        (None, [1.0, 1.0, 1.0]),
        ({"bias$": 2}, [1.0, 2.0, 2.0]),
        ({"bias$": 2.0, "class_head": 3.0}, [1.0, 2.0, 2.0]),  # the first that is found
        ({"class_head": 3.0, "bias$": 2.0}, [1.0, 3.0, 2.0]),
        ({"(backbone|box_head)/": 0.5}, [0.5, 1.0, 0.5]),
        ({"": 0.5}, [0.5, 0.5, 0.5]),
    ],
)
def test_the_first_expression_found_in_a_path_counts(multipliers, expected):
    assert factors_of(multipliers, VARIABLES) == expected


def test_an_expression_that_is_found_nowhere_names_paths_near_it():
    with pytest.raises(ValueError, match="box_head/predict/bias.*x='box_head/bias'"):
        check_found("x", {"bias": 2.0, "box_head/bias": 2.0}, VARIABLES)


@pytest.mark.parametrize("multipliers", [{"bias": 0}, {"bias$": -1.0}])
@pytest.mark.parametrize("field", ["learning_rate_multipliers", "gradient_multipliers"])
def test_wrong_multipliers_are_named(field, multipliers):
    with pytest.raises(ValueError, match=f"`{field}`.*bias"):
        Recipe(**{field: multipliers})


@pytest.mark.parametrize("multipliers", ["auto", 2.0, {"bias": math.nan}])
def test_gradient_multipliers_are_a_dict_of_factors(multipliers):
    with pytest.raises(ValueError, match="`gradient_multipliers` must be a dict"):
        Recipe(gradient_multipliers=multipliers)
    with pytest.raises(ValueError, match="`gradient_multipliers`.*'box-99'"):
        tiny_model().compile(gradient_multipliers={"box-99": 2.0})


def test_gradients_are_multiplied_where_an_expression_is_found_and_only_there():
    gradients = [ops.convert_to_tensor([float(i)]) for i in range(1, 4)]
    assert multiply_gradients(gradients, None, VARIABLES) is gradients
    found = multiply_gradients(gradients, {"bias$": 2.0, "class": 9.0}, VARIABLES)
    assert [float(g[0]) for g in found] == [1.0, 4.0, 6.0]


def step_of(**arguments):
    """How far each variable goes in a step of SGD without momentum, and its logs."""
    keras.utils.set_random_seed(1)
    model = without_stochastic_depth(tiny_model(), batch_norm=False)
    options = {"schedule": "constant", "learning_rate": 0.1, "run_eagerly": EAGER}
    model.compile("sgd", ema_decay=None, weight_decay=None, **options, **arguments)
    before = values(model.trainable_variables)
    logs = model.fit(*batch(), batch_size=2, verbose=0).history
    after = values(model.trainable_variables)
    paths = [variable.path for variable in model.trainable_variables]
    steps = {path: a - b for path, a, b in zip(paths, after, before, strict=True)}
    return steps, logs["gradient_norm"][0]


@pytest.mark.slow_elsewhere
def test_a_step_goes_further_by_the_factor_of_a_gradient_unless_it_is_clipped():
    multipliers = {"gradient_multipliers": {"bias$": 2.0, "^fpn": 0.5}}
    plain, norm = step_of(clip_norm=None)
    found, larger = step_of(clip_norm=None, **multipliers)
    factors = {path: 0.5 if path.startswith("fpn") else 1.0 for path in plain}
    factors |= {path: 2.0 for path in plain if path.endswith("bias")}
    assert set(factors.values()) == {0.5, 1.0, 2.0} and larger != norm
    for path, step in plain.items():
        # A step is the difference of two weights, in float32.
        np.testing.assert_allclose(
            found[path], factors[path] * step, rtol=1e-3, atol=2e-6, err_msg=path
        )
    # A factor on gradients comes before clipping, and one on rates would come after it.
    clipped, at_most = step_of(clip_norm=0.02, **multipliers)
    length = np.sqrt(sum(np.sum(step**2.0) for step in clipped.values()))
    assert at_most == pytest.approx(0.02, rel=1e-4)
    assert length == pytest.approx(0.1 * 0.02, rel=1e-3)


def test_the_object_detection_api_decays_these():
    model = EfficientDet.from_preset("efficientdet-d0", image_size=64, max_level=6)
    decay = tfod_decay(fpn=1.0, heads=2.0, backbone=3.0)
    variables = model.trainable_variables
    factors = dict(zip([v.path for v in variables], decay_factors(decay, variables)))
    expected = {
        "efficientnet-b0/stem/conv2d/kernel": 3.0,
        "efficientnet-b0/blocks_1/conv2d/kernel": 3.0,
        "efficientnet-b0/blocks_1/conv2d_1/kernel": 3.0,
        "efficientnet-b0/blocks_1/se/conv2d/bias": 3.0,
        "efficientnet-b0/blocks_1/depthwise_conv2d/kernel": 0.0,
        "efficientnet-b0/blocks_1/tpu_batch_normalization/gamma": 0.0,
        "resample_p6/conv2d/kernel": 1.0,
        "resample_p6/conv2d/bias": 0.0,
        "box_net/box-0/depthwise_kernel": 2.0,
        "box_net/box-0/pointwise_kernel": 0.0,
        "box_net/box-0/bias": 0.0,
        "class_net/class-predict/depthwise_kernel": 0.0,
        "class_net/class-predict/pointwise_kernel": 0.0,
    }
    assert {path: factors[path] for path in expected} == expected
    nodes = [f for path, f in factors.items() if path.endswith("conv/pointwise_kernel")]
    assert len(nodes) == 3 * 6 and set(nodes) == {1.0}


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (0.5, {"kernel$": 0.5}),  # of kernels alone
        (
            {"^box_net/.*bias$": 0.0, "^box_net/": 0.2, "^class_net/.*bias$": 3.0},
            {"^box_net/.*(?<!bias)$": 0.2, "^class_net/.*bias$": 3.0},
        ),
    ],
)
def test_what_decays_adds_half_its_square_to_the_loss(decay, expected):
    model = tiny_model()
    model.compile(recipe="reference", weight_decay=decay, run_eagerly=EAGER)
    logs = model.test_on_batch(*batch(), return_dict=True)
    loss = 0.0
    for variable in model.trainable_variables:
        for pattern, factor in expected.items():
            if re.search(pattern, variable.path):
                array = ops.convert_to_numpy(variable).astype("float64")
                loss += factor / 2 * np.sum(array**2)
    assert loss > 0
    assert logs["reg_l2_loss"] == pytest.approx(loss, rel=1e-5)
