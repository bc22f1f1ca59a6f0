import hashlib
import sys
import zipfile

import pytest

from effdet_keras.export.litert import CHECKSUM_NAME, LiteRTRuntime
from effdet_keras.export.runtime import DESCRIPTION_NAME, Description
from effdet_keras.model.config import EfficientDetConfig

NETWORK = bytes(range(256)) * 8  # no network, but that is found out behind the checks


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "pets.tflite"
    path.write_bytes(NETWORK)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(DESCRIPTION_NAME, Description(EfficientDetConfig()).to_json())
        archive.writestr(CHECKSUM_NAME, hashlib.sha256(NETWORK).hexdigest())
    return path


def test_a_file_that_is_cut_short_is_refused(path):
    content = path.read_bytes()
    for length in (0, 10, 1000, len(NETWORK), len(NETWORK) + 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="pets.tflite.*cut short.*Export"):
            LiteRTRuntime(path)


def test_a_wrong_bit_is_found_wherever_it_is(path):
    content = path.read_bytes()
    places = (0, 700, len(NETWORK) - 1, content.index(b'"format"'))
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="pets.tflite"):
            LiteRTRuntime(path)


def test_a_file_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.tflite"
    path.write_bytes(NETWORK)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labelmap.txt", "cat\n")
    with pytest.raises(ValueError, match="no .tflite file that .*export.* wrote"):
        LiteRTRuntime(path)


def test_a_missing_package_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ImportError, match=r'pip install "effdet-keras\[litert\]"'):
        LiteRTRuntime(path)
