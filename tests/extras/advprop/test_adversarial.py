"""Training with `AdvProp`: gradients by definition, two sets of batch norms, files."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import batch, tiny_model

import effdet_keras as ek
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.extras.advprop import AUXILIARY
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching

only_tensorflow = pytest.mark.tensorflow
PLAIN = {"ema_decay": None, "clip_norm": None, "batch_norm_warmup": False}


class NoBoxes(DetectionLoss):
    """A loss that is none of boxes."""

    def __call__(self, *args, **kwargs):
        terms = super().__call__(*args, **kwargs)
        return {**terms, "loss": terms["class_loss"]}


def data(count=2, seed=0):
    """Images that differ, with one box each in other places."""
    images, truth = batch(count)
    rng = np.random.default_rng(seed)
    # Pixels at both ends, where noise has to stop.
    images = np.clip(rng.normal(127, 90, images.shape), 0, 255).astype("float32")
    truth["boxes"] += rng.uniform(0, 16, (count, 1, 4)).astype("float32")
    truth["labels"] = np.arange(count, dtype="int32")[:, None] % 3
    return images, truth


def without_chance(model):
    for layer in model._flatten_layers():
        if hasattr(layer, "survival_prob"):
            layer.survival_prob = 1.0
    return model


def model_with(adversarial, *, run_eagerly=True, freeze=None, **arguments):
    keras.utils.set_random_seed(1)
    model = without_chance(tiny_model())
    if freeze is not None:
        model.freeze(freeze)
    options = {**PLAIN, **arguments}
    options.setdefault("optimizer", keras.optimizers.SGD(1.0))
    model.compile(adversarial=adversarial, run_eagerly=run_eagerly, **options)
    return model


def set_apart(model):
    """Gives the auxiliary batch norms other values than the main ones."""
    rng = np.random.default_rng(2)
    for variable in model.adversarial.variables:
        variable.assign(np.array(variable) * rng.uniform(0.8, 1.2, variable.shape))


def arrays(variables):
    return [np.array(ops.convert_to_numpy(v)) for v in variables]


def assert_same(variables, expected, check=np.testing.assert_array_equal, **options):
    for one, other in zip(arrays(variables), arrays(expected), strict=True):
        check(one, other, **options)


CLOSE = {"check": np.testing.assert_allclose, "rtol": 1e-4, "atol": 1e-5}


def other_network(model):
    """A network of its own, whose batch norms hold the auxiliary arrays."""
    network = without_chance(EfficientDet.from_config(model.get_config()))
    network.set_weights(model.get_weights())
    own = {v.path: v for v in network.weights}
    auxiliary = model.adversarial
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
    sources = {v.path: v for v in model.adversarial.trainable_sources}
    before = arrays(model.optimized_variables())

    logs = model.train_on_batch(images, truth, return_dict=True)

    shared = [
        np.array(a) if v.path in sources else np.array(a) + np.array(b)
        for v, a, b in zip(main.trainable_variables, own, of_noisy, strict=True)
    ]
    by_path = {
        v.path: np.array(g) for v, g in zip(auxiliary.trainable_variables, of_noisy)
    }
    expected = shared + [by_path[path] for path in sources]
    after = arrays(model.optimized_variables())
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
        (model.adversarial.statistics, statistics_like(model, auxiliary)),
    ):
        assert_same(mine, theirs, **CLOSE)


def statistics_like(model, network):
    """The statistics of a network in the order of the auxiliary ones."""
    own = {v.path: v for v in network.weights}
    auxiliary = model.adversarial
    copies = {id(v) for v in auxiliary.statistics}
    pairs = zip(auxiliary.sources, auxiliary.variables)
    return [own[source.path] for source, copy in pairs if id(copy) in copies]


@pytest.mark.smoke
@only_tensorflow
def test_what_no_loss_uses_stays_as_it_is():
    """In a step that runs eagerly as well."""
    model = model_with(None, weight_decay=None, loss=NoBoxes())
    unused = [v for v in model.optimized_variables() if "box_net" in v.path]
    before = arrays(unused)
    logs = model.train_on_batch(*data(), return_dict=True)
    assert len(before) > 4 and logs["gradient_norm"] > 0
    assert_same(unused, before)


@only_tensorflow
def test_a_refused_batch_leaves_both_sets_as_they_are():
    model = model_with(ek.AdvProp())
    set_apart(model)
    images, truth = data()
    images[0, 0, 0, 0] = np.nan
    auxiliary = model.adversarial.variables
    kept = (*model.optimized_variables(), *model.batch_norm_statistics(), *auxiliary)
    before = arrays(kept)
    with pytest.raises(FloatingPointError):
        model.train_on_batch(images, truth)
    assert_same(kept, before)


@only_tensorflow
def test_auxiliary_arrays_begin_as_the_main_ones_and_are_no_weights_of_the_model():
    plain = tiny_model()
    model = model_with(ek.AdvProp())
    assert len(model.weights) == len(plain.weights)
    auxiliary = model.adversarial
    batch_norms = len(model.batch_norm_statistics()) // 2
    assert len(auxiliary.variables) == 4 * batch_norms
    assert_same(auxiliary.sources, auxiliary.variables)
    images, _ = data()
    before = arrays(model(images).values())
    set_apart(model)
    assert_same(model(images).values(), before)
    apart = arrays(auxiliary.variables)
    model.set_weights(model.get_weights())  # as `EarlyStopping` restores them
    assert_same(auxiliary.variables, apart)
    model.weights_were_set()  # as by `load_pretrained`, of another training
    assert_same(auxiliary.sources, auxiliary.variables)
    model.compile()
    assert model.adversarial is None
    assert model.optimized_variables() == model.trainable_variables


@only_tensorflow
def test_files_keep_them_for_the_training_that_goes_on(tmp_path):
    advprop = ek.AdvProp(epsilon=3.0, num_steps=2, random_start=True, loss="box")
    model = model_with(advprop, optimizer="momentum", ema_decay=0.9)
    set_apart(model)
    expected = arrays(model.adversarial.variables)
    model.save(tmp_path / "last.keras")
    loaded = EfficientDet.from_archive(tmp_path / "last.keras", resume=True)
    assert loaded.settings.recipe.adversarial == advprop
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    assert_same(loaded.adversarial.variables, expected)

    # Weights alone go into a model without them, and back into one that has them.
    path = tmp_path / "some.weights.h5"
    model.save_weights(path)
    plain = tiny_model()
    plain.compile(optimizer=None, ema_decay=None)
    plain.load_pretrained(path, verbose=0)
    plain.save_weights(tmp_path / "plain.weights.h5")
    loaded.load_weights(path)
    np.testing.assert_array_equal(loaded.adversarial.variables[0], expected[0])
    loaded.load_pretrained(tmp_path / "plain.weights.h5", verbose=0)
    auxiliary = loaded.adversarial
    assert_same(auxiliary.sources, auxiliary.variables)


@only_tensorflow
def test_a_file_of_other_batch_norms_is_refused():
    model = model_with(ek.AdvProp())
    store = {}
    model.adversarial.save(store)
    assert all(name.startswith(AUXILIARY) for name in store)
    store.popitem()
    with pytest.raises(ValueError, match="auxiliary batch norms"):
        model.adversarial.load(store)


@only_tensorflow
def test_frozen_batch_norms_have_no_second_set():
    model = model_with(ek.AdvProp(), freeze="backbone", optimizer="adamw")
    paths = [source.path for source in model.adversarial.sources]
    assert paths and not [path for path in paths if path.startswith("efficientnet-")]
    model.unfreeze()
    assert len(model.adversarial.sources) > len(paths)


@only_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("case", ["graph", "accumulation", "float16"])
def test_fit_moves_both_sets_apart(case):
    arguments, policy = {"optimizer": "momentum"}, None
    if case == "accumulation":
        arguments["accumulate_steps"] = 2
    if case == "float16":
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_with(
            ek.AdvProp(epsilon=4.0, random_start=True),
            run_eagerly=False,
            learning_rate=0.01,
            schedule="constant",
            **{**PLAIN, "ema_decay": 0.9, "clip_norm": 1.0, **arguments},
        )
    finally:
        if policy is not None:
            keras.config.set_dtype_policy(policy)
    before = arrays(model.adversarial.variables)
    history = model.fit(*data(4), batch_size=2, epochs=2, verbose=0).history
    assert np.isfinite(history["adversarial_loss"]).all()
    auxiliary = model.adversarial
    model.averages.swap_out()
    values = arrays(auxiliary.variables)
    moved = [not np.array_equal(a, b) for a, b in zip(before, values)]
    apart = [
        not np.allclose(a, b, rtol=1e-4, atol=1e-6)
        for a, b in zip(arrays(auxiliary.sources), values)
    ]
    assert np.mean(moved) > 0.9 and np.mean(apart) > 0.5


@pytest.mark.parametrize(
    "fields", [{"epsilon": 0.0}, {"num_steps": 0}, {"loss": "worst"}], ids=str
)
def test_wrong_fields_are_refused_by_name(fields):
    (name,) = fields
    with pytest.raises(ValueError, match=f"`{name}`"):
        ek.AdvProp(**fields)


def test_fields_come_back_from_its_config():
    advprop = ek.AdvProp(2.0, 3, 1.5, random_start=True, loss="box")
    assert ek.AdvProp.from_config(advprop.get_config()) == advprop
    defaults = dataclasses.asdict(ek.AdvProp())
    assert all(defaults[n] != value for n, value in advprop.get_config().items())


def test_what_cannot_train_with_it_is_refused_when_it_is_compiled():
    model = tiny_model()
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow"):
            model.compile(adversarial=ek.AdvProp())
        return

    class Several:
        features = None

        class distribute_strategy:
            num_replicas_in_sync = 2

    with pytest.raises(ValueError, match="jit_compile=False"):
        model.compile(adversarial=ek.AdvProp(), jit_compile=True)
    assert model.adversarial is None and model.settings is None

    with pytest.raises(ValueError, match="one device"):
        ek.AdvProp().new_training(Several(), jit_compile=False)
