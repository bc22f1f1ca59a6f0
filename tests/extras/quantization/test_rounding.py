"""What is said of an int8 file: where it loses most, and whether to train for it."""

import numpy as np
import pytest
from support.tiny import tiny_model

from effdet_keras.data import from_arrays
from effdet_keras.extras.quantization.rounding import advice_of, rounding_errors

pytestmark = pytest.mark.tensorflow


def images(count):
    return np.random.default_rng(0).integers(0, 256, (count, 64, 64, 3), "uint8")


def readers(pixels):
    return [lambda x=x: x.astype("float32") for x in pixels]


def test_a_kernel_with_one_large_number_loses_most():
    model = tiny_model()
    (kernel,) = [v for v in model.variables if v.path.endswith("stem/conv2d/kernel")]
    values = np.full(kernel.shape, 0.003, "float32")
    values[0, 0, 0] = 1.0  # all others are less than half a step of 1 / 127
    kernel.assign(values)
    errors = dict(rounding_errors(model, readers(images(2))))
    count = values[..., 0].size - 1
    expected = np.sqrt(count * 0.003**2 / (1 + count * 0.003**2))
    assert errors[kernel.path] == pytest.approx(expected, rel=1e-3)


def test_errors_are_those_of_256_steps_between_the_ends():
    errors = rounding_errors(tiny_model(), readers(images(2)))
    values = [value for _, value in errors]
    assert values == sorted(values, reverse=True)
    errors = dict(errors)
    assert errors["normalization/pixels"] == 0.0  # whole numbers from 0 to 255
    # Even noise of 1 / sqrt(12) of a step, where the root mean square is a share of
    # the range: 0.29 / 255 of it.
    (activation,) = [n for n in errors if n.endswith("stem/activation")]
    assert 0.29 / 255 < errors[activation] < 10 * 0.29 / 255


def test_a_report_names_places_and_says_what_int8_costs(tmp_path):
    pytest.importorskip("ai_edge_litert")
    pixels = images(3)
    boxes, labels = [[[8, 8, 40, 40]]] * 3, [[1]] * 3
    dataset = from_arrays(pixels, boxes, labels, ("cat", "dog", "bird"))
    report = tiny_model().export(
        tmp_path / "cats.tflite",
        precision="int8",
        calibration=pixels,
        evaluate=dataset,
        verbose=0,
    )
    assert len(report.rounding_errors) == 20
    name, error = report.rounding_errors[0]
    assert f"{error:6.1%}  {name}" in str(report)
    assert report.advice.startswith("int8 costs ") and report.advice in str(report)


def test_advice_changes_with_the_cost():
    assert "is worth its time" in advice_of(0.006)
    assert "can gain little" in advice_of(0.005)
    assert "pass a dataset as `evaluate`" in advice_of(None)
