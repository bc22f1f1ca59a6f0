"""A model takes the class names and category ids of the dataset it is trained on."""

from __future__ import annotations

import warnings
from typing import Any

from effdet_keras.category_ids import category_ids_or_default, extend_category_ids
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.mask import BACKGROUND_NAME
from effdet_keras.data.pipeline.image_reader import readers_of


def adopt_classes(model: Any, data: Any) -> None:
    """Gives a model the category ids of its dataset, and names where it has none.

    Names of the classes of pixels as well, where it has a segmentation head. Where
    the data has none, they may be those of the model's objects.

    Nothing changes where the model has `category_ids`, where the data does not tell
    its own, or where the classes of both differ.

    Args:
        model: `EfficientDet`.
        data: `DetectionDataset`, batches of one, or anything else.
    """
    _adopt_seg_class_names(model, data)
    classes = [data] if isinstance(data, DetectionDataset) else readers_of(data)
    known = {(tuple(c.class_names), _ids(c)) for c in classes}
    if model.category_ids is not None or len(known) != 1:
        return
    ((names, ids),) = known
    if ids is None:
        return
    if model.class_names is None:
        if len(names) == model.num_classes:
            model.class_names, model.category_ids = names, ids
        return
    if tuple(model.class_names) == names:
        model.category_ids = ids
        return
    id_of = dict(zip(names, ids))
    default = dict(
        zip(model.class_names, category_ids_or_default(None, model.num_classes))
    )
    is_part = set(names) <= set(default)
    if is_part and any(default[name] != id_of[name] for name in names):
        model.category_ids = tuple(extend_category_ids(model.class_names, id_of))


def _adopt_seg_class_names(model, data):
    sources = [data] if isinstance(data, DetectionDataset) else readers_of(data)
    known = {source.seg_class_names for source in sources} - {None}
    config = model.config
    if not config.has_segmentation or model.seg_class_names is not None:
        return
    if not known and config.has_detection:
        _name_by_objects(model)
    elif len(known) == 1 and len(names := known.pop()) == config.seg_num_classes:
        model.seg_class_names = names


def _name_by_objects(model):
    """Names the classes of pixels as masks that are drawn of objects have them."""
    names = (BACKGROUND_NAME, *(model.class_names or ()))
    if len(names) == model.config.seg_num_classes > 1:
        model.seg_class_names = names
        warnings.warn(
            "The ground truth does not name the classes of its masks. They are taken "
            f"to be {names}, as where masks are drawn of objects. If they are others, "
            "set `model.seg_class_names`.",
            stacklevel=4,
        )


def _ids(classes):
    ids = getattr(classes, "category_ids", None)
    return None if ids is None else tuple(ids)
