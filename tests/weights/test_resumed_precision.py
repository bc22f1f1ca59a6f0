"""A training goes on with its precision and optimizer, or not at all."""

import json
import warnings
import zipfile

import keras
import numpy as np
import pytest
from support.tiny import batch, tiny_model

from effdet_keras._internal.compiled_keys import DTYPE_POLICY
from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.optimizers import steps_done
from effdet_keras.weights.archive import CONFIG_ENTRY

POLICIES = ("mixed_float16", "float32")


@pytest.fixture(autouse=True)
def same_policy_afterwards():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


class BegunError(Exception):
    """An epoch begins: enough is known."""


class FirstEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        raise BegunError(epoch)


def trained(folder, policy, **compiled):
    """A model that was trained for an epoch of two steps, with its archive."""
    keras.config.set_dtype_policy(policy)
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), **compiled)
    # Nothing is computed: what the steps would leave is put there.
    step = steps_done(model.optimizer) + 2
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    inner.iterations.assign(step)
    for variable in inner.variables:
        if "momentum" in variable.path:
            variable.assign(variable + 0.25)
    archive = CheckpointArchive(folder, monitor=None)
    archive.set_model(model)
    archive.on_epoch_end(0, {})
    return model


def momentum(model):
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    found = [np.array(v) for v in inner.variables if "momentum" in v.path]
    assert found
    return np.concatenate([value.ravel() for value in found])


def first_epoch(model, **options):
    run = {"batch_size": 2, "epochs": 9, "verbose": 0, **options}
    with pytest.raises(BegunError) as begun:
        model.fit(*batch(), callbacks=[FirstEpoch()], **run)
    return begun.value.args[0]


def without_entry(path, key):
    """Takes a key out of how a model was compiled, as an older version wrote it."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(entries[CONFIG_ENTRY])
    del config["compile_config"][key]
    entries[CONFIG_ENTRY] = json.dumps(config)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_training_goes_on_in_its_precision(tmp_path, policy, capsys):
    model = trained(tmp_path, policy)
    other = POLICIES[policy == POLICIES[0]]
    keras.config.set_dtype_policy(other)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        rest = EfficientDet.from_archive(tmp_path, resume=True)
    assert f"continues with the dtype policy '{policy}'" in capsys.readouterr().out
    assert keras.config.dtype_policy().name == other  # of new models
    assert rest.dtype_policy.name == policy
    assert rest.get_layer("fpn_cells").compute_dtype == policy.removeprefix("mixed_")
    assert type(rest.optimizer) is type(model.optimizer)
    np.testing.assert_array_equal(momentum(rest), momentum(model))
    assert momentum(rest).min() == 0.25
    assert first_epoch(rest) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_file_that_does_not_say_its_precision_is_refused_where_it_differs(
    tmp_path, policy
):
    trained(tmp_path, policy)
    without_entry(tmp_path / "last.keras", DTYPE_POLICY)
    keras.config.set_dtype_policy(POLICIES[policy == POLICIES[0]])
    with pytest.raises(RuntimeError, match=r"last\.keras' cannot be resumed.*policy"):
        EfficientDet.from_archive(tmp_path, resume=True)
    keras.config.set_dtype_policy(policy)
    rest = EfficientDet.from_archive(tmp_path, resume=True)
    assert steps_done(rest.optimizer) == 2


def test_weights_of_half_precision_serve_a_process_without_it(tmp_path):
    trained(tmp_path, "mixed_float16", loss_scale=128.0)
    keras.config.set_dtype_policy("float32")
    with pytest.warns(UserWarning, match="Skipping variable loading"):
        model = EfficientDet.from_archive(tmp_path)
    assert model.dtype_policy.name == "float32"


def test_an_optimizer_of_another_size_is_refused(tmp_path):
    trained(tmp_path, "float32", freeze="backbone", ema_decay=None)
    without_entry(tmp_path / "last.keras", "frozen")
    with pytest.raises(RuntimeError, match="training did 2 steps.*does not fit"):
        EfficientDet.from_archive(tmp_path, resume=True)


def test_a_file_without_its_averages_is_refused(tmp_path, monkeypatch):
    model = trained(tmp_path, "float32")
    assert model.averages is not None
    monkeypatch.setattr(
        "effdet_keras.train.averages.WeightAverages.load", lambda *_: False
    )
    with pytest.raises(RuntimeError, match="does not contain them"):
        EfficientDet.from_archive(tmp_path, resume=True)


@pytest.mark.parametrize("change", ["compile", "freeze"])
def test_a_training_that_begins_anew_says_so(tmp_path, change):
    trained(tmp_path, "float32")
    model = EfficientDet.from_archive(tmp_path, resume=True)
    if change == "compile":
        model.compile("sgd")
    else:
        model.freeze("backbone")
    with pytest.warns(UserWarning, match="starts again at epoch 1 instead of at epo"):
        assert first_epoch(model) == 0


def test_a_file_of_save_says_that_it_knows_no_epoch(tmp_path):
    model = trained(tmp_path, "float32")
    model.save(tmp_path / "saved.keras")
    with pytest.warns(UserWarning, match=r"saved\.keras' does not say in which epoch"):
        rest = EfficientDet.from_archive(tmp_path / "saved.keras", resume=True)
    np.testing.assert_array_equal(momentum(rest), momentum(model))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_a_training_that_keras_loads_in_another_precision_is_not_continued(
    tmp_path, policy
):
    """Keras' `load_model` gives the global policy to a network that had it before."""
    trained(tmp_path, policy).save(tmp_path / "saved.keras")
    other = POLICIES[policy == POLICIES[0]]
    keras.config.set_dtype_policy(other)
    model = keras.models.load_model(tmp_path / "saved.keras")
    assert len(model.detect(list(batch()[0]), verbose=0)) == 2
    refusal = rf"resume=True.*policy_of_training='{policy}', policy_of_model='{other}'"
    with pytest.raises(RuntimeError, match=refusal):
        model.fit(*batch(), epochs=2, initial_epoch=1, verbose=0)
    with pytest.raises(RuntimeError, match=refusal):
        model.train_on_batch(*batch())
    model.compile("sgd")
    assert first_epoch(model) == 0

    keras.config.set_dtype_policy(policy)
    same = keras.models.load_model(tmp_path / "saved.keras")
    assert first_epoch(same, initial_epoch=1) == 1
