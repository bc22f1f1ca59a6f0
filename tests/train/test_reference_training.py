"""Three training steps of D0, equal to the reference's, from loss to averages."""

import json

import keras
import numpy as np
import pytest
from support.odapi_training import digest
from support.tiny import EAGER

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.network_arrays import TF1, WeightSource, tf1_name

pytestmark = pytest.mark.tensorflow

# The reference's cosine jumps after the warm-up (ours does not): its own rates.
LEARNING_RATES = [0.00800000038, 0.00525000039, 0.00242461567]


@keras.saving.register_keras_serializable("effdet_keras_tests")
class ReferenceRates(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return keras.ops.take(np.array(LEARNING_RATES, "float32"), step)

    def get_config(self):
        return {}


def digests(named, names):
    return np.array([digest(named[str(name)]) for name in names])


def assert_close(ours, expected, rtol):
    """Compares rows, each at the scale of its own largest magnitude.

    A sum of thousands of terms cancels: it can be off by the rounding of the
    sum of magnitudes, which is the row's largest number.
    """
    scale = np.abs(expected).max(axis=1, keepdims=True) + 1e-3
    error = np.abs(ours - expected) / scale
    assert error.max() < rtol, (error.max(), error.max(axis=1).argmax())


@pytest.fixture(scope="module")
def trained(golden, refweights):
    """The model after each of three steps, beside the golden arrays."""
    arrays = golden("a_train_d0.npz")
    meta = json.loads(str(arrays["meta"]))
    name, size = "efficientdet-d0", meta["image_size"]
    model = EfficientDet.from_preset(
        name, image_size=size, mean_rgb=0.0, stddev_rgb=1.0
    )
    values = {
        tf1_name(v): refweights.value(tf1_name(v), v.shape, name) for v in model.weights
    }
    report = assign_source(model, WeightSource("refweights", "arrays", TF1, values))
    assert (report.num_loaded, report.left_over) == (len(model.weights), ())
    model.compile(recipe="reference", schedule=ReferenceRates(), run_eagerly=EAGER)
    truth = {"boxes": np.zeros((2, 3, 4)), "labels": np.full((2, 3), -1)}
    for i in range(2):
        boxes = arrays[f"gt_boxes_{i}"]
        truth["boxes"][i, : len(boxes)] = boxes
        truth["labels"][i, : len(boxes)] = arrays[f"gt_classes_{i}"][:, 0] - 1
    truth["boxes"] = truth["boxes"].astype("float32")
    images = refweights.image(meta["input_seed"], (2, size, size, 3))
    evaluated = model.evaluate(images, truth, verbose=0, return_dict=True)
    evaluated = {name: float(value) for name, value in evaluated.items()}
    steps = []
    for _ in range(3):
        history = model.fit(
            images, truth, batch_size=2, shuffle=False, verbose=0
        ).history
        model.averages.swap_out()  # the weights of training, beside their averages
        averages = zip(model.averages.sources, model.averages.values)
        momentum = zip(model.trainable_variables, model.optimizer.momentums)
        steps.append(
            {
                "logs": {key: value[0] for key, value in history.items()},
                "weights": named(zip(model.weights, model.weights)),
                "average": named(averages),
                "momentum": named(momentum),
            }
        )
    return arrays, evaluated, steps


def named(pairs):
    """The values of the second variables under the TF1 names of the first."""
    return {tf1_name(v): keras.ops.convert_to_numpy(value) for v, value in pairs}


def test_losses_in_evaluation_equal_the_reference(trained):
    arrays, evaluated, _ = trained
    expected = dict(zip(arrays["eval_losses_names"], arrays["eval_losses"]))
    assert evaluated["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert evaluated["class_loss"] == pytest.approx(expected["cls_loss"], rel=1e-5)
    assert evaluated["box_loss"] == pytest.approx(expected["box_loss"], rel=1e-5)
    assert evaluated["reg_l2_loss"] == pytest.approx(expected["reg_l2_loss"], rel=1e-5)


@pytest.mark.smoke
def test_logs_of_every_step_equal_the_reference(trained):
    arrays, _, steps = trained
    names = {"cls_loss": "class_loss", "det_loss": None}
    for step, expected in zip(steps, arrays["losses"]):
        for name, value in zip(arrays["losses_names"], expected):
            ours = names.get(str(name), str(name))
            if ours is not None:
                # Chaos of a random network: 1e-5 at the first step, growing.
                assert step["logs"][ours] == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize("step", [0, 1, 2])
def test_weights_and_averages_equal_the_reference(trained, step):
    arrays, _, steps = trained
    trainable = arrays["trainable_names"]
    # Momentum is the gradients: rounding grows through a network of random weights, in
    # the last step to 0.0007 or 0.0056, as threads and kernels sum.
    for kind, rtol in (("average", 5e-4), ("momentum", (1e-3, 1e-2, 1e-2)[step])):
        ours = digests(steps[step][kind], trainable)
        assert_close(ours, arrays[f"after{step + 1}/{kind}"], rtol=rtol)
    names = arrays["weight_names"]
    # Moving variances: the reference's kernel is unbiased, Keras 3 is not.
    kept = [i for i, n in enumerate(names) if not str(n).endswith("moving_variance")]
    ours = digests(steps[step]["weights"], names[kept])
    assert_close(ours, arrays[f"after{step + 1}/weights"][kept], rtol=5e-4)
