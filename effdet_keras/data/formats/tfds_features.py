"""`features.json`: how TensorFlow Datasets is told what an example holds."""


def describe_features(num_classes):
    """Returns the features of an annotated image, as TFDS has COCO's.

    Args:
        num_classes: int.

    Returns:
        Dict, the content of `features.json`.

    Example:
        >>> content = describe_features(3)["featuresDict"]["features"]
        >>> sorted(content)
        ['image', 'image/filename', 'image/id', 'objects']
    """
    label = {"classLabel": {"numClasses": str(num_classes)}}
    box = {"bboxFormat": "REL_YXYX", "dtype": "float32", "shape": _shape(4)}
    objects = {
        "area": _number("float32"),
        "bbox": _feature("bounding_boxes.BBoxFeature", {"boundingBox": box}),
        "id": _number("int64"),
        "is_crowd": _number("bool"),
        "label": _feature("class_label_feature.ClassLabel", label),
    }
    sequence = {"sequence": {"feature": _features(objects), "length": "-1"}}
    image = {"image": {"dtype": "uint8", "shape": _shape(-1, -1, 3)}}
    return _features(
        {
            "image": _feature("image_feature.Image", image),
            "image/filename": _feature("text_feature.Text", {"text": {}}),
            "image/id": _number("int64"),
            "objects": _feature("sequence_feature.Sequence", sequence),
        }
    )


def _features(features):
    content = {"featuresDict": {"features": features}}
    return _feature("features_dict.FeaturesDict", content)


def _number(dtype):
    tensor = {"dtype": dtype, "encoding": "none", "shape": {}}
    return _feature("tensor_feature.Tensor", {"tensor": tensor})


def _feature(name, content):
    return {"pythonClassName": f"tensorflow_datasets.core.features.{name}", **content}


def _shape(*sides):
    return {"dimensions": [str(side) for side in sides]}
