"""Small archives that would fill the memory or the disk are refused before they do."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from support.weights import pack

import effdet_keras as ek
from effdet_keras._internal import unpacking
from effdet_keras._internal.unpacking import is_tar, most_unpacked, unpack_tar
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.kinds.torch_files import read_torch_file
from effdet_keras.weights.locate import located

MOST = 2**20
REFUSED = r"bytes, and would unpack to [\d,]+ or more. At most 1,048,576"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    """Tests need not write gigabytes."""
    monkeypatch.setattr(unpacking, "_ALWAYS_ALLOWED", MOST)


def write_tar(path, *members, mode="w:gz", **options):
    with tarfile.open(path, mode, **options) as archive:
        for name, size in members:
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    return path


def write_zip(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_what_a_file_may_unpack_to_grows_with_it():
    assert most_unpacked(100) == MOST
    assert most_unpacked(2**30) == unpacking._NEVER_ALLOWED
    assert most_unpacked(10**6) == 50 * 10**6


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_file_is_unpacked_whatever_compressed_it(tmp_path, mode):
    path = write_tar(tmp_path / "a.tar", ("a/b.h5", 5000), mode=mode)
    assert is_tar(path)
    unpack_tar(path, tmp_path / "out")
    assert (tmp_path / "out/a/b.h5").read_bytes() == bytes(5000)
    path.write_bytes(b"no tar file")
    assert not is_tar(path)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("sizes", [[2 * MOST], [MOST // 2] * 3])
def test_a_tar_file_that_unpacks_to_too_much(tmp_path, mode, sizes):
    members = [(f"{number}.h5", size) for number, size in enumerate(sizes)]
    path = write_tar(tmp_path / "a.tar.gz", *members, mode=mode)
    with (
        pytest.raises(ValueError, match=REFUSED),
        located(path, verbose=0),
    ):
        pytest.fail("it was unpacked")


def test_a_tar_file_whose_header_is_too_large(tmp_path):
    comment = {"comment": "x" * 2 * MOST}
    path = write_tar(tmp_path / "a.tar.gz", ("a.h5", 5), pax_headers=comment)
    with pytest.raises(ValueError, match=REFUSED), located(path, verbose=0):
        pytest.fail("it was unpacked")


def test_a_tar_file_of_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "_MOST_FILES", 10)
    path = write_tar(tmp_path / "a.tar", *((str(i), 0) for i in range(11)), mode="w")
    with pytest.raises(ValueError, match="more than 10 files"):
        unpack_tar(path, tmp_path / "out")


@pytest.mark.parametrize("entry", ["archive.json", "config.json", "model.weights.h5"])
def test_a_keras_file_that_unpacks_to_too_much(tmp_path, entry):
    entries = {"config.json": "{}", entry: bytes(2 * MOST)}
    path = write_zip(tmp_path / "a.keras", **entries)
    for read in (open_weights, read_archive_info, ek.EfficientDet.from_archive):
        with pytest.raises(ValueError, match=REFUSED):
            read(path)


def test_a_torch_file_that_unpacks_to_too_much(tmp_path):
    entries = {"a/data.pkl": b"\x80\x02}.", "a/data/0": bytes(2 * MOST)}
    path = write_zip(tmp_path / "a.pth", **entries)
    with pytest.raises(ValueError, match=REFUSED):
        read_torch_file(path)


@pytest.mark.extra_packages
def test_a_torch_tensor_that_shows_one_number_many_times(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(1).expand(MOST)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=REFUSED):
        read_torch_file(tmp_path / "a.pth")


def test_what_packs_well_and_is_small_is_read(tmp_path):
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a/zeros.npy", np.zeros(MOST // 16))
    unpack_tar(pack(tmp_path / "a.tar.gz", tmp_path / "a"), tmp_path / "out")
    assert (tmp_path / "out/a/zeros.npy").exists()
