"""In half precision, what compares and adds up numbers is in float32."""

import keras
import pytest
from support.tiny import batch, tiny_model

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching


def dtypes_of(tensors):
    kinds = {keras.backend.standardize_dtype(x.dtype) for x in tensors}
    return {kind for kind in kinds if "float" in kind}


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_matching_losses_and_detections_are_float32(dtype):
    seen = {}

    class Loss(DetectionLoss):
        def __call__(self, class_targets, box_targets, *outputs, **options):
            terms = super().__call__(class_targets, box_targets, *outputs, **options)
            seen["outputs"], seen["losses"] = outputs, terms.values()
            return terms

    class Matching(IoUMatching):
        def __call__(self, boxes, labels, anchors, config):
            targets = super().__call__(boxes, labels, anchors, config)
            seen["matching"] = (boxes, anchors, *targets)
            return targets

    model = tiny_model(dtype=dtype)
    model.compile("sgd", loss=Loss(), matching=Matching(), run_eagerly=True)
    images, truth = batch()
    outputs = model(images)
    loss = model.compute_loss(images, truth, outputs)
    assert dtypes_of([loss, *outputs.values()]) == {"float32"}
    for name, tensors in seen.items():
        assert dtypes_of(tensors) == {"float32"}, name
    assert dtypes_of(model.detect_outputs(outputs).values()) == {"float32"}
    assert dtypes_of(model.weights) == {"float32"}
    half = dtype.removeprefix("mixed_")
    blocks = [x for x in model._flatten_layers() if type(x).__name__ == "MBConv"]
    assert {block.compute_dtype for block in blocks} == {half}
    again = EfficientDet.from_config(model.get_config())
    assert again.get_layer("fpn_cells").compute_dtype == half


def test_the_loss_scale_begins_where_it_should():
    model = tiny_model(dtype="mixed_float16")
    model.compile("adamw", loss_scale=128.0)
    assert float(model.optimizer.dynamic_scale) == 128.0
    again = tiny_model(dtype="mixed_float16")
    again.compile_from_config(model.get_compile_config())
    assert float(again.optimizer.dynamic_scale) == 128.0
    model.compile("adamw")
    assert float(model.optimizer.dynamic_scale) == 32768.0
    with pytest.raises(
        ValueError, match="`loss_scale` is only for models .*mixed_float1"
    ):
        tiny_model().compile(loss_scale=128.0)
