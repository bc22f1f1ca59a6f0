import zipfile

import pytest

from effdet_keras.export.litert import LiteRTRuntime

NETWORK = bytes(range(256)) * 8  # no network, but that is found out behind the checks


def test_a_file_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.tflite"
    path.write_bytes(NETWORK)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labelmap.txt", "cat\n")
    with pytest.raises(ValueError, match="no .tflite file that .*export.* wrote"):
        LiteRTRuntime(path)
