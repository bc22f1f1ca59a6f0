"""Near-duplicates within a split, and of one split in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.near_duplicates import (
    HASH_BITS,
    ImageHashes,
    near_duplicate_groups,
)
from effdet_keras.data.problems import Problem
from effdet_keras.data.record import Record

_NAMED = 3  # members of a group that its problem names


class SharedLookAlike(NamedTuple):
    """An image that nearly is one of another split."""

    record: Record
    other: Record
    other_split: str
    bits: int  # of the hashes, that differ

    @property
    def problem(self) -> Problem:
        detail = (
            f"looks like {self.other.name} of split {self.other_split!r} "
            f"({self.bits} of {HASH_BITS} bits of their hashes differ)"
        )
        ids = (self.record.image_id,)
        return Problem("shared near-duplicate", self.record.name, detail, ids)


def find_look_alikes(
    dataset: DetectionDataset, hashes: ImageHashes, copies: Collection[int] = ()
) -> list[Problem]:
    """Finds near-duplicates in a dataset: one problem for each group of them.

    Args:
        dataset: `DetectionDataset`.
        hashes: those of its images.
        copies: image ids that are named already, as copies byte by byte.
    """
    groups, members = near_duplicate_groups(hashes)[:, 0], {}
    for record, group in zip(dataset.records, groups):
        if record.image_id not in copies:
            members.setdefault(group, []).append(record)
    problems = []
    for first, *others in members.values():
        if not others:
            continue
        named = ", ".join(record.name for record in others[:_NAMED])
        more = len(others) - _NAMED
        detail = f"looks like {named}{f' and {more:,} more' if more > 0 else ''}"
        ids = tuple(record.image_id for record in (first, *others))
        problems.append(Problem("near-duplicate image", first.name, detail, ids))
    return problems


def find_shared_look_alikes(
    datasets: Mapping[str, DetectionDataset],
    hashes: Mapping[str, ImageHashes],
    copies: Mapping[str, Collection[int]],
) -> dict[str, list[SharedLookAlike]]:
    """Finds images of each split that look like one of an earlier split.

    Args:
        datasets: `DetectionDataset`s by split.
        hashes: those of their images.
        copies: for each split the ids of images that are named already, as copies byte
            by byte of an image of an earlier split.
    """
    found, earlier = {}, []
    for split, dataset in datasets.items():
        found[split] = []
        for index, record in enumerate(dataset.records):
            if record.image_id in copies[split]:
                continue
            for other_split, other_dataset in earlier:
                other = _most_alike(hashes[split], index, hashes[other_split])
                if other is not None:
                    place, bits = other
                    found[split].append(
                        SharedLookAlike(
                            record, other_dataset.records[place], other_split, bits
                        )
                    )
                    break
        earlier.append((split, dataset))
    return found


def _most_alike(hashes, index, others):
    """The place of the image that is most like one, and the bits that differ."""
    alike = np.flatnonzero(hashes.are_alike_to(index, others))
    if not len(alike):
        return None
    bits = np.bitwise_count(others.hashes[alike] ^ hashes.hashes[index])
    return int(alike[np.argmin(bits)]), int(bits.min())
