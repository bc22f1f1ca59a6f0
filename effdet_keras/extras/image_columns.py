"""What a csv file knows of each image beside its boxes: camera, weather, place."""

from __future__ import annotations

import collections
import os

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.csv import read_lines
from effdet_keras.errors import InvalidValueError, require

_IDS = ("image_id", "id")
_NAMES = ("file_name", "filename", "file", "image", "image_path", "path", "name")
_EMPTY = "(empty)"
_MOST_VALUES = 100  # of a column: parts of a few images say nothing
_SHOWN = 5  # of what is wrong, in one message


def read_image_columns(
    path: str | os.PathLike[str], dataset: DetectionDataset
) -> dict[str, dict[int, str]]:
    """Reads a CSV file with a row for each image of a dataset.

    The first row names the columns. One of them says which image a row is of:
    `image_id` or `id`, the id in the dataset; or `file_name`, `filename`, `file`,
    `image`, `image_path`, `path` or `name`, the name of the file, where the last part
    is enough if it tells the image. All other columns are returned. Cells are separated
    by commas, semicolons or tabs; the text is in UTF-8.

    Args:
        path: path of the file.
        dataset: `DetectionDataset`, each image of which has one row. Rows of other
            images, such as those of other splits, are left out.

    Returns:
        Dict from the name of a column to its values by image id, in the order of the
        file: what `analyze_results(columns=...)` takes. An empty cell is "(empty)".

    Raises:
        ValueError: If the file is not such text, lacks a column, has a row with more or
            fewer cells than columns, an image twice, or a column with more than 100
            values; or if an image of the dataset has no row.
        OSError: If it cannot be read.

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
    if not lines:
        raise InvalidValueError(f"'{path}' is empty: it has no row of column names.")
    (_, header), *rows = lines
    place = _image_column(path, header)
    find = _finder(dataset, by_id=header[place].lower() in _IDS)
    columns = {name: {} for number, name in enumerate(header) if number != place}
    row_of, unknown = {}, []
    for number, cells in rows:
        if len(cells) != len(header):
            raise InvalidValueError(
                f"Every row must have a cell for each of the {len(header)} columns "
                f"{header}. Received: row {number} of '{path}' with {len(cells)} cells"
            )
        image_id = find(cells[place])
        if image_id is None:
            unknown.append(f"{cells[place]!r} in row {number}")
            continue
        if image_id in row_of:
            raise InvalidValueError(
                f"Every image has one row. Received: '{path}' with two of "
                f"{cells[place]!r}, {row_of[image_id]} and {number}"
            )
        row_of[image_id] = number
        for name, cell in zip(header, cells):
            if name in columns:
                columns[name][image_id] = cell or _EMPTY
    missing = [r.name for r in dataset.records if r.image_id not in row_of]
    if missing:  # while rows of other images are those of other splits
        text = (
            f"'{path}' must have a row for every image. Missing: {len(missing)} of "
            f"{len(dataset)}: {_shown(missing)}"
        )
        if unknown:
            text += (
                ". Its rows of images that the dataset does not have, or does not tell "
                f"apart: {_shown(unknown)}"
            )
        raise InvalidValueError(text)
    for name, of_images in columns.items():
        values = sorted(set(of_images.values()))
        if len(values) > _MOST_VALUES:
            raise InvalidValueError(
                f"A column has few values, at most {_MOST_VALUES}: put numbers into "
                "groups, and leave out what differs from image to image. Received: "
                f"'{path}' with {len(values)} values of '{name}', such as "
                f"{values[:_SHOWN]}"
            )
    return columns


def _image_column(path, header):
    """The place of the column that says which image a row is of."""
    twice = [name for name, count in collections.Counter(header).items() if count > 1]
    rule = "Every column must have a name of its own in the first row"
    require(not twice and "" not in header, rule, path=str(path), header=header)
    lower = [name.lower() for name in header]
    known = [name for name in (*_IDS, *_NAMES) if name in lower]
    if not known:
        raise InvalidValueError(
            f"'{path}' has no column that names the image: 'image_id', or 'file_name' "
            f"with the name of its file. Received: the columns {header}"
        )
    if len(header) == 1:
        raise InvalidValueError(
            f"'{path}' has no column beside '{header[0]}', which names the image: add "
            "one, such as 'weather', with a value for each image."
        )
    return lower.index(known[0])


def _finder(dataset, by_id):
    """A function from an id in the file, or a file name, to the image id or None."""
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


def _shown(names):
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
