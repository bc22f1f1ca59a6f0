"""TFRecord files: the records in them, one by one, with their checksums.

A record in the file is the length of its data (8 bytes), the checksum of these
8 bytes (4), the data, and the checksum of the data (4); all little-endian, as in
https://www.tensorflow.org/tutorials/load_data/tfrecord. TensorFlow is not needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

import google_crc32c

from effdet_keras.errors import InvalidValueError

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _CHECKSUM.size
_READ_AHEAD = 1 << 20  # bytes
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x9c": "zlib"}


def read_records(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Reads the records of a file one by one, and checks their checksums.

    Args:
        path: path of the file, which must not be compressed.

    Yields:
        `(offset, data)`: where in the file the record's data begin, in bytes, and
        the data.

    Raises:
        OSError: If the file is missing or cannot be read.
        ValueError: If the file is cut or damaged. The records before that place
            have been yielded by then; those after it cannot be found.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tfrecord")
        >>> write_records(path, [b"first", b"second"])
        >>> list(read_records(path))
        [(12, b'first'), (33, b'second')]
    """
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
    """Writes a TFRecord file.

    Args:
        path: path of the file; one that is there is overwritten.
        records: the data of each record.

    Raises:
        OSError: If it cannot be written, for instance on a full disk.

    Example: see `read_records`.
    """
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
