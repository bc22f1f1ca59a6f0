"""Files of `torch.save`, in both of its formats, written without torch."""

import io
import pickle
import struct
import zipfile

import numpy as np

from effdet_keras.extras.older_tools import to_layout_of
from effdet_keras.weights.network_arrays import network_arrays

_STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}
_SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}


def write_zip(path, content, order="little"):
    """As torch writes since 1.6; `order` is what it says of the order of bytes."""
    arrays, text = _pickled(content, is_zip=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", text)
        archive.writestr("archive/byteorder", order)
        archive.writestr("archive/version", "3\n")
        for key, array in arrays.items():
            archive.writestr(f"archive/data/{key}", array.tobytes())
    return path


def write_before_zip(path, content):
    """As torch wrote before."""
    arrays, text = _pickled(content, is_zip=False)
    stream = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, _SYSTEM):
        stream.write(pickle.dumps(value, protocol=2))
    stream.write(text + pickle.dumps(list(arrays), protocol=2))
    for array in arrays.values():
        stream.write(struct.pack("<q", array.size) + array.tobytes())
    path.write_bytes(stream.getvalue())
    return path


def backbone_state(scheme, config, value=1.0):
    """The arrays of a config's backbone as files of a scheme of PyTorch have them."""
    return {
        scheme.name_of(array): to_layout_of(
            np.full(array.shape, value, "float32"), array, scheme
        )
        for array in network_arrays(config)
        if array.is_backbone
    }


def pickled_call(name, *arguments):
    """A pickle that calls `module.name` with strings."""
    module, _, function = name.rpartition(".")
    texts = b"".join(map(_text, arguments))
    return b"\x80\x02" + _name(module, function) + b"(" + texts + b"tR."


def _pickled(content, is_zip):
    arrays = {}
    return arrays, b"\x80\x02" + _value(content, arrays, is_zip) + b"."


def _value(value, arrays, is_zip):
    if isinstance(value, dict):
        items = (
            _text(name) + _value(entry, arrays, is_zip) + b"s"
            for name, entry in value.items()
        )
        return b"}" + b"".join(items)
    if isinstance(value, np.ndarray):
        return _tensor(value, arrays, is_zip)
    return pickle.dumps(value, protocol=2)[2:-1]


def _tensor(array, arrays, is_zip):
    key = str(len(arrays))
    arrays[key] = np.array(array, order="C")
    storage = b"(" + _text("storage") + _name("torch", _STORAGES[array.dtype.name])
    storage += _text(key) + _text("cpu") + _number(array.size)
    storage += (b"" if is_zip else b"N") + b"tQ"
    strides = [stride // array.itemsize for stride in arrays[key].strides]
    sides = b"".join(
        b"(" + b"".join(map(_number, numbers)) + b"t"
        for numbers in (array.shape, strides)
    )
    hooks = _name("collections", "OrderedDict") + b")R"
    rebuild = _name("torch._utils", "_rebuild_tensor_v2")
    return rebuild + b"(" + storage + _number(0) + sides + b"\x89" + hooks + b"tR"


def _text(text):
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _number(number):
    return b"J" + struct.pack("<i", number)


def _name(module, name):
    return f"c{module}\n{name}\n".encode()
