"""In half precision, what compares and adds up numbers is in float32."""

import shutil

import keras
import pytest
from support.tiny import batch, tiny_model

from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.data import from_arrays
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.optimizers import steps_done
from effdet_keras.weights.archive import read_archive_info


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


@pytest.mark.slow_elsewhere
def test_a_resumed_schedule_has_the_length_of_the_training_with_omitted_steps(tmp_path):
    """Steps whose gradients overflowed are not counted by the optimizer."""

    def fit(model, folder):
        images, truth = batch(8)
        data = images.astype("uint8"), truth["boxes"], truth["labels"]
        dataset = from_arrays(*data, model.class_names)
        batches = model.batches(dataset, 2, training=True, seed=3)
        archive = CheckpointArchive(folder, None, verbose=False)

        def copy(epoch, logs):
            if epoch == 1 and not (tmp_path / "rest").exists():
                (tmp_path / "rest").mkdir()
                shutil.copy(folder / "last.keras", tmp_path / "rest")

        copying = keras.callbacks.LambdaCallback(on_epoch_begin=copy)
        model.fit(batches, epochs=3, callbacks=[archive, copying], verbose=0)
        return model.optimizer.inner_optimizer._learning_rate.total_steps

    model = tiny_model(dtype="mixed_float16")
    # The first step overflows. The scale is halved then, so the others may, too.
    model.compile("momentum", loss_scale=2.0**30, run_eagerly=True)
    assert fit(model, tmp_path / "whole") == 12
    position = read_archive_info(tmp_path / "rest" / "last.keras")["training_position"]
    assert position["omitted_steps"] == 4 - position["total_steps"] > 0
    rest = EfficientDet.from_archive(tmp_path / "rest", resume=True)
    assert fit(rest, tmp_path / "rest") == 12
    omitted = read_archive_info(tmp_path / "rest" / "last.keras")["training_position"]
    assert omitted["omitted_steps"] == 12 - steps_done(rest.optimizer)
