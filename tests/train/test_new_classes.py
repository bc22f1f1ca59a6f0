"""`freeze="all-but-new-classes"`: what the detector knew stays, bit by bit."""

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.tiny import EAGER, batch, spread, tiny_model, values

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.auto_recipe import TrainingFacts
from effdet_keras.train.freezing import frozen_state
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import ATSSMatching
from effdet_keras.train.new_classes import (
    ALL_BUT_NEW_CLASSES,
    mask_old_classes,
    output_variables,
)
from effdet_keras.train.resolve_recipe import resolve_auto_fields

OLD, NEW = ("dog", "bird"), ("cat", "dog", "bird")  # label 0 is new
STATISTICS = ("moving_mean", "moving_variance")


def detector(class_names, **fields):
    config = tiny_model().config.replace(num_classes=len(class_names), **fields)
    return EfficientDet(config, class_names=class_names)


@pytest.fixture(scope="module")
def old_weights(tmp_path_factory):
    """The weights of a detector of `OLD`, whose statistics are not those of a start."""
    model = spread(detector(OLD))
    rng = np.random.default_rng(5)
    for variable in model.weights:
        if variable.name in STATISTICS:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    path = tmp_path_factory.mktemp("old") / "old.keras"
    model.save(path)
    return path


def grown(old_weights, class_names=NEW):
    """A model of old and new classes, with what the detector knew."""
    model = detector(class_names)
    model.load_pretrained(old_weights, verbose=0)
    return model


@pytest.mark.parametrize("fits", [True, False])
def test_other_weights_are_not_those_of_the_old_classes(old_weights, tmp_path, fits):
    model, other = grown(old_weights), detector(("x", "y", "z") if fits else ("x", "y"))
    loaded = model.loaded_classes
    assert loaded.names == OLD and loaded.new_labels == (0,)
    other.save_weights(tmp_path / "other.weights.h5")
    if fits:
        model.load_weights(tmp_path / "other.weights.h5")
        assert model.loaded_classes is None and model.pretrained == "detector"
        with pytest.raises(ValueError, match="no complete detector was loaded"):
            model.compile(freeze=ALL_BUT_NEW_CLASSES)
    else:  # weights that are refused change nothing
        with pytest.raises(ValueError, match="do not fit the model"):
            model.load_weights(tmp_path / "other.weights.h5")
        assert model.loaded_classes == loaded


def outputs_of(model):
    images, _ = batch()
    outputs = model(images, training=False)
    return {k: keras.ops.convert_to_numpy(v) for k, v in outputs.items()}


def assert_only_new_scores_changed(model, before, labels=(0,)):
    after = outputs_of(model)
    old = [i for i in range(model.num_classes) if i not in labels]
    assert_equal(after["box_deltas"], before["box_deltas"])
    assert_equal(after["class_logits"][..., old], before["class_logits"][..., old])
    for label in labels:
        changed = (
            after["class_logits"][..., label] != before["class_logits"][..., label]
        )
        assert changed.mean() > 0.9


def train(model, steps=3):
    # The second box is a dog, whose outputs stay as they are.
    images, truth = batch(box=((8, 8, 40, 40), (20, 4, 60, 50)))
    truth["labels"] = np.array([[0], [1]], "int32")
    for _ in range(steps):
        logs = model.train_on_batch(images, truth, return_dict=True)
    return logs


KERAS_OPTIMIZER = keras.optimizers.AdamW(
    0.1, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2, global_clipnorm=1.0
)


@pytest.mark.parametrize(
    "recipe",
    [
        {"recipe": "reference", "weight_decay": 0.1, "learning_rate": 1.0},
        {"optimizer": "adamw", "weight_decay": 0.5, "learning_rate": 0.1},
        {"optimizer": "muon", "weight_decay": 0.5, "learning_rate": 0.1},
        {"optimizer": "rmsprop", "ema_decay": None, "learning_rate": 0.01},
        {"optimizer": "adamw", "accumulate_steps": 2, "learning_rate": 0.1},
        {"optimizer": KERAS_OPTIMIZER},
    ],
    ids=["momentum", "adamw", "muon", "rmsprop", "accumulate", "keras"],
)
def test_boxes_and_scores_of_old_classes_are_bit_equal(old_weights, recipe):
    model = grown(old_weights)
    before = outputs_of(model)
    others = {v.path: values([v])[0] for v in model.weights if "predict" not in v.path}
    model.compile(freeze=ALL_BUT_NEW_CLASSES, run_eagerly=EAGER, **recipe)
    assert {v.path for v in model.trainable_variables} == {
        "class_net/class-predict/pointwise_kernel",
        "class_net/class-predict/bias",
    }
    train(model)
    # The weights are their averages now, and before that were those of training.
    assert_only_new_scores_changed(model, before)
    for variable in model.weights:  # also the statistics of batch norms
        if variable.path in others:
            assert_equal(values([variable])[0], others[variable.path])
    if model.averages is not None:
        model.averages.swap_out()
        assert_only_new_scores_changed(model, before)


