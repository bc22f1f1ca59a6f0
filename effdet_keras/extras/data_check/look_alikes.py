"""Finds near-duplicates within a split and between splits."""

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

_NAMED = 3  # the most images of a group that its problem names, besides the first


class SharedLookAlike(NamedTuple):
    """An image that nearly equals an image of another split."""

    record: Record
    other: Record
    other_split: str
    bits: int  # how many bits of the hashes differ

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
    """Finds near-duplicates in a dataset, and returns one problem per group of them.

    Args:
        dataset: `DetectionDataset`.
        hashes: `ImageHashes` of its images.
        copies: collection of int, ids of images that are reported already, as exact
            copies.

    Returns:
        List of `Problem`.
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
    """Finds the images of each split that look like an image of an earlier split.

    Args:
        datasets: dict from split name to `DetectionDataset`.
        hashes: dict from split name to the `ImageHashes` of its images.
        copies: dict from split name to the ids of images that are reported already, as
            exact copies of an image of an earlier split.

    Returns:
        Dict from split name to a list of `SharedLookAlike`, at most one per image.
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
    """Returns the index of the most similar image and the number of differing bits.

    Returns None if no image looks alike.
    """
    alike = np.flatnonzero(hashes.are_alike_to(index, others))
    if not len(alike):
        return None
    bits = np.bitwise_count(others.hashes[alike] ^ hashes.hashes[index])
    return int(alike[np.argmin(bits)]), int(bits.min())
