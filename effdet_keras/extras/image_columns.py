"""Reads attributes of images from a CSV file, such as camera, weather or place."""

from __future__ import annotations

import collections
import os

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.csv import read_lines
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.extras.analysis.curves import EMPTY

_KEYS = ("image_id", "file_name")
_MOST_VALUES = 100  # per column: slices of only a few images say nothing


def read_image_columns(
    path: str | os.PathLike[str], dataset: DetectionDataset
) -> dict[str, dict[int, str]]:
    """Reads a CSV file with a row for each image of a dataset.

    The first row has the names of the columns. One of them identifies the image:
    `image_id`, its id in the dataset, or `file_name`, the name of its file. The last
    part of the name is enough if it is unique. All other columns are returned. Cells
    are separated by commas, semicolons or tabs. The encoding is UTF-8.

    Args:
        path: path of the file.
        dataset: `DetectionDataset`, each image of which must have a row. Rows of other
            images, such as those of other splits, are ignored.

    Returns:
        Dict from the name of a column to a dict from image id to value, in the order of
        the file, as `analyze_results(columns=...)` takes it. An empty cell is
        "(empty)".

    Raises:
        ValueError: If the file is not such text, if it lacks a column, if a column has
            more than 100 values, or if an image of the dataset has no row.
        OSError: If the file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data import from_arrays
        >>> images = [np.zeros((32, 32, 3), "uint8")] * 2
        >>> dataset = from_arrays(images, [[], []], [[], []], ["cat"])
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "weather.csv"
        >>> _ = path.write_text("image_id,weather\\n1,sun\\n2,rain\\n")
        >>> read_image_columns(path, dataset)
        {'weather': {1: 'sun', 2: 'rain'}}
    """
    lines = read_lines(path, reader="read_image_columns", delimiters=",;\t")
    (_, header), *rows = lines or [(1, [])]
    keys = [name for name in _KEYS if name in header]
    rule = (
        "The file must have a column 'image_id' or 'file_name', and at least one "
        "other column"
    )
    require(keys and len(header) > 1, rule, path=str(path), header=header)
    place = header.index(keys[0])
    find = _finder(dataset, by_id=keys[0] == "image_id")
    columns = {name: {} for number, name in enumerate(header) if number != place}
    for number, cells in rows:
        is_whole = len(cells) == len(header)
        rule = f"Every row must have a cell for each of the {len(header)} columns"
        require(is_whole, rule, path=str(path), row=number, cells=cells)
        image_id = find(cells[place])
        for name, cell in zip(header, cells):
            if name in columns and image_id is not None:
                columns[name][image_id] = cell or EMPTY
    for name, of_images in columns.items():
        # Rows of images that are not in the dataset belong to other splits.
        missing = [r.name for r in dataset.records if r.image_id not in of_images]
        if missing:
            raise InvalidValueError(
                f"'{path}' must have a row for every image of the dataset. Missing "
                f"are {len(missing)} of {len(dataset)}: {', '.join(missing[:5])}"
            )
        values = sorted(set(of_images.values()))
        rule = (
            f"A column may have at most {_MOST_VALUES} different values: divide "
            "numbers into ranges"
        )
        is_short = len(values) <= _MOST_VALUES
        require(is_short, rule, path=str(path), column=name, values=values[:5])
    return columns


def _finder(dataset, by_id):
    """Returns a function from an id or file name in the CSV to an image id or None."""
    if by_id:
        ids = {str(record.source_id): record.image_id for record in dataset.records}
        return (ids | {str(r.image_id): r.image_id for r in dataset.records}).get
    ids = {r.file_name: r.image_id for r in dataset.records if r.file_name}
    last_parts = collections.defaultdict(set)
    for name, image_id in ids.items():
        last_parts[_last_part(name)].add(image_id)

    def find(name):
        found = last_parts.get(_last_part(name), ())
        return ids.get(name, next(iter(found)) if len(found) == 1 else None)

    return find


def _last_part(name):
    return name.replace("\\", "/").rpartition("/")[2]
