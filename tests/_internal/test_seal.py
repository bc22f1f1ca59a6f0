"""A seal tells of every byte that has changed, whatever the format of the file."""

import numpy as np
import pytest

from effdet_keras._internal.seal import UNSEALED, check_seal, seal


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    path, other = tmp_path / "a.bin", tmp_path / "b.bin"
    path.write_bytes(rng.bytes(200) + UNSEALED.encode() + rng.bytes(200))
    other.write_bytes(rng.bytes(300))
    seal(path, [other])
    return path, other


def test_any_byte_of_any_of_the_files_counts(files):
    path, other = files
    assert check_seal(path, [other])
    whole = {file: file.read_bytes() for file in files}
    for file, content in whole.items():
        for place in range(0, len(content), 7):
            damaged = bytearray(content)
            damaged[place] ^= 4
            file.write_bytes(damaged)
            is_of_mark = file is path and 200 <= place < 220
            if is_of_mark:  # no seal is left, and nothing else is damaged
                assert not check_seal(path, [other])
                continue
            with pytest.raises(ValueError, match="a.bin.*is damaged"):
                check_seal(path, [other])
        file.write_bytes(content)
    for file, content in whole.items():
        for wrong in (content[:-1], content + b"x"):
            file.write_bytes(wrong)
            with pytest.raises(ValueError, match="is damaged"):
                check_seal(path, [other])
        file.write_bytes(content)


def test_a_file_of_before_there_were_seals_passes(tmp_path):
    (tmp_path / "old.bin").write_bytes(b"no seal in it")
    assert not check_seal(tmp_path / "old.bin")
