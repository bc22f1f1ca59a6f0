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


def require_calibration(model, target, calibration):
    """Refuses int8 without images to calibrate with, where the ranges are not learned.

    Args:
        model: `EfficientDet`.
        target: string, its name.
        calibration: what was given as such.

    Raises:
        ValueError: If it is None, and the model is not quantization-aware.
    """
    if calibration is None and model.quantization is None:
        raise InvalidValueError(
            f"`target={target!r}` is int8, which needs images of the kind the model "
            "will see, to find the range of every activation. Received: "
            "calibration=None. Give a dataset, a folder or a list of images, such as "
            "`calibration=train`; or train the model with `quantize_aware`."
        )


def class_names_of(model):
    """The names of a model's classes, or their numbers where they have no names."""
    names = model.class_names
    return tuple(names or (str(i) for i in range(model.num_classes)))
