"""`effdet-keras merge`."""

import argparse

from effdet_keras.cli.shared_arguments import add_overwrite


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "merge",
        help="one file of the parts of `predict --parts`",
        description="Writes what all shards found into one file, with each image once, "
        "in the order of the images' names.",
    )
    parser.add_argument(
        "parts", metavar="FOLDER", help="folder of `predict --parts`, also an address"
    )
    parser.add_argument(
        "out",
        metavar="FILE",
        help="file to write, also at an address: .json for COCO with scores, .jsonl "
        "for a line per image, .parquet for a row per image (extra `parquet`)",
    )
    add_overwrite(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    import warnings

    from effdet_keras.extras.bulk.merge import merge_parts

    count, failed = merge_parts(
        arguments.parts, arguments.out, overwrite=arguments.overwrite
    )
    if failed:
        names = ", ".join(map(repr, failed[:10])) + (", ..." if failed[10:] else "")
        warnings.warn(
            f"{len(failed):,} images could not be read: {names}", stacklevel=2
        )
    print(f"Wrote '{arguments.out}': {count:,} images")
    return 0
