"""Training with `AdvProp`: gradients by definition, batch norms apart, files, refusals."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import batch, tiny_model

import effdet_keras as ek
from effdet_keras.losses import DetectionLoss
from effdet_keras.matching import IoUMatching
from effdet_keras.models import EfficientDet
from effdet_keras.training.auxiliary_norms import AUXILIARY
from effdet_keras.training.steps.contract import BackendStep

only_tensorflow = pytest.mark.tensorflow
PLAIN = {"ema_decay": None, "clip_norm": None, "batch_norm_warmup": False}


def data(count=2, seed=0):
    """Images that differ, with one box each in other places."""
    images, truth = batch(count)
    rng = np.random.default_rng(seed)
    # Pixels at both ends, where noise has to stop.
    images = np.clip(rng.normal(127, 90, images.shape), 0, 255).astype("float32")
    truth["boxes"] += rng.uniform(0, 16, (count, 1, 4)).astype("float32")
    truth["labels"] = np.arange(count, dtype="int32")[:, None] % 3
    return images, truth


def model_with(adversarial, *, run_eagerly=True, freeze=None, **arguments):
    keras.utils.set_random_seed(1)
    model = tiny_model()
    for layer in model._flatten_layers():
        if hasattr(layer, "survival_prob"):
            layer.survival_prob = 1.0
    if freeze is not None:
        model.freeze(freeze)
    options = {**PLAIN, **arguments}
    options.setdefault("optimizer", keras.optimizers.SGD(1.0))
    model.compile(adversarial=adversarial, run_eagerly=run_eagerly, **options)
    return model


def set_apart(model):
    """Gives the auxiliary batch norms other values than the main ones."""
    rng = np.random.default_rng(2)
    for variable in model.auxiliary_norms.variables:
        variable.assign(np.array(variable) * rng.uniform(0.8, 1.2, variable.shape))


def arrays(variables):
    return [np.array(ops.convert_to_numpy(v)) for v in variables]


def other_network(model):
    """A network of its own, whose batch norms hold the auxiliary arrays."""
    network = EfficientDet.from_config(model.get_config())
    for layer in network._flatten_layers():
        if hasattr(layer, "survival_prob"):
            layer.survival_prob = 1.0
    network.set_weights(model.get_weights())
    own = {v.path: v for v in network.weights}
    auxiliary = model.auxiliary_norms
    for source, value in zip(auxiliary.sources, arrays(auxiliary.variables)):
        own[source.path].assign(value)
    return network


class Definition:
    """The losses of a network on a batch, from loss and matching alone."""

    def __init__(self, network, truth):
        self.network, self.loss = network, DetectionLoss()
        self.targets = IoUMatching()(
            truth["boxes"], truth["labels"], network.anchors, network.config
        )

    def __call__(self, images):
        outputs = self.network(images, training=True)
        return outputs, self.of(outputs, slice(None))

    def of(self, outputs, part):
        classes, boxes = (target[part] for target in self.targets)
        logits = outputs["class_logits"][part]
        deltas = outputs["box_deltas"][part]
        return self.loss(classes, boxes, logits, deltas, self.network.anchors)

    def slope(self, images, name):
        import tensorflow as tf

        before = self.network.get_weights()
        x = tf.constant(images)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = self(x)[1][name]
        self.network.set_weights(before)  # the attack moves no statistics
        return tape.gradient(value, x).numpy()

    def per_image(self, images):
        before = self.network.get_weights()
        outputs, _ = self(images)
        self.network.set_weights(before)
        parts = range(len(images))
        return np.array([float(self.of(outputs, [i])["loss"]) for i in parts])

    def of_part(self, outputs, part):
        return self.of(outputs, part)


def attacked(definition, images, name, advprop):
    x = images
    for _ in range(advprop.num_steps):
        change = advprop.change_per_step * np.sign(definition.slope(x, name))
        x = np.clip(x + change, images - advprop.epsilon, images + advprop.epsilon)
        x = np.clip(x, 0, 255).astype("float32")
    return x


def attacked_by_definition(definition, images, advprop):
    names = {"class": "class_loss", "box": "box_loss", "both": "loss"}
    if advprop.loss != "max":
        return attacked(definition, images, names[advprop.loss], advprop)
    found = [attacked(definition, images, names[n], advprop) for n in ("class", "box")]
    losses = [definition.per_image(x) for x in found]
    is_class = losses[0] >= losses[1]
    return np.where(is_class[:, None, None, None], *found)


def gradients_by_definition(definition, images, variables):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = definition(images)[1]["loss"]
    return tape.gradient(loss, variables, unconnected_gradients="zero"), float(loss)


@only_tensorflow
@pytest.mark.parametrize(
    "advprop",
    [
        ek.AdvProp(epsilon=8.0),
        pytest.param(
            ek.AdvProp(epsilon=8.0, num_steps=2, step_size=6.0, loss="max"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ek.AdvProp(epsilon=8.0, num_steps=2, loss="both"), marks=pytest.mark.slow
        ),
        pytest.param(ek.AdvProp(epsilon=4.0, loss="box"), marks=pytest.mark.slow),
        pytest.param(ek.AdvProp(epsilon=4.0, loss="class"), marks=pytest.mark.slow),
    ],
    ids=lambda advprop: f"{advprop.loss}-{advprop.num_steps}",
)
def test_a_step_is_that_of_two_networks_with_all_but_batch_norms_in_common(advprop):
    model = model_with(advprop, weight_decay=None)
    set_apart(model)
    images, truth = data(3)
    main = EfficientDet.from_config(model.get_config())
    main.set_weights(model.get_weights())
    auxiliary = other_network(model)
    clean, adversarial = Definition(main, truth), Definition(auxiliary, truth)
    noisy = attacked_by_definition(adversarial, images, advprop)
    assert 0 < np.abs(noisy - images).max() <= advprop.epsilon + 1e-4
    own, loss = gradients_by_definition(clean, images, main.trainable_variables)
    of_noisy, noisy_loss = gradients_by_definition(
        adversarial, noisy, auxiliary.trainable_variables
    )
    sources = {v.path: v for v in model.auxiliary_norms.trainable_sources}
    before = arrays(model.updated_variables)

    logs = model.train_on_batch(images, truth, return_dict=True)

    shared = [
        np.array(a) if v.path in sources else np.array(a) + np.array(b)
        for v, a, b in zip(main.trainable_variables, own, of_noisy, strict=True)
    ]
    by_path = {
        v.path: np.array(g) for v, g in zip(auxiliary.trainable_variables, of_noisy)
    }
    expected = shared + [by_path[path] for path in sources]
    after = arrays(model.updated_variables)
    assert len(sources) > 30
    for one, other, gradient in zip(before, after, expected, strict=True):
        scale = np.abs(gradient).max() + 1e-3
        np.testing.assert_allclose(
            (one - other) / scale, gradient / scale, atol=2e-3, rtol=2e-3
        )
    assert logs["loss"] == pytest.approx(loss, rel=1e-5)
    assert logs["adversarial_loss"] == pytest.approx(noisy_loss, rel=1e-4)
    # Main statistics saw the clean images alone, auxiliary ones the others, once.
    for mine, theirs in (
        (model.batch_norm_statistics(), main.batch_norm_statistics()),
        (model.auxiliary_norms.statistics, statistics_like(model, auxiliary)),
    ):
        for a, b in zip(arrays(mine), arrays(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def statistics_like(model, network):
    """The statistics of a network in the order of the auxiliary ones."""
    own = {v.path: v for v in network.weights}
    auxiliary = model.auxiliary_norms
    copies = {id(v) for v in auxiliary.statistics}
    pairs = zip(auxiliary.sources, auxiliary.variables)
    return [own[source.path] for source, copy in pairs if id(copy) in copies]
