"""What is in a dataset, as a text."""

import numpy as np

from effdet_keras.data.record import count_unusable

_SMALL, _LARGE = 32**2, 96**2  # square pixels: COCO's borders


def summarize(records, class_names):
    """Returns the text of `DetectionDataset.summary`."""
    labels = _joined([record.labels for record in records], np.int32)
    area = _joined([record.area for record in records], np.float64)
    crowd = int(_joined([record.is_crowd for record in records], bool).sum())
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
    outside = int(count_unusable(records).sum())
    if outside:
        lines.append(f"{outside:,} of them without area: not trained on")
    return "\n".join(lines + _table(records, labels, class_names))


def _table(records, labels, class_names):
    boxes = np.bincount(labels, minlength=len(class_names))
    images = np.zeros(len(class_names), np.int64)
    for record in records:
        images[np.unique(record.labels)] += 1
    width = max(len(name) for name in (*class_names, "class"))
    lines = [f"{'class':<{width}}  {'boxes':>6}  {'images':>6}"]
    for name, box_count, image_count in zip(class_names, boxes, images):
        lines.append(f"{name:<{width}}  {box_count:>6,}  {image_count:>6,}")
    return lines


def _sizes(records):
    if not records:
        return "no size"
    sizes = sorted({tuple(record.image_size) for record in records})
    if len(sizes) == 1:
        height, width = sizes[0]
        return f"{height}x{width} (height x width)"
    low, high = np.min(sizes, axis=0), np.max(sizes, axis=0)
    return (
        f"{len(sizes):,} sizes, {low[0]} to {high[0]} high, {low[1]} to {high[1]} wide"
    )


def _joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype), *arrays])


def count_of(number, singular, plural=None):
    """Writes a number with its noun: "1 box", "1,200 boxes"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
