"""`effdet-keras merge`."""

from __future__ import annotations

import warnings


def run(parts: str, out: str, *, overwrite: bool = False) -> None:
    """one file of the parts of `predict --parts`

    Writes what all shards found into one file, with each image once, in the order of
    the images' names.

    Args:
        parts (FOLDER): folder of `predict --parts`, also an address
        out (FILE): file to write, also at an address: .json for COCO with scores,
            .jsonl for a line per image, .parquet for a row per image (extra `parquet`)
    """
    from effdet_keras.extras.bulk.merge import merge_parts

    count, failed = merge_parts(parts, out, overwrite=overwrite)
    if failed:
        names = ", ".join(map(repr, failed[:10])) + (", ..." if failed[10:] else "")
        warnings.warn(
            f"{len(failed):,} images could not be read: {names}", stacklevel=2
        )
    print(f"Wrote '{out}': {count:,} images")
