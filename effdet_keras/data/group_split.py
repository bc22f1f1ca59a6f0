"""Divides images in two parts: groups stay whole, classes get their share.

It begins with a division of single images at random and moves as little as it must:
where no images belong together, and each class has its share, that division stays.

The measure is the chi-squared statistic of the second part, the sum over classes of
`(images - expected)^2 / expected`, with one more term for the number of images. It
weighs a rare class as much as a frequent one, which is what the iterative
stratification of Sechidis et al. (2011, "On the Stratification of Multi-Label Data")
does by beginning with the rarest class. The search takes the group that lowers it
most from one part to the other, or swaps two, until all is as it should be or nothing
lowers it.
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

# Groups of which pairs are tried, where moving no single one helps.
_SWAPPED = 64
# A class has its share in a part with so many images more or less than expected: half
# of them, but at least one, and at most three standard deviations of a count.
_HALF, _DEVIATIONS = 0.5, 3.0
# A part should have an image of a class where it is expected to have so many.
_EXPECTED = 0.9
# The measure is no better where it is lower by less: the sums are rounded.
_NOTHING = 1e-9
# A group is cut where the smaller part would have less of what it should than this.
_TOO_SMALL = 0.5
# Or where it has a whole class and at least so many images.
_LARGE_GROUP = 10


@dataclasses.dataclass(frozen=True)
class Division:
    """Which images are in the second part, and what was done for it.

    Attributes:
        in_second: bool array `[n]`.
        num_cut: how many groups had to be cut.
        lacking: labels of classes that one part lacks, although the other has several
            images of them.
    """

    in_second: np.ndarray
    num_cut: int
    lacking: tuple[int, ...]

    def describe(self, grouping: ImageGroups, class_names: Sequence[str]) -> str:
        """A text to print: what stays together, and what that costs; often empty."""
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
                f"{self.num_cut:,} of them had to be cut, where the images change most:"
                " no division without that is fair. Parts of a recording are on both "
                "sides, and the AP of the second is somewhat too good."
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
    """Divides images: as `DetectionDataset.split` says.

    Args:
        records: `Record`s of a dataset.
        num_classes: labels are below it.
        grouping: which images belong together.
        num_first: images of the first part, as near as groups allow.
        seed: int. The same seed divides in the same way.
    """
    random = np.random.default_rng(seed)
    in_second = np.ones(len(records), bool)
    in_second[random.permutation(len(records))[:num_first]] = False
    if not grouping.is_stratified:
        return Division(in_second, 0, ())
    # Of groups that are equally good the search takes the first: a random one.
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
    """Consecutive pieces of a group, each about a share of it, cut at large changes."""
    images = images[natural_order([records[i] for i in images])]
    num_pieces = int(min(max(round(1 / share), 2), len(images)))
    length = len(images) / num_pieces
    changes = hashes.bits_between(images[:-1], images[1:])
    cuts = []
    for k in range(1, num_pieces):  # each before the image of this place
        first = cuts[-1] + 1 if cuts else 1  # no piece is empty, the later ones either
        last = len(images) - (num_pieces - k)
        low = min(max(math.ceil((k - 0.25) * length), first), last)
        high = min(max(math.floor((k + 0.25) * length), low), last)
        cuts.append(low + int(np.argmax(changes[low - 1 : high])))
    return np.split(images, cuts)


class _Counts(NamedTuple):
    """Which classes images have: one row for each image and class that it has."""

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
    """The search for the side of each group.

    The classes are columns, and one more column counts all images.
    """

    def __init__(self, table, groups, in_second):
        columns = table.num_classes + 1
        of_class = groups[table.image] * columns + table.label
        of_all = groups * columns + table.num_classes
        cells, counts = np.unique(
            np.concatenate([of_class, of_all]), return_counts=True
        )
        # How many images of a group a column counts, where it counts any.
        self._group, self._column = np.divmod(cells, columns)
        self._count = counts.astype(float)
        self._sizes = np.bincount(groups)
        self._total = np.bincount(self._column, self._count, minlength=columns)
        self._num_groups = np.bincount(self._column, minlength=columns)  # of a column
        share = in_second.mean()
        self._expected = share * self._total
        self._smaller = min(share, 1 - share) * self._total
        self._weight = 1 / np.maximum(self._smaller, 1e-9)
        self._weight[-1] *= max(np.count_nonzero(self._total[:-1]), 1)
        self._tolerance = np.maximum(
            1.0,
            np.minimum(_HALF * self._smaller, _DEVIATIONS * np.sqrt(self._smaller)),
        )
        self._tolerance[-1] = 0.0  # as many images as asked for
        # A group begins on the side of one of its images.
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
        """Labels of classes of which one part should have an image, and has none."""
        return tuple(np.flatnonzero(self._lacking()[:-1]).tolist())

    def group_to_cut(self):
        """The group that leaves no fair division, or None."""
        there, total = self._in_second()[-1], self._total[-1]
        if min(there, total - there) < _TOO_SMALL * self._smaller[-1]:
            largest = int(np.argmax(self._sizes))
            return largest if self._sizes[largest] > 1 else None
        is_candidate = self._lacking()[self._column] & (self._count >= _LARGE_GROUP)
        if not is_candidate.any():
            return None
        return int(self._group[np.argmax(np.where(is_candidate, self._count, 0))])

    def _is_right(self):
        """Whether both parts have the images and the classes that they should have."""
        off = np.abs(self._in_second() - self._expected) > self._tolerance
        # What a single group has alone can be in one part only: in the larger.
        lacks = self._lacking(fewest_groups=2)
        return not (off | lacks).any() and not self._is_one_sided()

    def _lacking(self, fewest_groups=1):
        """Whether a part should have an image of a class, and has none, `[C + 1]`."""
        there, expected_there = self._in_second(), self._expected
        left, expected_left = self._total - there, self._total - expected_there
        lacks = np.zeros(len(there), bool)
        for count, expected in ((there, expected_there), (left, expected_left)):
            # The larger part has an image of each class, be it the only one.
            should_have = expected > self._total / 2
            should_have |= (expected >= _EXPECTED) & (self._num_groups >= fewest_groups)
            lacks |= (count == 0) & should_have
        return lacks & (self._total > 0)

    def _in_second(self):
        """The images of each class, and all, in the second part, `[C + 1]`."""
        count = self._count * self.side[self._group]
        return np.bincount(self._column, count, minlength=len(self._total))

    def _is_one_sided(self):
        return self.side.all() or not self.side.any()

    def _empties_a_part(self):
        """Whether one part is left empty where a group changes its side, `[G]`."""
        in_second = np.count_nonzero(self.side)
        is_only = {True: in_second == 1, False: in_second == len(self.side) - 1}
        return np.where(self.side, is_only[True], is_only[False])

    def _rises(self):
        """By how much the measure rises where one group changes its side, `[G]`."""
        off = (self._in_second() - self._expected) * self._weight
        length = len(self.side)
        slope = np.bincount(self._group, self._count * off[self._column], length)
        weight = self._weight[self._column]
        square = np.bincount(self._group, self._count**2 * weight, length)
        return 2 * np.where(self.side, -1.0, 1.0) * slope + square

    def _best_swap(self, rises):
        """The groups of both sides whose swap lowers the measure most, or None."""
        sides = [np.flatnonzero(self.side == side) for side in (False, True)]
        first, second = (
            side[np.argsort(rises[side], kind="stable")[:_SWAPPED]] for side in sides
        )
        # One comes as the other goes: what both have does not change.
        common = self._rows(first) * self._weight @ self._rows(second).T
        rise = rises[first][:, None] + rises[second] - 2 * common
        one, other = np.unravel_index(int(np.argmin(rise)), rise.shape)
        return (first[one], second[other]) if rise[one, other] < -_NOTHING else None

    def _rows(self, groups):
        """What each column counts in some groups, `[k, C + 1]`."""
        place = np.full(len(self.side), -1)
        place[groups] = np.arange(len(groups))
        rows = np.zeros((len(groups), len(self._total)))
        is_one = place[self._group] >= 0
        rows[place[self._group[is_one]], self._column[is_one]] = self._count[is_one]
        return rows
