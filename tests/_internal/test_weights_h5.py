"""HDF5 files of strangers: no other file of this machine is read as weights."""

import io
import re
import zipfile

import h5py
import numpy as np
import pytest
from support.arrays import assert_equal
from support.tiny import LITE0, tiny_model, values

import effdet_keras as ek
from effdet_keras._internal.weights_h5 import check_hdf5_file
from effdet_keras.cli import main
from effdet_keras.weights.archive import WEIGHTS_ENTRY, write_archive
from effdet_keras.weights.kinds.keras_h5 import read_keras2_h5

KERNEL = "layers/efficient_net/stem/conv/vars/0"


@pytest.fixture(scope="module")
def model():
    return tiny_model(backbone=LITE0)


@pytest.fixture
def secret(tmp_path):
    """A file of this machine that no reader of weights has any business with."""
    path = tmp_path / "secret"
    path.write_bytes(b"a secret " * 1000)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["kernel"] = np.ones((3, 3, 3, 32), "float32")
    return path


def store_outside(group, name, shape, secret):
    external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
    group.create_dataset(name, shape, "float32", external=external)


def make_virtual(group, name, shape, secret):
    layout = h5py.VirtualLayout(shape, "float32")
    layout[...] = h5py.VirtualSource(f"{secret}.h5", "kernel", shape)
    group.create_virtual_dataset(name, layout)


def link_outside(group, name, shape, secret):
    group[name] = h5py.ExternalLink(f"{secret}.h5", "kernel")


def link_inside(group, name, shape, secret):
    group["elsewhere"] = np.ones(shape, "float32")
    group[name] = h5py.SoftLink("elsewhere")


ATTACKS = [store_outside, make_virtual, link_outside, link_inside]


def attack(file, attack, secret, name=KERNEL):
    """Puts something that is not in the file in the place of one of its arrays."""
    with h5py.File(file, "r+") as opened:
        parent, _, leaf = name.rpartition("/")
        group, shape = opened[parent or "/"], opened[name].shape
        del group[leaf]
        attack(group, leaf, shape, secret)


@pytest.fixture(params=ATTACKS)
def weights(request, model, secret, tmp_path):
    """A `.weights.h5` whose first kernel is elsewhere."""
    from keras.src.saving import saving_lib

    path = tmp_path / "cats.weights.h5"
    saving_lib.save_weights_only(model, path)  # as Keras writes it
    attack(path, request.param, secret)
    return path


@pytest.fixture(params=ATTACKS)
def archive(request, model, secret, tmp_path):
    """A `.keras` file whose first kernel is elsewhere."""
    good, path = tmp_path / "good.keras", tmp_path / "cats.keras"
    write_archive(model, good)
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            content = io.BytesIO(old.read(entry))
            if entry.filename == WEIGHTS_ENTRY:
                attack(content, request.param, secret)
            new.writestr(entry.filename, content.getvalue())
    return path


REFUSED = r"cats\..* is not read: its entry '/.*' is .*(file|link|virtual)"


def test_no_reader_of_our_weights_reads_another_file(model, weights, capsys):
    before = values(model.weights)
    for load in (model.load_pretrained, model.load_weights):
        with pytest.raises(ValueError, match=REFUSED):
            load(weights)
    assert_equal(model.weights, before)
    assert main(["inspect-weights", str(weights)]) == 1
    assert "is not read" in capsys.readouterr().err


def test_no_reader_of_our_archives_reads_another_file(model, archive):
    readers = (
        model.load_pretrained,
        ek.EfficientDet.from_archive,
        ek.Predictor.load,
        lambda path: ek.EfficientDet.from_archive(path, resume=True),
    )
    for read in readers:
        with pytest.raises(ValueError, match=REFUSED):
            read(archive)


@pytest.mark.parametrize("kind", ATTACKS)
def test_no_reader_of_keras_2_files_reads_another_file(secret, tmp_path, kind):
    path, name = tmp_path / "cats.h5", "stem_conv/stem_conv/kernel:0"
    with h5py.File(path, "w") as file:
        file[name] = np.ones((3, 3, 3, 32), "float32")
        file["block1a_dwconv/block1a_dwconv/depthwise_kernel:0"] = np.ones(3)
    assert read_keras2_h5(path).arrays["stem_conv/kernel"].shape == (3, 3, 3, 32)
    attack(path, kind, secret, name)
    with pytest.raises(ValueError, match=REFUSED):
        read_keras2_h5(path)


def test_groups_that_hold_each_other_end_the_search(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/b/kernel"] = np.ones(3)
        file["a/b/c"] = file["a"]
    check_hdf5_file(tmp_path / "a.h5", "a.h5")


def test_an_array_that_is_far_larger_than_its_file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("kernel", (2**40,), "float32", chunks=(2**20,))
    with pytest.raises(ValueError, match="would unpack to 4,398,046,511,104"):
        check_hdf5_file(tmp_path / "a.h5", "a.h5")


def test_a_file_that_is_cut_or_no_weights_file_is_named(tmp_path):
    """h5py and zipfile name no file."""
    model = tiny_model()
    model.save_weights(tmp_path / "whole.weights.h5")
    model.save(tmp_path / "whole.keras")
    before = values(model.variables)
    for whole in ("whole.weights.h5", "whole.keras"):
        content = (tmp_path / whole).read_bytes()
        path = tmp_path / whole.replace("whole", "bad")
        for bad in (content[: len(content) // 2], b"", b"words"):
            path.write_bytes(bad)
            refusal = rf"{re.escape(str(path))}' is damaged, or "
            with pytest.raises(ValueError, match=refusal):
                model.load_weights(path)
    (tmp_path / "folder.weights.h5").mkdir()
    with pytest.raises(IsADirectoryError, match=r"name: .*folder\.weights\.h5"):
        model.load_weights(tmp_path / "folder.weights.h5")
    assert_equal(model.variables, before)
