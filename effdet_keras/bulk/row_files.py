"""Files of rows: JSON lines and Parquet."""

import contextlib
import io
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator

from effdet_keras._internal.optional_imports import pyarrow_parquet
from effdet_keras.bulk.rows import line_of, row_of_line, schema, table_of
from effdet_keras.errors import InvalidValueError

FORMATS = ("jsonl", "parquet")
_AT_ONCE = 4096  # rows of a merged Parquet file that are in memory


def write_rows(path: pathlib.Path, rows: Iterable[dict]) -> None:
    """Writes a `.jsonl` or `.parquet` file of this machine, row by row."""
    opened = _json_lines if path.suffix == ".jsonl" else _parquet
    with opened(path) as add:
        for row in rows:
            add(row)


def read_rows(data: bytes, name: str) -> Iterator[dict]:
    """The rows of a file.

    Args:
        data: bytes of the file.
        name: str, its name, for its ending and for errors.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        if name.endswith(".jsonl"):
            for line in data.decode("utf-8").splitlines():
                yield row_of_line(json.loads(line))
        else:
            package = pyarrow_parquet.require("Reading Parquet")
            yield from package.read_table(io.BytesIO(data)).to_pylist()
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"'{name}' is damaged, or no file of `effdet-keras predict --parts` "
            f"({error}). Remove it, and run its shard again."
        ) from error


@contextlib.contextmanager
def _json_lines(path) -> Iterator[Callable[[dict], None]]:
    with open(path, "w", encoding="utf-8") as file:
        yield lambda row: file.write(json.dumps(line_of(row)) + "\n")


@contextlib.contextmanager
def _parquet(path) -> Iterator[Callable[[dict], None]]:
    package = pyarrow_parquet.require("Writing Parquet")
    rows = []

    def add(row):
        rows.append(row)
        if len(rows) == _AT_ONCE:
            flush()

    def flush():
        if rows:
            writer.write_table(table_of(rows))
            rows.clear()

    with package.ParquetWriter(path, schema(), compression="zstd") as writer:
        yield add
        flush()