@pytest.mark.slow
def test_a_compiled_step_keeps_them_too(old_weights):
    model = grown(old_weights)
    before = outputs_of(model)
    model.compile(
        "adamw", learning_rate=0.1, weight_decay=0.5, freeze=ALL_BUT_NEW_CLASSES
    )
    images, truth = batch(4, label=0)
    model.fit(images, truth, batch_size=2, epochs=2, verbose=0)
    assert_only_new_scores_changed(model, before)


def test_several_new_classes_at_any_place_train(old_weights):
    model = grown(old_weights, ("fox", "bird", "cat", "dog"))
    before = outputs_of(model)
    model.compile(
        "adamw", learning_rate=0.1, freeze=ALL_BUT_NEW_CLASSES, run_eagerly=EAGER
    )
    assert model.frozen_labels == (1, 3)
    images, truth = batch(label=2)
    model.train_on_batch(images, truth)
    assert_only_new_scores_changed(model, before, labels=(0, 2))


def test_plain_convolutions_have_a_kernel_of_another_shape(tmp_path):
    old, model = (detector(names, separable_conv=False) for names in (OLD, NEW))
    old.save(tmp_path / "old.keras")
    model.load_pretrained(tmp_path / "old.keras", verbose=0)
    before = outputs_of(model)
    options = {"learning_rate": 0.1, "run_eagerly": EAGER}
    model.compile("adamw", freeze=ALL_BUT_NEW_CLASSES, **options)
    train(model, steps=1)
    assert_only_new_scores_changed(model, before)


def test_old_classes_have_no_loss_and_no_share_in_the_norm_of_gradients(old_weights):
    """The class loss is that of the new column alone, by the definition in NumPy."""
    model = grown(old_weights)
    model.compile("sgd", learning_rate=1e-9, ema_decay=None, freeze=ALL_BUT_NEW_CLASSES)
    variables = model.trainable_variables
    ones = [np.ones(v.shape, "float32") for v in variables]
    masked = values(mask_old_classes(model, ones, variables))
    anchors = model.config.num_anchors
    expected = np.tile([1.0, 0.0, 0.0], anchors)  # channel anchor * 3 + label
    for array in masked:
        assert_equal(array, np.broadcast_to(expected, array.shape))
    images, truth = batch(label=0)
    outputs = model(images, training=False)
    losses = model.compute_losses(truth, outputs)
    targets, boxes = model.settings.recipe.matching(
        truth["boxes"], truth["labels"], model.anchors, model.config
    )[:2]
    alone = DetectionLoss()(
        targets,
        boxes,
        outputs["class_logits"][..., :1],
        outputs["box_deltas"],
        model.anchors,
    )
    of_new = float(alone["class_loss"])
    assert float(losses["class_loss"]) == pytest.approx(of_new, rel=1e-5)
    # The logged norm is of the new channels alone, although all would decay.
    model.compile("sgd", weight_decay=1e3, clip_norm=1e9, freeze=ALL_BUT_NEW_CLASSES)
    kernel, _ = output_variables(model)
    new = values([kernel])[0][..., 0::3]
    norm = train(model, steps=1)["gradient_norm"]
    assert norm == pytest.approx(1e3 * np.linalg.norm(new), rel=0.05)


def test_weights_of_classes_in_the_loss_stay(old_weights):
    model = grown(old_weights)
    loss = DetectionLoss(class_weights=(3.0, 5.0, 7.0))
    plain, weighted = (
        (model.compile("sgd", one, freeze=ALL_BUT_NEW_CLASSES), model)[
            1
        ].compute_losses(batch(label=0)[1], model(batch()[0], training=False))[
            "class_loss"
        ]
        for one in (None, loss)
    )
    assert float(weighted) == pytest.approx(3.0 * float(plain), rel=1e-5)


