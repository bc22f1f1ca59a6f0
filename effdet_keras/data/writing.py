"""What the writers share: pictures out of records, folders that are whole or absent."""

import io
import os
import pathlib
import shutil

import numpy as np
from PIL import Image

from effdet_keras.data.example import load_example
from effdet_keras.images import EncodedImage

_ORIENTATION = 0x0112  # the EXIF tag; other programs differ in whether they obey it


def encode_picture(record):
    """Returns a record's picture as the bytes of a file, and its suffix.

    The file's own bytes where every program sees the same picture in them;
    otherwise, for arrays and pictures with an EXIF turn, the pixels that the
    boxes are for, as a PNG.

    Args:
        record: `Record`.

    Returns:
        `(bytes, suffix)`, such as `(b"...", ".jpg")`.

    Raises:
        FileNotFoundError: If the picture is gone.
        ValueError: If it cannot be decoded or has not the annotated size.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> dataset = from_arrays([np.zeros((8, 8, 3), "uint8")], [[]], [[]], ["cat"])
        >>> data, suffix = encode_picture(dataset.records[0])
        >>> data[1:4], suffix
        (b'PNG', '.png')
    """
    if not isinstance(record.image, np.ndarray):
        data = _stored_bytes(record.image)
        suffix = _plain_suffix(data)
        if suffix is not None:
            return data, suffix
    buffer = io.BytesIO()
    Image.fromarray(load_example(record)["image"]).save(buffer, "PNG")
    return buffer.getvalue(), ".png"


def _stored_bytes(image):
    if isinstance(image, EncodedImage):
        return image.read()
    return pathlib.Path(image).read_bytes()


def _plain_suffix(data):
    """The suffix of a JPEG or PNG that needs no turning, else None."""
    try:
        with Image.open(io.BytesIO(data)) as stored:
            if stored.getexif().get(_ORIENTATION, 1) != 1:
                return None
            return {"JPEG": ".jpg", "PNG": ".png"}.get(stored.format)
    except Exception:  # not ours to explain: `load_example` decodes it, and does
        return None


def picture_stems(records):
    """Returns a file name without suffix for each record, each different.

    Folders in a record's `file_name` are left out; one without a name is
    called after its image id.

    Args:
        records: sequence of `Record`.

    Returns:
        List of str.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((8, 8, 3), "uint8")
        >>> dataset = from_arrays([image] * 2, [[]] * 2, [[]] * 2, ["cat"])
        >>> picture_stems(dataset.records)
        ['000000000001', '000000000002']
    """
    stems, taken = [], set()
    for record in records:
        name = record.file_name.replace("\\", "/")
        stem = pathlib.PurePosixPath(name).stem or f"{record.image_id:012d}"
        unique, number = stem, 2
        while unique.lower() in taken:  # some file systems do not tell case
            unique, number = f"{stem}_{number}", number + 1
        taken.add(unique.lower())
        stems.append(unique)
    return stems


def refuse_existing(*paths):
    """Raises FileExistsError if one of `paths` is there: writers overwrite nothing."""
    there = [os.fspath(path) for path in paths if os.path.lexists(path)]
    if there:
        raise FileExistsError(
            "A data set is never written over what is there. "
            f"Received: {there[:3]}. Name another folder or remove it"
        )


class WholeFolder:
    """A folder that appears under its name only once it is complete.

    As a context manager it gives the path of a folder beside the target, to
    write into; leaving it without an error gives that folder the target's
    name, leaving it with one removes it.

    Args:
        target: path of the folder; must not be there.

    Raises:
        FileExistsError: If `target` is there.

    Example:
        >>> import tempfile
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "set"
        >>> with WholeFolder(target) as folder:
        ...     _ = (folder / "a.txt").write_text("a")
        ...     target.exists()
        False
        >>> (target / "a.txt").read_text()
        'a'
    """

    def __init__(self, target):
        self._target = pathlib.Path(target)
        self._partial = self._target.with_name(self._target.name + ".partial")

    def __enter__(self):
        refuse_existing(self._target)
        shutil.rmtree(self._partial, ignore_errors=True)  # of a run that was killed
        self._partial.mkdir(parents=True)
        return self._partial

    def __exit__(self, error_type, error, traceback):
        if error_type is None:
            self._partial.rename(self._target)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)
