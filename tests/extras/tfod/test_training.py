"""Two training steps of D0, equal to those of the TF Object Detection API."""

import json

import numpy as np
import pytest
from support import programs
from support.odapi import odapi_path

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

LOSSES = {
    "class_loss": "classification",
    "box_loss": "localization",
    "reg_l2_loss": "regularization",
    "loss": "total",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    expected = np.load(odapi_path("train_step.npz"))
    path = tmp_path_factory.mktemp("trained") / "found.npz"
    programs.run_alone("-m", "support.odapi_training", path, TF_ENABLE_ONEDNN_OPTS="0")
    return np.load(path), expected


def assert_losses(found, prefix, expected, folder, rtol):
    for ours, theirs in LOSSES.items():
        value = float(expected[f"{folder}/Loss/{theirs}_loss"])
        assert float(found[f"{prefix}/{ours}"]) == pytest.approx(value, rel=rtol), ours


def test_losses_in_evaluation(trained):
    found, _ = trained
    arrays = np.load(odapi_path("losses.npz"))
    assert_losses(found, "evaluated", arrays, "network", rtol=1e-5)


@pytest.mark.parametrize(("step", "rtol"), [(0, 1e-5), (1, 1e-4)])
def test_losses_of_a_step(trained, step, rtol):
    # Chaos of a random network: 4e-7 at the first step, 1.4e-5 at the second.
    found, expected = trained
    assert_losses(found, f"step{step}", expected, f"step{step}", rtol=rtol)
    rate = json.loads(str(expected["meta"]))["lr"][step]
    assert float(found[f"step{step}/learning_rate"]) == pytest.approx(rate, rel=1e-6)


def worst(found, expected):
    """The largest difference of a row, by the largest number in it."""
    scale = np.abs(expected).max(axis=1, keepdims=True) + 1e-3
    return np.nanmax(np.abs(found - expected) / scale)


def test_weights_statistics_and_momentum(trained):
    found, expected = trained
    assert not np.isnan(found["step0/weights"]).any()
    # Momentum is the gradients: rounding grows through a network of random weights.
    for step, of_weights, of_momentum in ((0, 2e-5, 2e-3), (1, 4e-3, 5e-2)):
        for kind, rtol in (("weights", of_weights), ("momentum", of_momentum)):
            name = f"step{step}/{kind}"
            assert worst(found[name], expected[name]) < rtol, name
    norm = float(expected["grad0_global_norm"])
    assert float(found["step0/gradient_norm"]) == pytest.approx(norm, rel=1e-4)
