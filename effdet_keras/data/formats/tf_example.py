"""`tf.train.Example`: what a record of a TFRecord file holds. Needs no TensorFlow."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import google.protobuf.message
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
    """The features of one `tf.train.Example`, by key. An absent one is empty.

    Args:
        data: bytes of the record.

    Raises:
        ValueError: If they are not a `tf.train.Example`.

    Example:
        >>> example = ExampleReader(encode_example({"sizes": np.array([3, 4])}))
        >>> example.ints("sizes").tolist(), example.floats("sizes").tolist()
        ([3, 4], [])
    """

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
        """Returns where at least one of some features is not 0, bool `[count]`.

        Args:
            keys: keys of features of `count` ints each, or absent ones.
            count: int.

        Raises:
            ValueError: If one is there, but has another length.
        """
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
        """Returns where in the file a feature's bytes lie, or None if it is empty.

        Args:
            key: key of a feature with one `bytes`.
            path, offset: the file and the place of the record's data in it, as
                `read_records` gives it.

        Returns:
            `EncodedImage` or None.
        """
        value = next(iter(self._features[key].bytes_list.value), b"")
        if not value:
            return None
        # By its head, as a rule: looking for the whole takes a hundred times longer.
        start = self._data.find(value[:64])
        if not self._data.startswith(value, start):
            start = self._data.find(value)
        return EncodedImage(os.fspath(path), offset + start, len(value))


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Encodes a `tf.train.Example`.

    Args:
        features: dict from key to `bytes`, `str`, list of str, or NumPy array
            `[n]` of floats, ints or bools. The dtype of an empty array tells which
            kind of list to write.

    Returns:
        bytes, equal for equal features.

    Example: see `ExampleReader`.
    """
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
