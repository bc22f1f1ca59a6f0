"""What several targets ask of a model, and the label files that they read."""

from effdet_keras.errors import InvalidValueError


def require_detection_alone(model, target):
    """Refuses a segmentation head, where a target knows the four outputs only.

    Args:
        model: `EfficientDet`.
        target: string, its name.

    Raises:
        ValueError: If the model has another head than that of detection.
    """
    if model.config.has_segmentation or not model.config.has_detection:
        raise InvalidValueError(
            f"`target={target!r}` takes models that detect and nothing else. Received: "
            f"heads={model.config.heads!r}. Train one with heads='object_detection', "
            "or export with `format='litert'`."
        )


def class_names_of(model):
    """The names of a model's classes, or their numbers where they have no names."""
    names = model.class_names
    return tuple(names or (str(i) for i in range(model.num_classes)))
