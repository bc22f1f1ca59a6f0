"""`DetectionDataset`: annotated images to inspect, to split and to train on."""

from __future__ import annotations

import collections
import dataclasses
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.processes import current_processes
from effdet_keras.data.group_split import divide
from effdet_keras.data.problems import Problem
from effdet_keras.data.record import (
    BACKGROUND_NAME,
    Record,
    check_labels,
    concat_field,
    describe_example,
    load_example,
    masks_of,
)
from effdet_keras.data.split_groups import GroupsBy, image_groups
from effdet_keras.errors import InvalidTypeError, InvalidValueError, printable, require
from effdet_keras.labels import category_ids_or_default, extend_category_ids

if TYPE_CHECKING:
    from effdet_keras.augment.augmentation import Augmentation


class DetectionDataset:
    """Annotated images with one list of classes.

    Use `load` or a reader such as `from_coco` to make a dataset. Images stay on disk
    until they are used. Labels count from 0 in the order of `class_names`.
    `category_ids` holds the id that the annotation file gives to each class.

    `dataset[i]` is one example, a dict:

    | key | value |
    | --- | --- |
    | `image` | uint8 `[H, W, 3]` |
    | `boxes` | float32 `[n, 4]`, `yxyx` in pixels, inside the image |
    | `labels` | int32 `[n]` |
    | `is_crowd` | bool `[n]`: True for COCO's crowds and VOC's difficult objects |
    | `area` | float64 `[n]`, area of each object in square pixels, as in the file |
    | `image_id` | int |
    | `source_id` | int or str, the image's id in the annotation file |
    | `file_name`, `path` | str; `path` is None if the image is not a file of its own |
    | `image_size` | `(height, width)` in pixels |
    | `mask` | uint8 `[H, W]`, the class of each pixel, if the image has a mask |

    `dataset[a:b]` and `dataset.subset(indices)` return a `DetectionDataset`.

    Args:
        records: iterable of `Record`, one per image.
        class_names: iterable of str, the class names in the order of their labels.
        category_ids: iterable of int, the annotation file's id of each class. None
            means 1, 2, ...
        problems: iterable of `Problem`, the faults that the reader found.
        seg_class_names: iterable of str, the names of the segmentation classes, in the
            order of the mask's values. None if the records have no masks, or only
            masks that are drawn from the objects' shapes.

    Raises:
        ValueError: If there is no class, if a class name or a category id repeats, if
            a class name is blank, if the numbers of ids and names differ, or if two
            images have the same image id.
        TypeError: If `class_names` is one string.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays(
        ...     [image, image], boxes=[[[4, 8, 20, 40]], []], labels=[[1], []],
        ...     class_names=("cat", "dog"))
        >>> dataset
        DetectionDataset(2 images, 1 box, 2 classes: cat, dog)
        >>> dataset[0]["boxes"].tolist(), dataset[0]["labels"].tolist()
        ([[4.0, 8.0, 20.0, 40.0]], [1])
        >>> [len(part) for part in dataset.split(0.5)]
        [1, 1]
        >>> dataset.filter(lambda example: len(example["labels"]), classes=["dog"])
        DetectionDataset(1 image, 1 box, 1 class: dog)
        >>> dataset.with_classes(("ant", "cat", "dog"))[0]["labels"].tolist()
        [2]
        >>> dataset.to_coco()["annotations"][0]["bbox"]
        [8.0, 4.0, 32.0, 16.0]
        >>> images, truth = next(iter(dataset.batches(2, image_size=64)))
        >>> tuple(images.shape), truth["labels"].numpy().tolist()
        ((2, 64, 64, 3), [[1], [-1]])
    """

    def __init__(
        self,
        records: Iterable[Record],
        class_names: Iterable[str],
        category_ids: Iterable[int] | None = None,
        *,
        problems: Iterable[Problem] = (),
        seg_class_names: Iterable[str] | None = None,
    ):
        self._records = tuple(records)
        self._problems = tuple(problems)
        self._class_names = names = checked_class_names(class_names, "`class_names`")
        self._category_ids = ids = category_ids_or_default(category_ids, len(names))
        self._seg_class_names = seg_class_names and tuple(map(str, seg_class_names))
        if not names:
            raise InvalidValueError("A dataset needs at least one class. Received none")
        is_one_each = len(set(ids)) == len(ids) == len(names)
        rule = "`category_ids` must give each class an id of its own"
        require(is_one_each, rule, class_names=names, category_ids=ids)
        uses = collections.Counter(record.image_id for record in self._records)
        twice = [image_id for image_id, count in uses.items() if count > 1]
        rule = "Every image of a dataset needs an image id of its own"
        require(not twice, rule, repeated=twice[:3])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Tuple of str: the class name of each label."""
        return self._class_names

    @property
    def num_classes(self) -> int:
        """Number of classes, `C`. Labels are from 0 to `C - 1`."""
        return len(self._class_names)

    @property
    def category_ids(self) -> tuple[int, ...]:
        """Tuple of int: the annotation file's id of each label."""
        return self._category_ids

    @property
    def seg_class_names(self) -> tuple[str, ...] | None:
        """Names of the segmentation classes, or None if the dataset has no masks.

        If masks are drawn from the objects' shapes, the names are "background",
        followed by `class_names`.
        """
        if self._seg_class_names is not None:
            return self._seg_class_names
        if any(record.shapes is not None for record in self._records):
            return (BACKGROUND_NAME, *self._class_names)
        return None

    @property
    def records(self) -> tuple[Record, ...]:
        """Tuple of `Record`: each image, not decoded, and its annotations."""
        return self._records

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Tuple of `Problem`: the faults that were found when the data was read."""
        return self._problems

    @property
    def image_ids(self) -> tuple[int, ...]:
        """Tuple of int: the id of each image, in the order of the dataset."""
        return tuple(record.image_id for record in self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int | slice) -> dict[str, Any] | DetectionDataset:
        if isinstance(index, slice):
            return self._with(self._records[index])
        return load_example(self._records[index])

    def __repr__(self) -> str:
        boxes = sum(len(record.labels) for record in self._records)
        return printable(
            f"DetectionDataset({count_of(len(self), 'image')}, "
            f"{count_of(boxes, 'box', 'boxes')}, "
            f"{count_of(self.num_classes, 'class', 'classes')}: "
            f"{_shortened(self._class_names)})"
        )

    def _with(self, records, **changes):
        """Returns a dataset of other records with the same classes, but no problems."""
        same = {
            "class_names": self._class_names,
            "category_ids": self._category_ids,
            "seg_class_names": self._seg_class_names,
        }
        return DetectionDataset(records, **same | changes)

    def _with_problem(self, problem):
        """Returns this dataset with one more problem."""
        return self._with(self._records, problems=(*self._problems, problem))

    def _relabelled(self, class_names, category_ids, **changes):
        """Returns the same images with new classes, without boxes of other classes."""
        label_of = {name: label for label, name in enumerate(class_names)}
        new = [label_of.get(name, -1) for name in self._class_names]
        records = (record.relabelled(new) for record in self._records)
        classes = {"class_names": class_names, "category_ids": category_ids}
        return self._with(records, **classes, **changes)

    def subset(self, indices: Iterable[int]) -> DetectionDataset:
        """Returns the dataset of the images at `indices`, in that order.

        Args:
            indices: iterable of int, positions of images in the dataset, each at most
                once. Negative positions count from the end.

        Returns:
            `DetectionDataset` with the same classes and an empty `problems`.

        Raises:
            IndexError: If an index is out of range.
            ValueError: If an image appears twice.
        """
        return self._with(self._records[int(i)] for i in indices)

    def split(
        self,
        fraction: float,
        seed: int = 0,
        *,
        groups: GroupsBy = "auto",
    ) -> tuple[DetectionDataset, DetectionDataset]:
        """Splits the images at random, for example into training and validation.

        Images that belong together go to the same part: a model that was trained on
        some frames of a recording knows the other frames, so its AP on them is too
        high. The split is stratified: as far as possible, the first part gets the same
        share of the images of each class. If no images belong together and a random
        choice already gives each class its share, the split is that random choice. If
        there are groups of images, the method prints how many.

        Args:
            fraction: float in (0, 1), the share of images in the first part. It is
                rounded to whole images, or met as closely as the groups allow.
            seed: int, at least 0. The same seed gives the same split.
            groups: which images belong together, one of

                - "auto": near-duplicates, which are found by a hash of their pixels;
                  and frames of recordings, which are found by the trailing number in
                  their names if neighbours look alike (docs/data.md has the rules). If
                  a group makes a fair split impossible, it is cut where its images
                  change most.
                - "hash": near-duplicates only.
                - "name": images whose names differ only in a trailing number.
                - "folder": images in the same folder.
                - "image": no images belong together, and the split is not stratified.
                - a sequence of one value per image, or a function that takes an example
                  without its `image` and returns a value: images of equal values
                  belong together. Values must be hashable.

        Returns:
            Tuple of two `DetectionDataset`s, which keep the order of the images.

        Raises:
            ValueError: If `fraction` or `seed` is out of range, if one of the parts
                would be empty, or if `groups` is an unknown name or has not one value
                per image.
            TypeError: If a value of `groups` is not hashable.

        Example:
            >>> from effdet_keras.data.formats.arrays import from_arrays
            >>> images = [np.zeros((32, 48, 3), "uint8")] * 6
            >>> dataset = from_arrays(images, [[]] * 6, [[]] * 6, ["cat"])
            >>> clips = ["a", "a", "a", "a", "b", "b"]
            >>> first, second = dataset.split(0.6, groups=clips)
            2 groups of images that belong together (6 images): each stays ...
            >>> first.image_ids, second.image_ids
            ((1, 2, 3, 4), (5, 6))
        """
        check_number("fraction", fraction, "(0, 1)")
        check_whole_number("seed", seed, "[0, inf)")
        first = round(len(self) * fraction)
        rule = "`fraction` must leave images in both parts"
        require(0 < first < len(self), rule, fraction=fraction, num_images=len(self))
        grouping = image_groups(self._records, groups)
        division = divide(self._records, self.num_classes, grouping, first, seed)
        in_second = division.in_second
        rule = "`groups` must make two groups or more: a group stays on one side"
        is_divided = 0 < in_second.sum() < len(self)
        require(is_divided, rule, groups=groups, num_images=len(self))
        if text := division.describe(grouping, self._class_names):
            print(text)
        parts = np.flatnonzero(~in_second), np.flatnonzero(in_second)
        return self.subset(parts[0]), self.subset(parts[1])

    def filter(
        self,
        keep: Callable[[dict[str, Any]], bool] | None = None,
        *,
        classes: Iterable[str] | None = None,
    ) -> DetectionDataset:
        """Returns a dataset of some of the images, or some of the classes, or both.

        Args:
            keep: function that takes an example without its `image` and returns
                whether to keep the image. None keeps all images.
            classes: iterable of str, the class names to keep, in the order of their
                new labels. Boxes of other classes are left out. Images that have no
                box left are kept, as images without objects.

        Returns:
            `DetectionDataset`. Classes are filtered before `keep` is called.

        Raises:
            ValueError: If a name in `classes` is not a class of the dataset.
        """
        dataset = self
        if classes is not None:
            classes = tuple(classes)
            id_of = dict(zip(self._class_names, self._category_ids))
            unknown = [name for name in classes if name not in id_of]
            rule = f"`classes` must be names of this dataset, {self._class_names}"
            require(not unknown, rule, unknown=unknown)
            dataset = self._relabelled(classes, [id_of[name] for name in classes])
        if keep is None:
            return dataset
        return dataset._with(r for r in dataset._records if keep(describe_example(r)))

    def with_masks(
        self,
        folder: str | os.PathLike[str],
        class_names: Iterable[str],
        *,
        suffix: str = ".png",
    ) -> DetectionDataset:
        """Returns the same images with segmentation masks from a folder.

        A mask is an image whose pixel values are class numbers. It is a grey image, or
        one with a palette like those in VOC's `SegmentationClass`. 255 marks pixels
        without a class. The mask of `street/001.jpg` is `folder/street/001.png`, or
        `folder/001.png` if the former does not exist.

        Args:
            folder: str or path, the folder of the masks.
            class_names: iterable of str, names of the segmentation classes, in the
                order of the pixel values.
            suffix: str, the file name extension of the masks.

        Returns:
            `DetectionDataset`.

        Raises:
            FileNotFoundError: If an image has no mask. The message says how many have
                none.
            ValueError: If a name repeats or is blank.
            TypeError: If `class_names` is one string.
        """
        names = checked_class_names(class_names, "`class_names`")
        paths = masks_of(self._records, folder, suffix)
        records = (
            dataclasses.replace(record, mask=path, shapes=None)
            for record, path in zip(self._records, paths)
        )
        return self._with(records, problems=self._problems, seg_class_names=names)

    def with_crowds_as_objects(self) -> DetectionDataset:
        """Returns the same images with each crowd turned into an ordinary object.

        Training on the result learns crowds as objects, as google/automl does with
        `skip_crowd_during_training=False`. Do not evaluate on the result: there, crowds
        would count as objects too. Evaluate on the original dataset.

        Returns:
            `DetectionDataset` in which every `is_crowd` is False.
        """
        return self._with(
            dataclasses.replace(record, is_crowd=np.zeros_like(record.is_crowd))
            for record in self._records
        )

    def with_classes(
        self, class_names: Iterable[str], category_ids: Iterable[int] | None = None
    ) -> DetectionDataset:
        """Returns the same images with labels that refer to another list of classes.

        Args:
            class_names: iterable of str, which includes all class names of this
                dataset.
            category_ids: iterable of int, the id of each class. None keeps the ids of
                this dataset and gives unused ids to new classes.

        Returns:
            `DetectionDataset`.

        Raises:
            ValueError: If a class name of this dataset is not among `class_names`.
        """
        class_names = tuple(class_names)
        lacking = [name for name in self._class_names if name not in class_names]
        rule = "`class_names` must hold all names of the dataset"
        require(not lacking, rule, class_names=class_names[:5], lacking=lacking[:5])
        if category_ids is None:
            known = dict(zip(self._class_names, self._category_ids))
            category_ids = extend_category_ids(class_names, known)
        return self._relabelled(class_names, category_ids, problems=self._problems)

    def concatenate(self, *others: DetectionDataset) -> DetectionDataset:
        """Returns one dataset of the images of this dataset and of others.

        Classes of the same name become one class. New classes are appended to those of
        this dataset, and keep their category ids if these are unused. If all image ids
        differ, they are kept; otherwise images are numbered from 1. The same holds for
        the ids of annotations. An image that two datasets share appears twice, and
        `ek.data.check` reports it.

        If only one dataset has a class, its objects must be annotated in the images of
        the other datasets as well. Otherwise they are trained on as background
        (docs/data.md).

        Args:
            *others: `DetectionDataset`s.

        Returns:
            `DetectionDataset`, whose images are in the order of the arguments.

        Raises:
            ValueError: If one dataset has masks with `seg_class_names` of its own, and
                another has masks with other segmentation classes.

        Example:
            >>> from effdet_keras.data.formats.arrays import from_arrays
            >>> image = np.zeros((32, 48, 3), "uint8")
            >>> cats = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
            >>> dogs = from_arrays([image], [[[0, 0, 9, 9]]], [[0]], ["dog"])
            >>> both = cats.concatenate(dogs)
            >>> both, both.image_ids, both.category_ids
            (DetectionDataset(2 images, 2 boxes, 2 classes: cat, dog), (1, 2), (1, 2))
        """
        parts = (self, *others)
        known: dict[str, int] = {}
        for part in parts:
            for name, category_id in zip(part.class_names, part.category_ids):
                if name not in known:
                    ids = known.values()
                    known[name] = max(ids) + 1 if category_id in ids else category_id
        masks = [*{p.seg_class_names for p in parts if p.seg_class_names is not None}]
        explicit = any(part._seg_class_names is not None for part in parts)
        rule = (
            "Datasets that are joined must have the same classes of pixels in their "
            "masks"
        )
        require(not explicit or len(masks) == 1, rule, seg_class_names=masks)
        parts = [part.with_classes(known, known.values()) for part in parts]
        ids = [record.image_id for part in parts for record in part.records]
        if len(set(ids)) < len(ids):
            starts = np.cumsum([1, *map(len, parts)])
            parts = [part._numbered_from(i) for part, i in zip(parts, starts.tolist())]
        return DetectionDataset(
            _with_own_annotation_ids([r for part in parts for r in part.records]),
            known,
            known.values(),
            problems=[problem for part in parts for problem in part.problems],
            seg_class_names=masks[0] if explicit else None,
        )

    def _numbered_from(self, start):
        """Returns the dataset with image ids from `start` on, in its problems too."""
        new = {image_id: i for i, image_id in enumerate(self.image_ids, start)}
        records = (
            dataclasses.replace(record, image_id=new[record.image_id])
            for record in self._records
        )
        problems = (
            dataclasses.replace(
                problem, image_ids=tuple(new[i] for i in problem.image_ids if i in new)
            )
            for problem in self._problems
        )
        return self._with(records, problems=problems)

    def summary(self) -> str:
        """Returns a text to print: the images, their sizes, and the boxes per class."""
        records, names = self._records, self._class_names
        labels, area = concat_field(records, "labels"), concat_field(records, "area")
        crowd = int(concat_field(records, "is_crowd").sum())
        empty = sum(not len(record.labels) for record in records)
        small, large = int((area < _SMALL).sum()), int((area >= _LARGE).sum())
        lines = [
            f"{count_of(len(records), 'image')} of {_sizes(records)}",
            f"{count_of(empty, 'image')} without objects",
            f"{count_of(len(labels), 'box', 'boxes')}: {small:,} small, "
            f"{len(labels) - small - large:,} medium, {large:,} large "
            "(by area: below 32x32, below 96x96 pixels)",
            f"{crowd:,} of them crowd or difficult: not trained on",
        ]
        boxes = boxes_per_class(self)
        images = collections.Counter(i for r in records for i in np.unique(r.labels))
        width = max(len(name) for name in (*names, "class"))
        lines.append(f"{'class':<{width}}  {'boxes':>6}  {'images':>6}")
        for i, name in enumerate(names):
            lines.append(f"{name:<{width}}  {boxes[i]:>6,}  {images[i]:>6,}")
        return printable("\n".join(lines))

    def to_coco(self) -> dict[str, Any]:
        """Returns the annotations in COCO's format, as a dict for `json.dump`.

        Boxes, areas, crowd flags and ids are exactly those of the file that was read,
        so COCO's evaluation gives the same result with both.

        Returns:
            Dict with the keys "info", "images", "annotations" and "categories".

        Raises:
            ValueError: If a label does not belong to a class.
        """
        images, annotations = [], []
        for record in self._records:
            height, width = map(int, record.image_size)
            image = {"id": record.image_id, "file_name": record.file_name}
            images.append({**image, "height": height, "width": width})
            annotations += record.to_coco(self._category_ids)
        pairs = zip(self._category_ids, self._class_names)
        return {
            "info": {},  # some versions of pycocotools fail without it
            "images": images,
            "annotations": annotations,
            "categories": [{"id": i, "name": name} for i, name in pairs],
        }

    def batches(
        self,
        batch_size: int,
        *,
        image_size: int | tuple[int, int] = 512,
        training: bool = False,
        seed: int | None = None,
        shuffle: bool | None = None,
        flip_probability: float = 0.5,
        scale_jitter: tuple[float, float] = (0.1, 2.0),
        target_size: int | tuple[int, int] | None = None,
        augment: Augmentation | Callable | Sequence | None = None,
        pad_value: Sequence[float] = (123.675, 116.28, 103.53),
        resize_method: str = "half_pixel",
        max_boxes: int | None = None,
        drop_remainder: bool | None = None,
        share: tuple[int, int] | None = None,
        masks: bool | None = None,
        balance: float | Literal["auto"] | None = None,
    ) -> Any:
        """Makes the `tf.data.Dataset` that `fit`, `evaluate` and `predict` take.

        With `training=True`, each image is flipped from left to right with the
        probability `flip_probability`, scaled by a random factor, and cropped or
        padded. Each epoch has a new order. With `training=False`, images come in the
        order of the dataset and are letterboxed: they are scaled to fit, placed at the
        top left, and padded. In both cases, images without objects are kept, and
        crowds are left out.

        An image may be unreadable, or its size may differ from the annotated size. With
        `training=True`, the next image is used in its place. With `training=False`, it
        counts as an image without objects, with an `image_scale` of 0. At the end of
        each pass, a line on standard error counts and names such images.

        Args:
            batch_size: int, images per batch, summed over all processes.
            image_size: `(height, width)` of the batch in pixels, or one int for both.
            training: bool, whether to augment the images.
            seed: int. The same seed gives the same batches, epoch by epoch. None draws
                one from NumPy's global state, which `keras.utils.set_random_seed` sets.
            shuffle: bool, whether each epoch has a new order. None shuffles only in
                training.
            flip_probability: float in [0, 1], used in training only.
            scale_jitter: pair of floats, the lowest and the highest factor on
                `target_size`, used in training only. `(1, 1)` turns it off.
            target_size: `(height, width)` in pixels, or one int for both, the size that
                `scale_jitter` multiplies. None means `image_size`.
            augment: `ek.augment.Augmentation`, a function `(example, seed) -> example`,
                or a list of these; for training only. It changes the whole image, in
                its original pixels, before flip and scale jitter. An augmentation of
                several images, such as `Mosaic`, takes the others from this dataset.
            pad_value: three numbers from 0 to 255, the RGB color of the padding. The
                default is the ImageNet mean, which the models' normalization maps to
                zero.
            resize_method: "half_pixel" or "asymmetric", see `EfficientDetConfig`.
            max_boxes: int, the rows of `boxes` and `labels` in every batch. None pads
                each batch to its image with the most boxes. On JAX and on TPUs, None
                pads further, to a multiple of the most boxes that any image can have
                (of 512 if that is less), because XLA compiles a step for each number
                of rows. In several processes, None means the most boxes that any image
                can have.
            drop_remainder: bool, whether to leave out a last batch that is not full.
                None leaves it out only in training, and never if it is the only batch.
            share: `(index, count)` for training in `count` processes: this process
                reads part `index` of each batch, and all parts together are the batch
                that a single process would read. None takes these numbers from
                `multiprocess.start` in training, and reads whole batches otherwise.
            masks: bool, whether the ground truth has `masks`. None includes them if the
                dataset has masks.
            balance: float in (0, 1], "auto" or None. In training, images of rare
                classes come more often, and other images less often; the length of an
                epoch stays the same. A class is rare if the share of images that
                contain it is below this number, such as 0.3. "auto" takes the median
                of the shares of all classes. How often an image comes is proportional
                to `sqrt(balance / share)` for the `share` of its rarest class, or to 1
                if that is larger (docs/data.md). None takes each image once.

        Returns:
            `tf.data.Dataset` of known length, with elements `(images, truth)`. If
            TensorFlow is not installed, a `keras.utils.PyDataset` with the same
            elements as NumPy arrays. `images` is float32 `[B, height, width, 3]`, from
            0 to 255. `truth` is a dict of

            - `boxes`: float32 `[B, M, 4]`, `yxyx` in pixels of `images`, zero in unused
              rows;
            - `labels`: int32 `[B, M]`, -1 in unused rows;
            - `image_id`: int64 `[B]`;
            - `image_scale`: float32 `[B]`. Without `training`, boxes times
              `image_scale` are in pixels of the original image;
            - `masks`, if requested: uint8 `[B, height, width]`, 255 in the padding.

        Raises:
            ValueError: If the dataset is empty, if a label does not belong to a class,
                if an image has more boxes than `max_boxes`, if some images have no
                mask although `masks` are read, or if an argument is out of range.
                `fit` raises it if no image can be read, or if a function in `augment`
                returns an invalid example.
            TypeError: If `augment` is none of the kinds above.
            ImportError: If `augment` needs TensorFlow, which is not installed.
        """
        # A label of -1 would be taken for an unused row, and its box for background.
        check_labels(self._records, self.num_classes)
        if share is None:
            processes = current_processes()
            share = (processes.index, processes.count) if training else (0, 1)
        if seed is None and share[1] > 1:  # all processes need the same order
            seed = current_processes().gather(np.random.randint(2**31))[0]
        from effdet_keras.data.pipeline.batches import make_batches
        from effdet_keras.data.pipeline.image_reader import ImageReader

        seg_class_names = self._seg_names_of_batches(masks)
        return make_batches(
            ImageReader(self, replace=training, seg_class_names=seg_class_names),
            batch_size,
            image_size=image_size,
            training=training,
            seed=seed,
            shuffle=shuffle,
            flip_probability=flip_probability,
            scale_jitter=scale_jitter,
            target_size=target_size,
            pad_value=pad_value,
            resize_method=resize_method,
            max_boxes=max_boxes,
            drop_remainder=drop_remainder,
            augment=augment,
            share=share,
            balance=balance,
        )

    def _seg_names_of_batches(self, masks):
        """Returns the segmentation class names, or None for batches without masks."""
        if masks is False or (masks is None and self.seg_class_names is None):
            return None
        lacking = [record.name for record in self._records if not record.has_mask]
        rule = (
            "Segmentation needs a mask for each image: `from_coco(..., masks=True)` "
            "draws them of objects, `dataset.with_masks(folder, names)` takes files"
        )
        is_right = self.seg_class_names is not None and not lacking
        require(is_right, rule, images_without=len(lacking), first=lacking[:1])
        return self.seg_class_names


def _with_own_annotation_ids(records):
    """Returns the records, with annotation ids from 1 on if two of them are equal."""
    ids = concat_field(records, "annotation_ids")
    if len(np.unique(ids)) == len(ids):
        return records
    ends = np.cumsum([len(record.labels) for record in records])
    return [
        dataclasses.replace(
            record, annotation_ids=np.arange(end - len(record.labels), end) + 1
        )
        for record, end in zip(records, ends)
    ]


def checked_class_names(names: Iterable[str], source: str) -> tuple[str, ...]:
    """Returns class names as a tuple of str, after checking them.

    Args:
        names: iterable of str, in the order of the labels. Numbers become text.
        source: str, the name of the argument or file, for the error.

    Raises:
        TypeError: If `names` is one string, whose letters would become classes; a set,
            which has no order; a dict from numbers; or has entries that are no names.
        ValueError: If a name repeats or is blank, see `check_class_names`.
    """
    rule = f"{source} must be a sequence of names, such as [{names!r}]"
    require(not isinstance(names, str), rule, InvalidTypeError, value=names)
    rule = (
        f"{source} must be a sequence of names in the order of the labels, such as "
        "['cat', 'dog']. Ids of an annotation file go into `category_ids`"
    )
    require(
        not isinstance(names, (set, frozenset)), rule, InvalidTypeError, value=names
    )
    # The keys of a dict from names are names; those of a dict from numbers are not.
    kinds = str if isinstance(names, Mapping) else (str, numbers.Number)
    given, names = names, tuple(names)
    are_names = all(isinstance(name, kinds) for name in names)
    require(are_names, rule, InvalidTypeError, value=given)
    names = tuple(map(str, names))
    check_class_names(names, source)
    return names


def check_class_names(names: Iterable[str], source: str) -> None:
    """Raises ValueError if two classes have the same name, or a name is blank."""
    uses = collections.Counter(names)
    wrong = [name for name, count in uses.items() if count > 1 or not name.strip()]
    if wrong:
        raise InvalidValueError(
            "Names of classes must differ from each other, and none may be blank. "
            f"Received: {source} with {', '.join(map(repr, wrong[:5]))}. Rename them."
        )


def _shortened(names):
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


_SMALL, _LARGE = 32**2, 96**2  # square pixels: COCO's limits of "small" and "large"


def _sizes(records):
    sizes = {tuple(record.image_size) for record in records}
    if len(sizes) <= 1:
        shown = " ".join(f"{height}x{width}" for height, width in sizes)
        return f"{shown or 'no size'} (height x width)"
    (top, left), (bottom, right) = np.min([*sizes], axis=0), np.max([*sizes], axis=0)
    return f"{len(sizes):,} sizes, {top} to {bottom} high, {left} to {right} wide"


def boxes_per_class(dataset, *, crowds=True):
    """Returns the number of boxes per class, int `[C]`, without invalid labels."""
    labels = concat_field(dataset.records, "labels")
    known = (labels >= 0) & (labels < dataset.num_classes)
    if not crowds:
        known &= ~concat_field(dataset.records, "is_crowd")
    return np.bincount(labels[known], minlength=dataset.num_classes)


def require_boxes(records: Sequence[Record], what: str) -> None:
    """Raises ValueError if no image has an object, apart from crowds.

    Training on such images would run to its end and learn that there are no objects.
    Single images without objects are fine.

    Args:
        records: sequence of `Record`.
        what: str, the name of the images in the message.
    """
    reason = why_nothing_to_learn(records)
    if reason is not None:
        raise InvalidValueError(
            f"There is nothing to learn from {what} of "
            f"{count_of(len(records), 'image')}: {reason}. `effdet-keras inspect DATA` "
            "shows what was read."
        )


def why_nothing_to_learn(records: Sequence[Record]) -> str | None:
    """Explains why no image has an object to train on; returns None if one has."""
    if any(len(r.labels) and not np.all(r.is_crowd) for r in records):
        return None
    crowds = sum(len(record.labels) for record in records)
    if not crowds:
        return "none of them has a box, as if the annotations had not been found"
    return (
        f"all {count_of(crowds, 'box', 'boxes')} are crowds or difficult, which are "
        "not trained on: `dataset.with_crowds_as_objects()` (--set "
        "train_on_crowds=true) makes objects of them"
    )


def count_of(number, singular, plural=None):
    """Writes a number with its noun: "1 box", "1,200 boxes"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


# --- What to expect from training on few images, or on few boxes of a class.

_FEW_IMAGES = 40
_FEW_BOXES = 10  # per class


def what_to_expect(dataset: DetectionDataset) -> list[str]:
    """Returns one sentence if images are few, one if classes have few boxes."""
    sentences = []
    if 0 < len(dataset) < _FEW_IMAGES:
        sentences.append(
            f"Only {count_of(len(dataset), 'image')}: expect AP to differ from one "
            "training or split to the next. More images help most."
        )
    counts = boxes_per_class(dataset, crowds=False)
    few = [i for i in np.argsort(counts, kind="stable") if counts[i] < _FEW_BOXES]
    if few and len(dataset):
        named = _shortened([f"'{dataset.class_names[i]}' ({counts[i]})" for i in few])
        sentences.append(
            f"Fewer than {_FEW_BOXES} boxes of {named}: expect the detector to miss "
            "such objects or confuse them."
        )
    return sentences
