"""`tf.train.Example`: what a record of a TFRecord file holds. Needs no TensorFlow."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import google.protobuf.message
import google_crc32c
import numpy as np
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from effdet_keras.errors import InvalidValueError
from effdet_keras.images import EncodedImage

# TensorFlow's example.proto and feature.proto, which packages other than
# TensorFlow do not bring: an Example is a map from a key to a list of values.
_PROTO = """
name: "effdet_keras/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature"
  oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.Int64List" oneof_index: 0 } }
message_type { name: "Features"
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
            type_name: ".tensorflow.Feature" } }
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".tensorflow.Features.FeatureEntry" } }
message_type { name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.Features" } }
"""


@functools.cache
def _example_class():
    # A pool of its own: TensorFlow registers messages of these names in the common one.
    pool = descriptor_pool.DescriptorPool()
    proto = text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(proto.SerializeToString())
    descriptor = pool.FindMessageTypeByName("tensorflow.Example")
    return message_factory.GetMessageClass(descriptor)


class ExampleReader:
    """The features of one `tf.train.Example`, by key. An absent one is empty."""

    def __init__(self, data: bytes):
        self._data = data
        try:
            example = _example_class().FromString(data)
        except google.protobuf.message.DecodeError as error:
            raise InvalidValueError(
                f"it is not a tf.train.Example ({error})"
            ) from error
        self._features = example.features.feature

    def __contains__(self, key: str) -> bool:
        return key in self._features

    def keys(self) -> list[str]:
        """Returns the sorted keys."""
        return sorted(self._features)

    def ints(self, key: str) -> np.ndarray:
        """Returns a feature as int64 `[n]`."""
        return np.array(self._features[key].int64_list.value, np.int64)

    def first_int(self, key: str) -> int | None:
        """Returns the first int of a feature, or None."""
        return next(iter(self._features[key].int64_list.value), None)

    def floats(self, key: str) -> np.ndarray:
        """Returns a feature as float64 `[n]`, of the file's float32."""
        return np.array(self._features[key].float_list.value, np.float64)

    def any_flag(self, keys: Sequence[str], count: int) -> np.ndarray:
        """Returns where at least one of some features is not 0, bool `[count]`."""
        result = np.zeros(count, bool)
        for key in keys:
            flags = self.ints(key)
            if len(flags) not in (0, count):
                raise InvalidValueError(f"{len(flags)} `{key}` for {count} boxes")
            result |= (flags != 0) if len(flags) else False
        return result

    def texts(self, key: str) -> list[str]:
        """Returns a feature as list of str."""
        values = self._features[key].bytes_list.value
        return [value.decode("utf-8", errors="replace") for value in values]

    def text(self, key: str) -> str:
        """Returns the first text of a feature, or an empty one."""
        return next(iter(self.texts(key)), "")

    def images(self, key: str) -> list[bytes]:
        """Returns the image files of a feature of several, each as its bytes."""
        return list(self._features[key].bytes_list.value)

    def image(
        self, key: str, path: str | os.PathLike[str], offset: int
    ) -> EncodedImage | None:
        """Returns where in the file a feature's bytes lie, or None if it is empty."""
        value = next(iter(self._features[key].bytes_list.value), b"")
        if not value:
            return None
        # By its head, as a rule: looking for the whole takes a hundred times longer.
        start = self._data.find(value[:64])
        if not self._data.startswith(value, start):
            start = self._data.find(value)
        return EncodedImage(os.fspath(path), offset + start, len(value))


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Encodes a `tf.train.Example`."""
    example = _example_class()()
    for key, value in features.items():
        feature = example.features.feature[key]
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "f":
                feature.float_list.value.extend(value.tolist())
            else:
                feature.int64_list.value.extend(value.astype(np.int64).tolist())
            continue
        values = [value] if isinstance(value, str | bytes) else value
        feature.bytes_list.value.extend(
            v.encode("utf-8") if isinstance(v, str) else v for v in values
        )
    return example.SerializeToString(deterministic=True)


# --- TFRecord files: the records in them, one by one, with their checksums.

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _CHECKSUM.size
_READ_AHEAD = 1 << 20  # bytes
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x9c": "zlib"}


def read_records(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Reads the records of a file one by one, and checks their checksums."""
    with open(path, "rb", buffering=_READ_AHEAD) as file:
        end = os.fstat(file.fileno()).st_size
        offset = count = 0
        while offset < end:
            head = file.read(_HEAD)
            if count == 0 and head[:2] in _COMPRESSED and not _is_head(head):
                raise InvalidValueError(
                    f"it is compressed ({_COMPRESSED[head[:2]]}): images are read from "
                    "where they lie in the file, so write it without compression"
                )
            offset += _HEAD
            data, fault = _read_data(file, head, room=end - offset)
            if fault:
                raise InvalidValueError(
                    f"it is cut or damaged after {count} records ({fault})"
                )
            yield offset, data
            offset, count = offset + len(data) + _CHECKSUM.size, count + 1


def _is_head(head):
    """Whether these bytes are a length and its checksum."""
    if len(head) < _HEAD:
        return False
    (checksum,) = _CHECKSUM.unpack_from(head, _LENGTH.size)
    return checksum == _masked_checksum(head[: _LENGTH.size])


def _read_data(file, head, room):
    """`(data, None)` of the record with this head, or `(None, what is wrong)`."""
    if len(head) < _HEAD:
        return None, "the file ends inside a record"
    if not _is_head(head):
        return None, "the checksum of a record's length is wrong"
    (length,) = _LENGTH.unpack_from(head)
    if length + _CHECKSUM.size > room:
        return None, "the file ends inside a record"
    data, checksum = file.read(length), file.read(_CHECKSUM.size)
    if checksum != _CHECKSUM.pack(_masked_checksum(data)):
        return None, "the checksum of a record's data is wrong"
    return data, None


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> None:
    """Writes a TFRecord file."""
    with open(path, "wb") as file:
        for data in records:
            length = _LENGTH.pack(len(data))
            file.write(length + _CHECKSUM.pack(_masked_checksum(length)))
            file.write(data)
            file.write(_CHECKSUM.pack(_masked_checksum(data)))


def _masked_checksum(data):
    """CRC-32C, turned and shifted as the format asks for: int of 32 bits."""
    checksum = google_crc32c.value(data)
    turned = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (turned + 0xA282EAD8) & 0xFFFFFFFF
