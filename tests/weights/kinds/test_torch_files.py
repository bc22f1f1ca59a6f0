"""Files of `torch.save` are read without torch, and no code of them ever runs."""

import os
import pickle
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
from support.torch_files import pickled_call, write_before_zip, write_zip

from effdet_keras.weights.kinds.torch_files import read_torch_pickle

WRITERS = pytest.mark.parametrize("write", [write_zip, write_before_zip])


def content():
    return {
        "epoch": 3,
        "state_dict": {
            "kernel": np.arange(24, dtype="float32").reshape(2, 3, 4),
            "half": np.array([0.5, -2.0], "float16"),
            "counter": np.array(7, "int64"),
            "nothing": np.zeros((0, 3), "float32"),
        },
        "optimizer": {"state": {"step": 1}, "lr": 0.1},
    }


@pytest.fixture(autouse=True)
def without_torch(request, monkeypatch):
    if "torch" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


@WRITERS
def test_arrays_and_plain_values_are_read(tmp_path, write):
    found = read_torch_pickle(write(tmp_path / "x.pth", content()))
    assert found.pop("epoch") == 3
    assert found.pop("optimizer.lr") == 0.1
    assert found.pop("optimizer.state") == {"step": 1}
    expected = content()["state_dict"]
    assert_same(found, {f"state_dict.{name}": v for name, v in expected.items()})


def swapped(array):
    """The array as a machine with the other byte order has it in memory."""
    integers = array.view(f"u{array.dtype.itemsize}")
    return integers.byteswap().view(array.dtype)


def test_numbers_of_a_big_endian_machine_are_read_right(tmp_path):
    arrays = content()["state_dict"]
    arrays["brain"] = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    expected = {f"state_dict.{name}": value for name, value in arrays.items()}
    little = write_zip(tmp_path / "little.pth", {"state_dict": arrays}, "little")
    assert_same(read_torch_pickle(little), expected)
    arrays = {name: swapped(value) for name, value in arrays.items()}
    big = write_zip(tmp_path / "big.pth", {"state_dict": arrays}, "big")
    assert_same(read_torch_pickle(big), expected)


def test_a_byte_order_that_nobody_knows_is_refused(tmp_path):
    path = write_zip(tmp_path / "a.pth", content(), "middle")
    with pytest.raises(ValueError, match="a.pth' is damaged.*byte order is b'middle'"):
        read_torch_pickle(path)


@pytest.mark.extra_packages
@WRITERS
def test_the_writers_of_these_tests_write_as_torch_does(tmp_path, torch, write):
    found = torch.load(write(tmp_path / "x.pth", content()), weights_only=True)
    tensors = {name: t.numpy() for name, t in found["state_dict"].items()}
    assert_same(tensors, content()["state_dict"])


@pytest.mark.extra_packages
@pytest.mark.parametrize("is_zip", [True, False])
def test_all_kinds_of_tensors_are_those_of_torch(tmp_path, torch, is_zip):
    base = torch.arange(60.0).reshape(3, 4, 5)
    state = {
        "view": base[1:, ::2].permute(2, 0, 1),
        "same storage": base,
        "expanded": torch.ones(1).expand(7),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "empty": torch.zeros(0),
        "scalar": torch.tensor(3),
        **{
            str(dtype): torch.arange(5).to(dtype)
            for dtype in (
                torch.float64,
                torch.float16,
                torch.int8,
                torch.uint8,
                torch.bool,
                torch.int16,
                torch.int32,
            )
        },
    }
    torch.save(state, tmp_path / "x.pth", _use_new_zipfile_serialization=is_zip)
    expected = {name: t.detach().numpy() for name, t in state.items()}
    assert_same(read_torch_pickle(tmp_path / "x.pth"), expected)


@pytest.mark.extra_packages
def test_a_state_dict_of_a_module_is_read(tmp_path, torch):
    state = torch.nn.BatchNorm2d(3).state_dict()  # an OrderedDict with `_metadata`
    torch.save({"model": state, "device": torch.device("cpu")}, tmp_path / "x.pth")
    found = read_torch_pickle(tmp_path / "x.pth")
    assert_same(
        {n: v for n, v in found.items() if n != "device"},
        {f"model.{n}": t.numpy() for n, t in state.items()},
    )


@pytest.mark.extra_packages
def test_a_whole_module_needs_code_and_is_refused(tmp_path, torch):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pth")
    with pytest.raises(ValueError, match=r"needs Python code .*'torch\.nn\..*Linear'"):
        read_torch_pickle(tmp_path / "x.pth")


# Safety.


@pytest.mark.parametrize("is_zip", [True, False])
def test_functions_in_a_pickle_are_never_called(tmp_path, is_zip):
    path, marker = tmp_path / "x.pth", tmp_path / "marker"
    for name in (
        "os.system",
        "posix.system",
        "builtins.eval",
        "builtins.getattr",
        "torch.load",
        "torch.hub.load",
        "torch.storage._load_from_bytes",
        "numpy.load",
        "collections.namedtuple",
        "pickle.loads",
    ):
        text = pickled_call(name, f"touch {marker}")
        path.write_bytes(text)
        if is_zip:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("x/data.pkl", text)
        with pytest.raises(ValueError, match=rf"needs Python code .*'{name}'"):
            read_torch_pickle(path)
        assert not marker.exists()


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_protocol_of_pickle_runs_code(tmp_path, protocol):
    path, marker = tmp_path / "x.pth", tmp_path / "marker"
    path.write_bytes(pickle.dumps({"a": Malicious(marker)}, protocol))
    with pytest.raises(ValueError, match="needs Python code"):
        read_torch_pickle(path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists()  # else this test would show nothing


@pytest.mark.parametrize("code", [b"(ios\nsystem\n.", b"(cos\nsystem\no."])
def test_other_ways_to_make_objects_are_refused(tmp_path, code):
    (tmp_path / "x.pth").write_bytes(b"\x80\x02" + code)
    with pytest.raises(ValueError, match="needs Python code"):
        read_torch_pickle(tmp_path / "x.pth")


SIDES, STRIDES = b"J\x02\0\0\0J\x03\0\0\0", b"J\x03\0\0\0J\x01\0\0\0"


@pytest.mark.parametrize(
    "changes",
    [
        {SIDES: b"J\x02\0\0\0J\x04\0\0\0"},
        {STRIDES: b"J\xff\xff\xff\xffJ\x01\0\0\0"},
        {b"QJ\0\0\0\0": b"QJ\x05\0\0\0"},  # the offset
    ],
    ids=["sides", "strides", "offset"],
)
def test_no_numbers_outside_of_a_storage_are_read(tmp_path, changes):
    path = write_before_zip(tmp_path / "x.pth", {"a": np.ones((2, 3), "float32")})
    data = path.read_bytes()
    for old, new in changes.items():
        assert data.count(old) == 1
        data = data.replace(old, new)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        read_torch_pickle(path)


def test_other_zip_files_and_pickles_are_refused(tmp_path):
    path = tmp_path / "x.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no weights")
    with pytest.raises(ValueError, match="not a state dict"):
        read_torch_pickle(path)
    path.write_bytes(pickle.dumps({"a": 1}, protocol=2))
    with pytest.raises(ValueError, match="pickle that `torch.save` did not write"):
        read_torch_pickle(path)


def test_a_zip_file_without_a_pickle_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "empty.pth", "w"):
        pass
    with pytest.raises(ValueError, match="is damaged.*a zip file without a data.pkl"):
        read_torch_pickle(tmp_path / "empty.pth")
