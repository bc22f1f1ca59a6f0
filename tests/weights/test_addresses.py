"""Addresses such as gs:// are never taken for paths of this machine to write to."""

import os
import types

import pytest

from effdet_keras.extras.older_tools import write_tf1_checkpoint, write_torch_effdet
from effdet_keras.hub.export import export_hub_module
from effdet_keras.hub.module import open_hub_module
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.weights.archive import copy_archive, write_archive

CALLS = {
    "write_archive": lambda path: write_archive(None, f"{path}.keras"),
    "copy_archive": lambda path: copy_archive("best.keras", f"{path}.keras"),
    "write_torch_effdet": lambda path: write_torch_effdet(
        f"{path}.safetensors", {}, EfficientDetConfig()
    ),
}
OF_TENSORFLOW = {
    "write_tf1_checkpoint": lambda path: write_tf1_checkpoint(path, {"a": 1.0}),
    "export_hub_module": lambda path: export_hub_module(
        types.SimpleNamespace(averages=None, config=EfficientDetConfig()), path
    ),
    "open_hub_module": open_hub_module,
}


def assert_refused(call, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match="gs://bucket/d0.*gsutil|gsutil.*gs://bucket"):
        call("gs://bucket/d0")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_no_folder_is_made_for_an_address(call, tmp_path, monkeypatch):
    assert_refused(call, tmp_path, monkeypatch)


@pytest.mark.tensorflow
@pytest.mark.parametrize("call", OF_TENSORFLOW.values(), ids=list(OF_TENSORFLOW))
def test_nor_by_what_tensorflow_writes_and_reads(call, tmp_path, monkeypatch):
    assert_refused(call, tmp_path, monkeypatch)
