"""TFRecord files of `tf.train.Example`: reading, finding the images, writing."""

import os

import google.protobuf.message
import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import EncodedImage

# A record in the file: length (8 bytes), its checksum (4), the data, its checksum (4).
_HEAD, _FRAME = 12, 16
_READ_AHEAD = 1 << 20  # bytes
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x9c": "zlib"}


def read_records(path):
    """Reads the records of a file one by one, with their checksums checked.

    Args:
        path: str or path of the file, not compressed.

    Yields:
        `(offset, data)`: the byte of the file that the record's data begin
        at, and the data.

    Raises:
        OSError: If the file is missing or cannot be opened.
        ValueError: If the file is cut or damaged: the records before that
            place have been given, those after it cannot be found.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tfrecord")
        >>> write_records(path, [b"first", b"second"])
        >>> list(read_records(path))
        [(12, b'first'), (33, b'second')]
    """
    path = os.fspath(path)
    with open(path, "rb") as file:  # OSErrors, which TensorFlow's errors are not
        start = file.read(2)
    offset, count = _HEAD, 0
    dataset = tf.data.TFRecordDataset(path, buffer_size=_READ_AHEAD)
    try:
        for data in dataset.as_numpy_iterator():
            yield offset, data
            offset, count = offset + len(data) + _FRAME, count + 1
    except tf.errors.OpError as error:
        if count == 0 and start in _COMPRESSED:
            raise InvalidValueError(
                f"it is compressed ({_COMPRESSED[start]}): images are read from "
                "where they lie in the file, so write it without compression"
            ) from error
        raise InvalidValueError(
            f"it is cut or damaged after {count} records ({_first_line(error)})"
        ) from error


def write_records(path, records):
    """Writes a TFRecord file.

    Args:
        path: str or path; a file that is there is overwritten.
        records: iterable of bytes.

    Raises:
        OSError: If it cannot be written, for instance on a full disk.

    Example: see `read_records`.
    """
    try:
        with tf.io.TFRecordWriter(os.fspath(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise OSError(
            f"Cannot write {os.fspath(path)!r}: {_first_line(error)}"
        ) from error


def _first_line(error):
    return (str(error.message).splitlines() or ["no reason given"])[0]


class ExampleReader:
    """The features of one `tf.train.Example`, by key; an absent one is empty.

    Args:
        data: bytes of the record.

    Raises:
        ValueError: If they are not a `tf.train.Example`.

    Example:
        >>> example = ExampleReader(encode_example({"sizes": np.array([3, 4])}))
        >>> example.ints("sizes").tolist(), example.floats("sizes").tolist()
        ([3, 4], [])
    """

    def __init__(self, data):
        self._data = data
        try:
            example = tf.train.Example.FromString(data)
        except google.protobuf.message.DecodeError as error:
            raise InvalidValueError(
                f"it is not a tf.train.Example ({error})"
            ) from error
        self._features = example.features.feature

    def __contains__(self, key):
        return key in self._features

    def keys(self):
        """Returns the sorted keys."""
        return sorted(self._features)

    def ints(self, key):
        """Returns a feature as int64 `[n]`."""
        return np.array(self._features[key].int64_list.value, np.int64)

    def first_int(self, key):
        """Returns the first int of a feature, or None."""
        return next(iter(self._features[key].int64_list.value), None)

    def floats(self, key):
        """Returns a feature as float64 `[n]`, of the file's float32."""
        return np.array(self._features[key].float_list.value, np.float64)

    def any_flag(self, keys, count):
        """Returns whether one of the features is not 0, bool `[count]`.

        Args:
            keys: keys of ints `[count]` each, or absent.
            count: int.

        Raises:
            ValueError: If one is there, but of another length.
        """
        result = np.zeros(count, bool)
        for key in keys:
            flags = self.ints(key)
            if len(flags) not in (0, count):
                raise InvalidValueError(f"{len(flags)} `{key}` for {count} boxes")
            result |= (flags != 0) if len(flags) else False
        return result

    def texts(self, key):
        """Returns a feature as list of str."""
        values = self._features[key].bytes_list.value
        return [value.decode("utf-8", errors="replace") for value in values]

    def text(self, key):
        """Returns the first text of a feature, or an empty one."""
        return next(iter(self.texts(key)), "")

    def image(self, key, path, offset):
        """Returns where in the file a feature lies, or None where it is empty.

        Args:
            key: key of the feature, one `bytes`.
            path, offset: where the record's data lie, as from `read_records`.

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


def encode_example(features):
    """Encodes a `tf.train.Example`.

    Args:
        features: dict of key to `bytes`, `str`, list of str, or NumPy array
            `[n]` of floats, ints or bools, which also says what an empty
            list is of.

    Returns:
        bytes, equal for equal features.

    Example: see `ExampleReader`.
    """
    example = tf.train.Example()
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
