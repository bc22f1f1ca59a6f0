"""Checksums inside files, which show whether a byte has changed since writing.

The checksum is a text of fixed length somewhere in the file: the SHA-256 of the whole
file with zeros in place of the checksum. So every format that can store a text can hold
one: as an ONNX property, an HDF5 attribute, or an XML element. Readers of such formats
check little, and would compute with damaged numbers.
"""

import hashlib
import pathlib
import re

from effdet_keras.errors import InvalidValueError

_MARK = "effdet_keras.sha256:"
CHECKSUM_NAME = "effdet_keras_seal"  # name of the property, attribute or element
WITHOUT_CHECKSUM = _MARK + "0" * 64  # the value until the file is complete
_CHECKSUM = re.compile(re.escape(_MARK.encode()) + b"(.{64})", re.DOTALL)


def write_checksum(path, others=()):
    """Writes the digest into a file that contains `WITHOUT_CHECKSUM`."""
    path = pathlib.Path(path)
    content = path.read_bytes()
    start = content.index(WITHOUT_CHECKSUM.encode()) + len(_MARK)
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(_digest(content, start, others).encode())


def verify_checksum(path, others=()):
    """Returns whether a file has a checksum; raises if any file is damaged.

    `others` are paths of further files, which the checksum covers as well.
    """
    path = pathlib.Path(path)
    content = path.read_bytes()
    match = _CHECKSUM.search(content)
    if match is None:
        return False
    if _digest(content, match.start(1), others).encode() != match[1]:
        names = " or ".join(f"'{name}'" for name in (path, *others))
        raise InvalidValueError(
            f"{names} is damaged (checksum mismatch): a byte has changed since it was "
            "written. Copy it again, or save or export the model again."
        )
    return True


def _digest(content, start, others):
    content = memoryview(content)
    digest = hashlib.sha256(content[:start])
    digest.update(b"0" * 64)
    digest.update(content[start + 64 :])
    for path in others:
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()
