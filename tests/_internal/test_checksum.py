"""A checksum tells of every byte that has changed, whatever the format of the file."""

import numpy as np
import pytest

from effdet_keras._internal.checksum import (
    WITHOUT_CHECKSUM,
    verify_checksum,
    write_checksum,
)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    path, other = tmp_path / "a.bin", tmp_path / "b.bin"
    path.write_bytes(rng.bytes(200) + WITHOUT_CHECKSUM.encode() + rng.bytes(200))
    other.write_bytes(rng.bytes(300))
    write_checksum(path, [other])
    return path, other


def test_any_byte_of_any_of_the_files_counts(files):
    path, other = files
    assert verify_checksum(path, [other])
    whole = {file: file.read_bytes() for file in files}
    for file, content in whole.items():
        for place in range(0, len(content), 7):
            damaged = bytearray(content)
            damaged[place] ^= 4
            file.write_bytes(damaged)
            is_of_mark = file is path and 200 <= place < 220
            if is_of_mark:  # no checksum is left, and nothing else is damaged
                assert not verify_checksum(path, [other])
                continue
            with pytest.raises(ValueError, match="a.bin.*is damaged"):
                verify_checksum(path, [other])
        file.write_bytes(content)
    for file, content in whole.items():
        for wrong in (content[:-1], content + b"x"):
            file.write_bytes(wrong)
            with pytest.raises(ValueError, match="is damaged"):
                verify_checksum(path, [other])
        file.write_bytes(content)


def test_a_file_of_before_there_were_seals_passes(tmp_path):
    (tmp_path / "old.bin").write_bytes(b"no checksum in it")
    assert not verify_checksum(tmp_path / "old.bin")
