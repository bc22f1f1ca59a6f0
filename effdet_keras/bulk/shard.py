"""One shard of a large run: its images, without those that are done, part by part."""

import dataclasses
import hashlib
import itertools
import time
import warnings
from collections.abc import Mapping
from typing import Any

from effdet_keras.bulk.batch_detector import BatchDetector
from effdet_keras.bulk.parts import Parts
from effdet_keras.errors import InvalidValueError


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard `number` of `count`, counted from 1.

    Example:
        >>> shard = Shard.parse("2/16")
        >>> shard.number, shard.count
        (2, 16)
        >>> sum(Shard(n, 3).has("a.jpg") for n in (1, 2, 3))
        1
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Reads "2/16".

        Raises:
            ValueError: If it is not of this format, or out of range.
        """
        number, _, count = text.partition("/")
        if number.isdecimal() and count.isdecimal():
            if 1 <= int(number) <= int(count) <= 99_999:
                return cls(int(number), int(count))
        raise InvalidValueError(
            "A shard is I/N, with I from 1 to N, such as 1/16 to 16/16. "
            f"Received: {text!r}"
        )

    def has(self, name: str) -> bool:
        """Whether an image is of this shard: by its name alone.

        More images in the folder change nothing for those that were there.
        """
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1


def detect_shard(
    detector: BatchDetector,
    sources: Mapping[Any, str],
    parts: Parts,
    shard: Shard,
    *,
    ending: str,
    part_images: int,
) -> int:
    """Detects in the images of a shard that no part has yet.

    Those whose row is an error are tried once more, at the end.

    Args:
        detector: `BatchDetector`.
        sources: mapping of each path or address to its name, of all shards.
        parts: `Parts`, whose settings agree.
        shard: `Shard`.
        ending: "jsonl" or "parquet".
        part_images: int, images of a part: what a kill can lose.

    Returns:
        int, how many images of the shard could not be read.
    """
    own = sorted((name, path) for path, name in sources.items() if shard.has(name))
    done, errors = _read_state(parts, shard)
    gone = len(done) + len(errors.keys() - done)
    new = [pair for pair in own if pair[0] not in done and pair[0] not in errors]
    again = [pair for pair in own if pair[0] in errors and pair[0] not in done]
    gone -= len(own) - len(new)
    if gone:
        warnings.warn(
            f"{gone:,} images of the parts are not among the inputs any more: their "
            "rows stay",
            stacklevel=2,
        )
    print(_state(shard, len(own) - len(new), len(own)), flush=True)
    number, start, seen = parts.next_number(shard.number), time.monotonic(), 0
    for pairs in (new, again):
        rows = detector.stream(pairs)
        while chunk := list(itertools.islice(rows, part_images)):
            fresh = [row for row in chunk if _is_news(row, errors)]
            if fresh:
                parts.write(shard.number, shard.count, number, fresh, ending)
                number += 1
            for row in chunk:
                _note(row, done, errors)
            seen += len(chunk)
            speed = seen / max(time.monotonic() - start, 1e-6)
            state = _state(shard, len(done | errors.keys()) - gone, len(own))
            print(f"{state}, {speed:.1f} images per second", flush=True)
    parts.finish(shard.number, shard.count, len(done | errors.keys()))
    failed = [pair[0] for pair in own if pair[0] not in done]
    for name in failed[:10]:
        warnings.warn(f"'{name}' is left out: {errors[name]}", stacklevel=2)
    return len(failed)


def _read_state(parts, shard):
    """Names that are done, and of those that are not, the errors."""
    done, errors = set(), {}
    for path in parts.part_files(shard.number):
        for row in parts.read(path):
            _note(row, done, errors)
    return done, errors


def _note(row, done, errors):
    if row["error"] is None:
        done.add(row["file_name"])
    else:
        errors[row["file_name"]] = row["error"]


def _is_news(row, errors):
    return row["error"] is None or errors.get(row["file_name"]) != row["error"]


def _state(shard, count, total):
    return f"shard {shard.number}/{shard.count}: {count:,} of {total:,} images"