def test_an_archive_resumes_and_goes_on_with_the_same_new_classes(
    old_weights, tmp_path
):
    model = grown(old_weights)
    before = outputs_of(model)
    options = {"learning_rate": 0.1, "run_eagerly": EAGER}
    model.compile("adamw", freeze=ALL_BUT_NEW_CLASSES, **options)
    train(model, steps=1)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert frozen_state(again) == frozen_state(model)
    assert frozen_state(again)["labels"] == [1, 2]
    train(again, steps=1)
    train(model, steps=1)
    assert_equal(again.weights, model.weights)
    assert_only_new_scores_changed(again, before)
    # Compiled anew, the classes that were new are so still.
    again.compile("adamw", freeze=ALL_BUT_NEW_CLASSES, **options)
    assert again.frozen_labels == (1, 2)
    train(again, steps=1)
    assert_only_new_scores_changed(again, before)
    again.unfreeze()
    assert again.frozen_labels == ()
    assert len(again.trainable_variables) == len(tiny_model().trainable_variables)


@pytest.mark.parametrize(
    "class_names, message",
    [
        (
            OLD,
            r"already has all classes of the model: 'dog', 'bird'.*"
            r"\['dog', 'bird', 'new'\]",
        ),
        (
            ("cat",),
            r"loaded detector, 'dog', 'bird'.*are 'cat'.*\['dog', 'bird', 'cat'\]",
        ),
        (None, r"classes are without names"),
    ],
)
def test_classes_of_which_none_or_all_are_new_are_an_error(
    old_weights, class_names, message
):
    if class_names is None:
        model = EfficientDet(tiny_model().config)
        model.load_pretrained(old_weights, verbose=0)
    else:
        model = grown(old_weights, class_names)
    with pytest.raises(ValueError, match=message):
        model.compile(freeze=ALL_BUT_NEW_CLASSES)
    assert all(v.trainable for v in model.weights if v.name not in STATISTICS)


def test_a_model_without_a_detector_has_no_new_classes(old_weights):
    model = detector(NEW)
    with pytest.raises(
        ValueError,
        match=r"no complete detector was loaded.*'cat', 'dog', 'bird', 'new'",
    ):
        model.freeze(ALL_BUT_NEW_CLASSES)
    model.load_pretrained(old_weights, checkpoint_type="detection", verbose=0)
    with pytest.raises(ValueError, match="no complete detector was loaded"):
        model.freeze(ALL_BUT_NEW_CLASSES)


def test_what_changes_old_classes_is_refused(old_weights):
    model = grown(old_weights)
    with pytest.raises(ValueError, match="freezes the statistics of all batch norms"):
        model.compile(freeze=ALL_BUT_NEW_CLASSES, freeze_batch_norm=False)
    model.freeze(ALL_BUT_NEW_CLASSES)
    with pytest.raises(ValueError, match=r"call `unfreeze\(\)` first"):
        model.quantize_aware()
    from effdet_keras.extras.advprop import AdvProp

    with pytest.raises(ValueError, match="leave `adversarial` out"):
        model.compile(adversarial=AdvProp())


def test_a_model_of_other_anchors_is_not_loaded_as_a_whole(old_weights):
    config = tiny_model().config.replace(num_scales=2)
    assert isinstance(config, EfficientDetConfig)
    model = EfficientDet(config, class_names=NEW)
    model.load_pretrained(old_weights, skip_mismatch=True, verbose=0)
    with pytest.raises(
        ValueError, match="some weights still have their initial values"
    ):
        model.freeze(ALL_BUT_NEW_CLASSES)


def test_fit_chooses_the_recipe_of_new_classes(old_weights):
    model = grown(old_weights)
    model.compile(freeze=ALL_BUT_NEW_CLASSES)
    facts = TrainingFacts(num_images=20, batch_size=8, steps=100, pretrained="detector")
    resolve_auto_fields(model, facts, verbose=False)
    assert isinstance(model.settings.recipe.matching, ATSSMatching)
    assert len(model.trainable_variables) == 2
