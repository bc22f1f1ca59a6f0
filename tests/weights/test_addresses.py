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
    "write_tf1_checkpoint": lambda path: write_tf1_checkpoint(path, {"a": 1.0}),
    "export_hub_module": lambda path: export_hub_module(
        types.SimpleNamespace(averages=None, config=EfficientDetConfig()), path
    ),
    "open_hub_module": open_hub_module,
}
OF_TENSORFLOW = ("write_tf1_checkpoint", "export_hub_module", "open_hub_module")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.tensorflow] if n in OF_TENSORFLOW else [])
        for n in CALLS
    ],
)
def test_no_folder_is_made_for_an_address(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="gs://bucket/d0.*gsutil|gsutil.*gs://bucket"):
        CALLS[name]("gs://bucket/d0")
    assert os.listdir(tmp_path) == []
