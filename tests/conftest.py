"""Fixtures for golden data of the reference system, addresses, folders, datasets."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import fsspec
import keras
import numpy as np
import pytest

from effdet_keras import cli
from effdet_keras.data import write_shapes
from effdet_keras.extras.remote import files as remote_files

GOLDEN = pathlib.Path(__file__).parent / "golden"
# Real checkpoint files, of 16 MB each, are too large for the repository.
CHECKPOINTS = pathlib.Path(__file__).parents[2] / "shared" / "reference" / "golden"


@pytest.fixture(autouse=True)
def settings_are_left_as_found():
    """A test that changes a setting of the process changes what later tests do."""
    before = _settings_of_the_process()
    yield
    after = _settings_of_the_process()
    # A setting of a package that the test imported is not one that it changed.
    changed = {n: after[n] for n in before if after[n] != before[n]}
    assert not changed, f"left by the test: {changed}, was {before}"


def _settings_of_the_process():
    settings = {
        "dtype policy": keras.config.dtype_policy().name,
        "floatx": keras.config.floatx(),
        "image data format": keras.config.image_data_format(),
    }
    if tf := sys.modules.get("tensorflow"):
        settings["graph options"] = tf.config.optimizer.get_experimental_options()
        settings["jit"] = tf.config.optimizer.get_jit()
        settings["run_functions_eagerly"] = tf.config.functions_run_eagerly()
    return settings


@pytest.fixture(scope="session")
def golden_path():
    """Finds a golden file. They are part of the repository, so none may be missing."""

    def find(name):
        path = GOLDEN / name
        if not path.exists():
            pytest.fail(
                f"the golden file tests/golden/{name} is missing", pytrace=False
            )
        return path

    return find


@pytest.fixture(scope="session")
def golden(golden_path):
    """Loads a golden `.npz` by name."""
    return lambda name: np.load(golden_path(name), allow_pickle=False)


@pytest.fixture(scope="session")
def checkpoint_path():
    """Finds a real checkpoint of the reference, which is not in the repository."""

    def find(name):
        path = CHECKPOINTS / name
        if not path.exists():
            pytest.skip(
                f"the reference's own {name} (16 MB or more) is not part of the "
                f"repository; it is looked for in {CHECKPOINTS}"
            )
        return path

    return find


@pytest.fixture(scope="session")
def refweights(golden_path):
    """The module of golden weights: `value(tf1_name, shape, model)`, `image`."""
    return _module(golden_path("refweights.py"))


@pytest.fixture(scope="session")
def torch_weights(golden_path):
    """The same for PyTorch effdet: `value(name, shape)`, `image`."""
    return _module(golden_path("torch_weights.py"))


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """fsspec's storage in memory, empty before and after; no waiting between tries."""
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_files, "_PAUSES", (0.0, 0.0, 0.0))
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture
def read_only(tmp_path):
    """A folder that may not be written to, also by root."""
    folder = tmp_path / "ro"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", os.fspath(folder)]
    if shutil.which("mount") is None or subprocess.run(mount).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", os.fspath(folder)], check=True)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with four images to train on and two to validate on."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=4, num_valid=2, image_size=64)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with four images to evaluate on, new for each file of tests."""
    folder = tmp_path_factory.mktemp("data")
    write_shapes(folder, num_train=2, num_valid=4, image_size=64)
    return folder


@pytest.fixture
def command(capsys):
    """Runs `effdet-keras`: what it printed, or of one that fails its error."""

    def run(*arguments, status=0):
        capsys.readouterr()
        assert cli.main([str(word) for word in arguments]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    return run
