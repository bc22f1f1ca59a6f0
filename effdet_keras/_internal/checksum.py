"""Files that tell whether a byte of them has changed since they were written.

The checksum is a text of fixed length somewhere inside the file, with the SHA-256 of
the whole file as it was with zeros in its place. So any format that can hold a text can
hold it: an ONNX property, an attribute of HDF5, an element of XML. Readers of such
formats check little, and compute with damaged numbers.
"""

import hashlib
import pathlib
import re

from effdet_keras.errors import InvalidValueError

_MARK = "effdet_keras.sha256:"
CHECKSUM_NAME = "effdet_keras_seal"  # of the property, attribute or element
WITHOUT_CHECKSUM = _MARK + "0" * 64  # its value until the file is complete
_CHECKSUM = re.compile(re.escape(_MARK.encode()) + b"(.{64})", re.DOTALL)


def write_checksum(path, others=()):
    """Puts the digest into a file that has `WITHOUT_CHECKSUM` in it."""
    path = pathlib.Path(path)
    content = path.read_bytes()
    start = content.index(WITHOUT_CHECKSUM.encode()) + len(_MARK)
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(_digest(content, start, others).encode())


def verify_checksum(path, others=()):
    """Whether a file has a checksum; raises if it or one of the others is damaged."""
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
