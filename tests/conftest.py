"""Fixtures for golden data of the reference system, for addresses, tiny datasets."""

import importlib.util
import pathlib

import fsspec
import numpy as np
import pytest

from effdet_keras import cli
from effdet_keras.data import write_shapes
from effdet_keras.extras.remote import files as remote_files

GOLDEN = pathlib.Path(__file__).parent / "golden"
# Real checkpoint files, of 16 MB each, are too large for the repository.
CHECKPOINTS = pathlib.Path(__file__).parents[2] / "shared" / "reference" / "golden"


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
