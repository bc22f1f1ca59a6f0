"""Splits images into two parts, with whole groups and a fair share of each class.

The search starts from a random split of single images and changes it as little as
possible. If no images belong together, and each class has its share, the random split
is the result.

The search minimizes the chi-squared statistic of the second part: the sum over classes
of `(images - expected)^2 / expected`, plus one more term for the number of images. This
weighs a rare class as much as a frequent one. The iterative stratification of Sechidis
et al. (2011, "On the Stratification of Multi-Label Data") has the same effect because
it starts with the rarest class. Each step moves the group that lowers the statistic
most to the other part, or swaps two groups. The search ends when each part has what it
should have, or when no step lowers the statistic.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from effdet_keras.data.record import Record
from effdet_keras.data.split_groups import ImageGroups, natural_order
from effdet_keras.errors import printable

# How many groups per part are tried in swaps if moving a single group does not help.
_SWAPPED = 64
# The tolerated difference between the number of images of a class in a part and the
# expected number: half of the smaller expected number, at most three standard
# deviations of a count, and at least one image.
_HALF, _DEVIATIONS = 0.5, 3.0
# A part should have an image of a class if the expected number is at least this.
_EXPECTED = 0.9
# A smaller decrease of the statistic does not count: the sums are rounded.
_NOTHING = 1e-9
# A group is cut if the smaller part would otherwise have less than this share of the
# images that it should have.
_TOO_SMALL = 0.5
# It is also cut if a part lacks a class and the group has at least this many images
# of that class.
_LARGE_GROUP = 10


@dataclasses.dataclass(frozen=True)
class Division:
    """The result of `divide`.

    Attributes:
        in_second: bool array `[n]`, which images are in the second part.
        num_cut: int, how many groups had to be cut.
        lacking: tuple of int, labels of classes that one part lacks, although it should
            have an image of them.
    """

    in_second: np.ndarray
    num_cut: int
    lacking: tuple[int, ...]

    def describe(self, grouping: ImageGroups, class_names: Sequence[str]) -> str:
        """Returns a text on the groups and their cost, or "" if there are no groups."""
        num_groups, num_images = grouping.counts
        if not num_groups:
            return ""
        groups = "1 group" if num_groups == 1 else f"{num_groups:,} groups"
        lines = [
            f"{groups} of images {grouping.words} ({num_images:,} images): each stays "
            'on one side of the split (`groups="image"`, --split-by image, divides '
            "image by image)."
        ]
        if self.num_cut:
            lines.append(
                f"{self.num_cut:,} of them had to be cut where the images change "
                "most, because no fair division was possible otherwise. Parts of a "
                "recording are on both sides, so the AP on the second side is "
                "somewhat too good."
            )
        if self.lacking:
            names = ", ".join(repr(class_names[i]) for i in self.lacking[:5])
            more = ", ..." if len(self.lacking) > 5 else ""
            lines.append(
                f"One part has no image of {names}{more}: all of them belong together."
            )
        return printable("\n".join(lines))


def divide(
    records: Sequence[Record],
    num_classes: int,
    grouping: ImageGroups,
    num_first: int,
    seed: int,
) -> Division:
    """Splits images into two parts, as `DetectionDataset.split` describes.

    Args:
        records: sequence of `Record`.
        num_classes: int, the number of classes.
        grouping: `ImageGroups`, which images belong together.
        num_first: int, the number of images of the first part, which is met as closely
            as the groups allow.
        seed: int. The same seed gives the same split.

    Returns:
        `Division`.
    """
    random = np.random.default_rng(seed)
    in_second = np.ones(len(records), bool)
    in_second[random.permutation(len(records))[:num_first]] = False
    if not grouping.is_stratified:
        return Division(in_second, 0, ())
    # The search takes the first of equally good groups, so their order is random.
    groups = random.permutation(int(grouping.groups.max()) + 1)[grouping.groups]
    table, num_cut = _count_classes(records, num_classes), 0
    while True:
        search = _Search(table, groups, in_second)
        search.run()
        to_cut = search.group_to_cut() if grouping.may_be_cut else None
        if to_cut is None:
            return Division(search.side[groups], num_cut, search.lacking())
        share = min(num_first, len(records) - num_first) / len(records)
        images = np.flatnonzero(groups == to_cut)
        for piece in _pieces(images, records, grouping.hashes, share)[1:]:
            groups[piece] = groups.max() + 1
        num_cut += 1


def _pieces(images, records, hashes, share):
    """Cuts a group at large changes into consecutive pieces of about `share` of it."""
    images = images[natural_order([records[i] for i in images])]
    num_pieces = int(min(max(round(1 / share), 2), len(images)))
    length = len(images) / num_pieces
    changes = hashes.bits_between(images[:-1], images[1:])
    cuts = []
    for k in range(1, num_pieces):  # a cut is before the image at this index
        first = cuts[-1] + 1 if cuts else 1  # neither this nor a later piece is empty
        last = len(images) - (num_pieces - k)
        low = min(max(math.ceil((k - 0.25) * length), first), last)
        high = min(max(math.floor((k + 0.25) * length), low), last)
        cuts.append(low + int(np.argmax(changes[low - 1 : high])))
    return np.split(images, cuts)


class _Counts(NamedTuple):
    """The classes of images, with one row per image and class that it contains."""

    num_images: int
    num_classes: int
    image: np.ndarray  # [m]
    label: np.ndarray  # [m]


def _count_classes(records, num_classes):
    labels = [np.unique(record.labels) for record in records]
    image = np.repeat(np.arange(len(records)), [len(found) for found in labels])
    label = np.concatenate(labels).astype(np.int64)
    is_known = (label >= 0) & (label < num_classes)
    return _Counts(len(records), num_classes, image[is_known], label[is_known])


class _Search:
    """Searches for the part (the side) of each group.

    Counts have one column per class, and one more column for all images.
    """

    def __init__(self, table, groups, in_second):
        columns = table.num_classes + 1
        of_class = groups[table.image] * columns + table.label
        of_all = groups * columns + table.num_classes
        cells, counts = np.unique(
            np.concatenate([of_class, of_all]), return_counts=True
        )
        # The number of images for each pair of group and column that has any.
        self._group, self._column = np.divmod(cells, columns)
        self._count = counts.astype(float)
        self._sizes = np.bincount(groups)
        self._total = np.bincount(self._column, self._count, minlength=columns)
        self._num_groups = np.bincount(self._column, minlength=columns)  # per column
        share = in_second.mean()
        self._expected = share * self._total
        self._smaller = min(share, 1 - share) * self._total
        self._weight = 1 / np.maximum(self._smaller, 1e-9)
        self._weight[-1] *= max(np.count_nonzero(self._total[:-1]), 1)
        self._tolerance = np.maximum(
            1.0,
            np.minimum(_HALF * self._smaller, _DEVIATIONS * np.sqrt(self._smaller)),
        )
        self._tolerance[-1] = 0.0  # exactly the requested number of images
        # A group starts on the side of its first image.
        self.side = in_second[np.unique(groups, return_index=True)[1]]

    def run(self):
        """Finds `side`, bool `[G]`: whether a group is in the second part."""
        if len(self.side) == 1:
            return
        while not self._is_right():
            rises = self._rises()
            allowed = np.where(self._empties_a_part(), np.inf, rises)
            best, swap = int(np.argmin(allowed)), None
            if allowed[best] >= -_NOTHING and not self._is_one_sided():
                swap = self._best_swap(rises)
                if swap is None:
                    return
            moved = [best] if swap is None else list(swap)
            self.side[moved] = ~self.side[moved]

    def lacking(self):
        """Returns the labels of classes that one part should have, but lacks."""
        return tuple(np.flatnonzero(self._lacking()[:-1]).tolist())

    def group_to_cut(self):
        """Returns the group that makes a fair split impossible, or None."""
        there, total = self._in_second()[-1], self._total[-1]
        if min(there, total - there) < _TOO_SMALL * self._smaller[-1]:
            largest = int(np.argmax(self._sizes))
            return largest if self._sizes[largest] > 1 else None
        is_candidate = self._lacking()[self._column] & (self._count >= _LARGE_GROUP)
        if not is_candidate.any():
            return None
        return int(self._group[np.argmax(np.where(is_candidate, self._count, 0))])

    def _is_right(self):
        """Returns whether both parts have the images and classes they should have."""
        off = np.abs(self._in_second() - self._expected) > self._tolerance
        # A class that only one group has can be in one part only: the larger one.
        lacks = self._lacking(fewest_groups=2)
        return not (off | lacks).any() and not self._is_one_sided()

    def _lacking(self, fewest_groups=1):
        """Returns whether a part lacks a class that it should have, `[C + 1]`."""
        there, expected_there = self._in_second(), self._expected
        left, expected_left = self._total - there, self._total - expected_there
        lacks = np.zeros(len(there), bool)
        for count, expected in ((there, expected_there), (left, expected_left)):
            # The larger part should have every class, even one of a single image.
            should_have = expected > self._total / 2
            should_have |= (expected >= _EXPECTED) & (self._num_groups >= fewest_groups)
            lacks |= (count == 0) & should_have
        return lacks & (self._total > 0)

    def _in_second(self):
        """Returns the second part's images per class and in total, `[C + 1]`."""
        count = self._count * self.side[self._group]
        return np.bincount(self._column, count, minlength=len(self._total))

    def _is_one_sided(self):
        return self.side.all() or not self.side.any()

    def _empties_a_part(self):
        """Returns whether a part is empty once a group changes its side, `[G]`."""
        in_second = np.count_nonzero(self.side)
        is_only = {True: in_second == 1, False: in_second == len(self.side) - 1}
        return np.where(self.side, is_only[True], is_only[False])

    def _rises(self):
        """Returns how much the statistic rises if a group changes its side, `[G]`."""
        off = (self._in_second() - self._expected) * self._weight
        length = len(self.side)
        slope = np.bincount(self._group, self._count * off[self._column], length)
        weight = self._weight[self._column]
        square = np.bincount(self._group, self._count**2 * weight, length)
        return 2 * np.where(self.side, -1.0, 1.0) * slope + square

    def _best_swap(self, rises):
        """Returns the two groups whose swap lowers the statistic most, or None."""
        sides = [np.flatnonzero(self.side == side) for side in (False, True)]
        first, second = (
            side[np.argsort(rises[side], kind="stable")[:_SWAPPED]] for side in sides
        )
        # In a swap, the counts that both groups have in common do not change.
        common = self._rows(first) * self._weight @ self._rows(second).T
        rise = rises[first][:, None] + rises[second] - 2 * common
        one, other = np.unravel_index(int(np.argmin(rise)), rise.shape)
        return (first[one], second[other]) if rise[one, other] < -_NOTHING else None

    def _rows(self, groups):
        """Returns the images per column of some groups, `[k, C + 1]`."""
        place = np.full(len(self.side), -1)
        place[groups] = np.arange(len(groups))
        rows = np.zeros((len(groups), len(self._total)))
        is_one = place[self._group] >= 0
        rows[place[self._group[is_one]], self._column[is_one]] = self._count[is_one]
        return rows
