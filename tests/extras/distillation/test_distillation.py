"""A student that learns what its teacher sees."""

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.data import from_arrays
from effdet_keras.extras.distillation import Distillation, distill
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.resume import TrainingPosition

pytestmark = pytest.mark.tensorflow


def dataset(count=2):
    images, truth = batch(count)
    names = ("cat", "dog", "bird")
    return from_arrays(images.astype("uint8"), truth["boxes"], truth["labels"], names)


def compiled(model, rate=1e-3):
    optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer, clip_norm=None, ema_decay=None, run_eagerly=EAGER)
    return model


def other_than(model, **fields):
    return EfficientDet(model.config.replace(**fields))


@pytest.mark.smoke
def test_the_loss_by_hand():
    teacher = {"class_logits": [[[2.0], [-3.0]]], "box_deltas": [[[0.0] * 4] * 2]}
    student = {
        "class_logits": [[[0.0], [-3.0]]],
        "box_deltas": [[[0.05, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]],
    }
    teacher, student = (
        {name: np.array(value, "float32") for name, value in outputs.items()}
        for outputs in (teacher, student)
    )
    first, second = 1 / (1 + np.exp([-2.0, 3.0]))
    entropy = np.log(2)
    least = -first * np.log(first) - (1 - first) * np.log(1 - first)
    of_class = (first - 0.5) ** 2 * (entropy - least)
    huber = 0.5 * 0.05**2, 0.1 * (1.0 - 0.05)  # below and above delta
    of_box = (first * huber[0] + second * huber[1]) / 4
    expected = (of_class + 50 * of_box) / (first + second + 1)
    assert float(Distillation().distillation_loss(teacher, student)) == pytest.approx(
        expected, rel=1e-4
    )
    assert float(Distillation().distillation_loss(teacher, teacher)) == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.slow  # 17 seconds of training
def test_a_student_comes_nearer_to_its_teacher():
    teacher, student = tiny_model(), compiled(tiny_model())
    kernels = [v for v in teacher.weights if "class-predict/pointwise" in v.path]
    for kernel in kernels:
        kernel.assign(kernel + 1.0)
    before = [ops.convert_to_numpy(v) for v in teacher.weights]
    history = distill(teacher, student, dataset(), batch_size=2, epochs=12, verbose=0)
    losses = history.history["distillation_loss"]
    assert losses[-1] < 0.9 * losses[0]
    for one, other in zip(before, teacher.weights):
        assert np.array_equal(one, ops.convert_to_numpy(other))


def test_the_loss_is_that_of_the_annotations_and_that_of_the_teacher():
    teacher, student = tiny_model(), compiled(tiny_model(), rate=0.0)
    student.set_weights(teacher.get_weights())
    arguments = {"batch_size": 2, "verbose": 0}
    for weight in (1.0, 3.0):
        student = compiled(tiny_model(), rate=0.0)
        student.set_weights(teacher.get_weights())
        history = distill(
            teacher,
            student,
            dataset(),
            weight=weight,
            validation_data=dataset(),
            **arguments,
        ).history
        found = {name: values[0] for name, values in history.items()}
        parts = found["class_loss"] + 50 * found["box_loss"] + found["reg_l2_loss"]
        parts += 4 * found["box_iou_loss"]
        parts += weight * found["distillation_loss"]
        assert found["loss"] == pytest.approx(parts, rel=1e-3)
        alone = found["val_class_loss"] + 50 * found["val_box_loss"]
        alone += found["val_reg_l2_loss"] + 4 * found["val_box_iou_loss"]
        assert found["val_loss"] == pytest.approx(alone, rel=1e-3)
        assert "val_distillation_loss" not in history


class Seen(Exception):
    """Ends a call where it makes its batches."""


def test_batches_are_those_of_fit(monkeypatch):
    """Mosaics depend on the length of the training, a resumed order on its seed."""
    options = []

    def batches(model, data, size, **more):
        options.append({"size": size, **more})
        raise Seen

    monkeypatch.setattr(EfficientDet, "batches", batches)
    student, length = tiny_model(), {"epochs": 60, "steps_per_epoch": 5}
    student.compile()
    student.resume_from(TrainingPosition(epoch=2, total_steps=0, seed=7))
    with pytest.raises(Seen):
        student.fit(dataset(), batch_size=2, **length)
    with pytest.raises(Seen):
        distill(tiny_model(), student, dataset(), batch_size=2, **length)
    assert options[0] == options[1]
    assert options[1]["epochs"] == 60 and options[1]["seed"] == 7


def test_a_teacher_of_another_size_sees_the_student_s_images():
    student = compiled(tiny_model())
    teacher = other_than(student, image_size=96, fpn_num_filters=16)
    history = distill(teacher, student, dataset(), batch_size=2, verbose=0).history
    assert np.isfinite(history["distillation_loss"]).all()
    assert teacher.config.image_size == (96, 96)


@pytest.mark.parametrize(
    "fields",
    [{"num_classes": 4}, {"anchor_scale": 5.0}, {"anchor_order": "aspect_first"}],
)
def test_what_cannot_be_compared_is_refused(fields):
    student = tiny_model()
    (name,) = fields
    with pytest.raises(ValueError, match=f"build the student with {name}="):
        distill(other_than(student, **fields), student, dataset())


def test_other_classes_and_other_data_are_refused():
    student = tiny_model()
    teacher = EfficientDet(student.config, class_names=("dog", "cat", "bird"))
    with pytest.raises(ValueError, match="same classes in the same order"):
        distill(teacher, student, dataset())
    with pytest.raises(TypeError, match="`data` must be"):
        distill(student, student, "DATA")
    with pytest.raises(ValueError, match="`weight` must be a number above 0"):
        distill(student, student, dataset(), weight=0.0)


def test_another_activation_keeps_weights_classes_and_settings():
    model = tiny_model()
    model.compile("adamw", learning_rate=1e-3, run_eagerly=EAGER)
    other = model.with_activation("hard_swish")
    assert other.config == model.config.replace(activation="hard_swish")
    assert other.class_names == model.class_names
    for one, two in zip(model.weights, other.weights):
        assert np.array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(two))
    assert other.settings.recipe.learning_rate == 1e-3
    model.fit(*batch(), batch_size=2, verbose=0)
    again = model.with_activation("relu6")
    assert again.settings.recipe.learning_rate == pytest.approx(1e-4)
    assert again.settings.recipe.optimizer == "adamw"
