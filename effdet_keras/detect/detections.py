"""`Detections`: the objects found in one image, in pixels of that image."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from effdet_keras import images
from effdet_keras._internal.number_ranges import check_number
from effdet_keras._internal.optional_imports import pyplot
from effdet_keras._internal.whole_files import atomic_write, local_path
from effdet_keras.box_ops import yxyx_to_xywh, yxyx_to_xyxy
from effdet_keras.errors import InvalidTypeError, printable, require
from effdet_keras.labels import category_ids_or_default

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_NOTEBOOK_SIDE = 400  # pixels: a notebook shows smaller images enlarged
_SHOWN = 20  # the most objects that the text lists
_ARRAYS = ("boxes", "scores", "labels")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Detections:
    """The objects found in one image, in descending order of their scores.

    The fields are NumPy arrays, with class names and the image if they are known.
    Indexing with an integer, a slice, a list or a mask returns `Detections` again.
    Iterating yields one `Detections` per object.

    Args:
        boxes: float array `[n, 4]`, `yxyx` in pixels of the original image.
        scores: float array `[n]`, 0 to 1.
        labels: int array `[n]`, `0 .. C-1`.
        class_names: class names in the order of the labels, or `None`.
        category_ids: category ids of the annotation files, one per label. With `None`,
            label `i` has the id `i + 1`.
        image: uint8 array `[H, W, 3]`; or the path of an image file, which is read
            when the image is needed; or `None`.
        image_id: int, for COCO records, or `None`. For a frame of a video it is the
            number of the frame.
        class_map: uint8 array `[H, W]`, the class of each pixel of the original image,
            if the model has a segmentation head; else `None`.
        seg_class_names: names of the segmentation classes, or `None`.
        track_ids: int array `[n]`, the number of each object in a video, from 1. An
            object that has been seen only once so far has -1. `None` if objects are
            not tracked.

    Raises:
        ValueError: If the lengths differ, or a label has no class name or no category
            id.

    Example:
        >>> found = Detections(
        ...     boxes=np.array([[10, 20, 60, 50], [0, 0, 5, 5]]),
        ...     scores=np.array([0.9, 0.4]), labels=np.array([1, 0]),
        ...     class_names=("cat", "dog"))
        >>> found
        2 detections: 1 dog, 1 cat
          dog  0.90  y 10.0 to 60.0, x 20.0 to 50.0
          cat  0.40  y 0.0 to 5.0, x 0.0 to 5.0
        >>> found.filter(score=0.5).names
        ('dog',)
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...] | None = None
    category_ids: tuple[int, ...] | None = None
    image: ArrayLike | str | os.PathLike[str] | None = None
    image_id: int | None = None
    class_map: np.ndarray | None = None
    seg_class_names: tuple[str, ...] | None = None
    track_ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        boxes = np.asarray(self.boxes, "float32").reshape(-1, 4)
        scores = np.asarray(self.scores, "float32").reshape(-1)
        labels = np.asarray(self.labels).astype("int32").reshape(-1)
        rule = "`boxes`, `scores` and `labels` must have the same length"
        sizes = {"boxes": len(boxes), "scores": len(scores), "labels": len(labels)}
        require(len(set(sizes.values())) == 1, rule, **sizes)
        changed = {"boxes": boxes, "scores": scores, "labels": labels}
        if self.track_ids is not None:
            track_ids = np.asarray(self.track_ids).astype("int64").reshape(-1)
            rule = "`track_ids` must have one number for each box"
            received = {"boxes": len(boxes), "track_ids": len(track_ids)}
            require(len(track_ids) == len(boxes), rule, **received)
            changed["track_ids"] = track_ids
        for name in ("class_names", "category_ids"):
            values = getattr(self, name)
            if values is None:
                continue
            is_right = len(values) or not len(labels)
            rule = f"`{name}` must have an entry for each label, or be None"
            require(is_right, rule, **{name: values, "labels": len(labels)})
            low, high = labels.min(initial=0), labels.max(initial=0)
            is_right = not len(labels) or 0 <= low <= high < len(values)
            rule = (
                f"`labels` must be at least 0 and below {len(values)}, the number of "
                f"entries of `{name}`"
            )
            require(is_right, rule, labels=(int(low), int(high)))
            changed[name] = tuple(values)
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Any) -> Detections:
        if isinstance(index, (int, np.integer)):
            index = [index]
        arrays = {name: getattr(self, name)[index] for name in _ARRAYS}
        if self.track_ids is not None:
            arrays["track_ids"] = self.track_ids[index]
        return dataclasses.replace(self, **arrays)

    def __iter__(self) -> Iterator[Detections]:
        return (self[i] for i in range(len(self)))

    @property
    def names(self) -> tuple[str, ...]:
        """The class name of each object, or its label as text without class names."""
        if self.class_names is None:
            return tuple(str(label) for label in self.labels.tolist())
        return tuple(self.class_names[label] for label in self.labels.tolist())

    def filter(
        self, score: float = 0.0, classes: Sequence[str | int] | None = None
    ) -> Detections:
        """Keeps the objects with a score of at least `score`.

        Args:
            score: float, 0 to 1.
            classes: names or labels to keep, or `None` for all.

        Raises:
            ValueError: If `score` is not between 0 and 1, or one of `classes` is not
                among the class names.
            TypeError: If `classes` is a single string.
        """
        check_number("score", score, "[0, 1]")
        keep = self.scores >= score
        if classes is not None:
            keep &= np.isin(self.labels, labels_of_classes(classes, self.class_names))
        return self[keep]

    def draw(self, *, min_side: int | None = None) -> np.ndarray:
        """Draws the objects, and the class map if there is one, on a copy of the image.

        Args:
            min_side: int, pixels, or `None`. An image whose longer side is shorter is
                first enlarged 2, 3, ... times, so that class names have room. With
                `None` the result has the size of the image.

        Returns:
            uint8 array `[H, W, 3]`.

        Raises:
            ValueError: If there is no image.
        """
        from effdet_keras.visualize import draw_boxes, draw_class_map

        image = self.load_image()
        if self.class_map is not None:
            image = draw_class_map(image, self.class_map, self.seg_class_names)
        if self.track_ids is None:
            arrays = self.boxes, self.labels, self.scores
            return draw_boxes(image, *arrays, self.class_names, min_side=min_side)
        # Each tracked object has its own color, and shows its track id instead of a
        # score. Track ids are used as labels. Objects without a track id get the labels
        # after the last track id, one per class.
        behind = int(self.track_ids.max(initial=0)) + 1
        is_known = self.track_ids >= 0
        labels = np.where(is_known, self.track_ids, behind + self.labels)
        words = [""] * (int(labels.max(initial=0)) + 1)
        for label, name, known in zip(labels.tolist(), self.names, is_known):
            words[label] = f"{name} #{label}" if known else name
        return draw_boxes(image, self.boxes, labels, None, words, min_side=min_side)

    def crops(self) -> list[np.ndarray]:
        """Crops each object out of the image.

        Returns:
            List of uint8 arrays `[h, w, 3]`. Each is the box, enlarged to whole pixels
            and clipped to the image. A box without area in the image gives an array
            without pixels.

        Raises:
            ValueError: If there is no image.
        """
        image = self.load_image()
        height, width = image.shape[:2]
        low = np.clip(np.floor(self.boxes[:, :2]), 0, (height, width)).astype(int)
        high = np.clip(np.ceil(self.boxes[:, 2:]), 0, (height, width)).astype(int)
        return [image[y0:y1, x0:x1] for (y0, x0), (y1, x1) in zip(low, high)]

    def load_image(self) -> np.ndarray:
        """Returns the image, uint8 `[H, W, 3]`, and reads it if `image` is a path.

        Raises:
            ValueError: If there is no image.
        """
        rule = (
            "These detections do not know their image: set it with "
            "`dataclasses.replace(found, image=...)`"
        )
        require(self.image is not None, rule, image=None)
        if isinstance(self.image, (str, os.PathLike)):
            return images.read_image(self.image)
        return np.asarray(self.image)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Shows the image with matplotlib, in a notebook or a window.

        Args:
            axes: matplotlib axes to draw into; `None` creates a new figure.

        Returns:
            The axes.

        Raises:
            ImportError: If matplotlib is not installed.
            ValueError: If there is no image.
        """
        pyplot.require("`plot` (but not `save(path)`, which writes a file)")
        image = self.draw()
        if axes is None:
            height, width = image.shape[:2]
            scale = 10 / max(height, width)
            size = (width * scale, height * scale)
            axes = pyplot.figure(figsize=size, layout="constrained").add_subplot()
        axes.imshow(image)
        axes.set_axis_off()
        return axes

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the image with its boxes to a file.

        An interrupted call leaves no incomplete file at `path`.

        Args:
            path: path of the file. Its ending determines the format, such as `.jpg`.

        Returns:
            The path, a string.

        Raises:
            ValueError: If there is no image, Pillow does not know the ending, or
                `path` is not on this machine.
        """
        path = local_path(path, "`path`")
        image_format = images.image_format_of(path, "`path`")
        image = Image.fromarray(self.draw())
        options = {"quality": 92} if image_format == "JPEG" else {}
        with atomic_write(path) as partial, open(partial, "wb") as file:
            image.save(file, format=image_format, **options)
        return os.fspath(path)

    def to_coco(self) -> list[dict[str, Any]]:
        """Returns the objects as records of a COCO results file.

        Each record is a dict of `image_id`, `category_id`, `bbox` (`xywh` in pixels of
        the image) and `score`, all plain Python numbers. If objects are tracked in a
        video, it also has `track_id`. Without `category_ids` the category id is the
        label plus 1, as in a dataset that does not define ids.

        Raises:
            ValueError: If `image_id` is not set.
        """
        rule = (
            "COCO records need an image id: set it with `dataclasses.replace(found, "
            "image_id=...)`"
        )
        require(self.image_id is not None, rule, image_id=None)
        num_classes = self.labels.max(initial=-1) + 1
        ids = category_ids_or_default(self.category_ids, num_classes)
        boxes_xywh = yxyx_to_xywh(self.boxes).tolist()
        keys = "image_id", "category_id", "bbox", "score"
        records = [
            dict(zip(keys, (int(self.image_id), ids[label], box, score)))
            for label, box, score in zip(self.labels, boxes_xywh, self.scores.tolist())
        ]
        if self.track_ids is not None:
            for record, track_id in zip(records, self.track_ids.tolist()):
                record["track_id"] = track_id
        return records

    def to_supervision(self) -> dict[str, Any]:
        """Returns the arguments of `supervision.Detections`.

        They are used like this:

            supervision.Detections(**detections.to_supervision())

        Returns:
            Dict of `xyxy` float32 `[n, 4]` in pixels of the image, `confidence` float32
            `[n]`, `class_id` int64 `[n]` and `data`, a dict with `class_name` `[n]`. If
            objects are tracked in a video, the dict also has `tracker_id` int64 `[n]`.

        Example:
            >>> found = Detections([[10, 20, 60, 50]], [0.5], [1])
            >>> found.to_supervision()["xyxy"].tolist()
            [[20.0, 10.0, 50.0, 60.0]]
        """
        tracks = {} if self.track_ids is None else {"tracker_id": self.track_ids.copy()}
        return {
            **tracks,
            "xyxy": yxyx_to_xyxy(self.boxes),
            "confidence": self.scores.copy(),
            "class_id": self.labels.astype("int64"),
            "data": {"class_name": np.array(self.names, dtype=str)},
        }

    def __repr__(self) -> str:
        names = self.names
        counts = {name: names.count(name) for name in dict.fromkeys(names)}
        total = ", ".join(f"{count} {name}" for name, count in counts.items())
        lines = [f"{len(self)} detection{'' if len(self) == 1 else 's'}"]
        lines[0] += f": {total}" if total else ""
        width = max((len(name) for name in names), default=0)
        rows = list(zip(names, self.scores, self.boxes.tolist()))
        for name, score, (y_min, x_min, y_max, x_max) in rows[:_SHOWN]:
            lines.append(
                f"  {name:<{width}}  {score:.2f}  y {y_min:.1f} to {y_max:.1f}, "
                f"x {x_min:.1f} to {x_max:.1f}"
            )
        if len(self) > _SHOWN:
            lines.append(f"  ... and {len(self) - _SHOWN} more")
        if self.class_map is not None:
            shares = self.pixel_shares().items()
            shown = ", ".join(f"{name} {share:.0%}" for name, share in shares)
            lines.append(f"pixels: {shown}")
        return printable("\n".join(lines))

    def pixel_shares(self) -> dict[str, float]:
        """Returns the share of pixels of each class in the class map.

        Returns:
            Dict from the name of a segmentation class, or "class 3" if there are no
            names, to a float, 0 to 1. The largest share comes first. Classes without
            any pixel are left out.

        Raises:
            ValueError: If there is no class map.

        Example:
            >>> found = Detections([], [], [], class_map=np.uint8([[0, 0, 1, 0]]),
            ...                    seg_class_names=("road", "grass"))
            >>> found.pixel_shares()
            {'road': 0.75, 'grass': 0.25}
        """
        rule = "These detections have no class map: the model has no segmentation head"
        require(self.class_map is not None, rule, class_map=None)
        classes, counts = np.unique(self.class_map, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        names = self.seg_class_names
        return {
            f"class {k}" if names is None else names[k]: count / self.class_map.size
            for k, count in zip(classes[order].tolist(), counts[order].tolist())
        }

    def _repr_png_(self) -> bytes | None:
        """Returns a PNG for notebooks; None without image: they show the text then."""
        if self.image is None:
            return None
        buffer = io.BytesIO()
        Image.fromarray(self.draw(min_side=_NOTEBOOK_SIDE)).save(buffer, format="PNG")
        return buffer.getvalue()


def labels_of_classes(
    classes: Sequence[str | int], class_names: Sequence[str] | None
) -> list[int]:
    """Returns the labels of classes that are given by name or by label.

    Without class names, the names are the labels as text, as in `Detections.names`.

    Raises:
        ValueError: If a class is unknown.
        TypeError: If `classes` is a single string.
    """
    rule = "`classes` must be a sequence of class names or labels"
    require(not isinstance(classes, str), rule, InvalidTypeError, classes=classes)
    if class_names is None:
        rule = (
            "`classes` must be labels (numbers), because the model has no class names"
        )
        for name in classes:
            is_label = isinstance(name, (int, np.integer)) or str(name).isdecimal()
            require(is_label, rule, classes=name)
        return [int(name) for name in classes]
    numbers = range(len(class_names))
    labels = dict(zip(class_names, numbers)) | dict(zip(numbers, numbers))
    rule = f"`classes` must be among the class names {tuple(class_names)}"
    for name in classes:
        require(name in labels, rule, classes=name)
    return [labels[name] for name in classes]
