"""What tests of addresses share."""

import fsspec
import pytest

from effdet_keras._internal import remote_files


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """fsspec's storage in memory, empty before and after; no waiting between tries."""
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_files, "_PAUSE", 0.0)
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]
