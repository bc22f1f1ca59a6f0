"""Optimizers by name or config, and who decays the weights."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.schedules import schedule_of
from support.tiny import (
    BACKBONE,
    EAGER,
    batch,
    tiny_model,
    without_stochastic_depth,
)

from effdet_keras.train import optimizers
from effdet_keras.train.matching import ATSSMatching
from effdet_keras.train.optimizers import named_optimizer
from effdet_keras.train.recipe import Recipe

GRADIENT, RATE = np.array([0.5, -2.0]), 0.1


def after_steps(optimizer, count=2, name="kernel"):
    """Weights of 1.0 after steps with the same gradient."""
    weight = keras.Variable(np.ones(2, "float32"), name=name)
    optimizer.build([weight])
    for _ in range(count):
        optimizer.apply([ops.convert_to_tensor(GRADIENT, "float32")], [weight])
    return ops.convert_to_numpy(weight)


# Each optimizer's second step from its paper's equations, with the gradient g twice.


def momentum_of(factor):
    return 1 - RATE * GRADIENT - RATE * (1 + factor) * GRADIENT


def adam(beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    weight, mean, square = np.ones(2), np.zeros(2), np.zeros(2)
    for t in (1, 2):
        mean = beta_1 * mean + (1 - beta_1) * GRADIENT
        square = beta_2 * square + (1 - beta_2) * GRADIENT**2
        # Keras has epsilon outside of the correction, as the paper's last remark.
        rate = RATE * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        weight = weight - rate * mean / (np.sqrt(square) + epsilon)
    return weight


def rmsprop(rho=0.9, momentum=0.0, epsilon=1e-7, centered=False):
    weight, square, mean, speed = np.ones(2), np.zeros(2), np.zeros(2), np.zeros(2)
    for _ in range(2):
        square = rho * square + (1 - rho) * GRADIENT**2
        mean = rho * mean + (1 - rho) * GRADIENT
        spread = square - mean**2 if centered else square
        speed = momentum * speed + RATE * GRADIENT / np.sqrt(spread + epsilon)
        weight = weight - speed
    return weight


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", momentum_of(0.0)),
        ("momentum", momentum_of(0.9)),
        ({"name": "momentum", "momentum": 0.5}, momentum_of(0.5)),
        ("adam", adam()),
        ({"name": "adam", "beta_1": 0.5}, adam(beta_1=0.5)),
        ("adamw", adam()),
        ("rmsprop", rmsprop()),
        ({"name": "rmsprop", "momentum": 0.9}, rmsprop(momentum=0.9)),
    ],
    ids=str,
)
def test_two_steps_are_those_of_the_equations(optimizer, expected):
    made = named_optimizer(optimizer, RATE, weight_decay=0.0)
    np.testing.assert_allclose(after_steps(made), expected, rtol=1e-5)


def test_adamw_by_name_decays_kernels_and_nothing_else():
    factor = 1 - RATE * 0.5  # decoupled: of the weight before the step
    for name in ("kernel", "depthwise_kernel"):
        made = named_optimizer("adamw", RATE, weight_decay=0.5)
        plain = adam() - 1
        step = plain / 2  # equal gradients: Adam's two steps are equal
        expected = (factor + step) * factor + step
        np.testing.assert_allclose(after_steps(made, name=name), expected, rtol=1e-5)
    if keras.backend.backend() == "torch":
        return  # where nothing at all decays, Keras' AdamW fails there
    for name in ("bias", "gamma", "beta", "WSM"):
        made = named_optimizer("adamw", RATE, weight_decay=0.5)
        np.testing.assert_allclose(after_steps(made, name=name), adam(), rtol=1e-5)


def stepped(optimizer, shapes, gradients):
    """Variables of ones, by path, after steps with these gradients."""
    variables = {}
    for path, shape in shapes.items():
        *scopes, name = path.split("/")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variables[path] = keras.Variable(np.ones(shape, "float32"), name=name)
        assert variables[path].path == path
    optimizer.build(list(variables.values()))
    for values_of_step in gradients:
        tensors = [ops.convert_to_tensor(g, "float32") for g in values_of_step]
        optimizer.apply(tensors, list(variables.values()))
    return {path: ops.convert_to_numpy(v) for path, v in variables.items()}


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a way of torch")
@pytest.mark.parametrize("multipliers", [None, {"bias$": 0.5}])
def test_momentum_sgd_of_all_variables_at_once_has_the_bits_of_keras(multipliers):
    class OneByOne(keras.optimizers.SGD):
        """Keras updates the variables of a class it does not know one by one."""

        def update_step(self, gradient, variable, rate):
            is_slow = multipliers and variable.path.endswith("bias")
            super().update_step(gradient, variable, rate * (0.5 if is_slow else 1.0))

    rng = np.random.default_rng(0)
    shapes = {"a/kernel": (3, 3, 4, 5), "a/bias": (5,), "b/gamma": (7,)}
    steps = [[rng.normal(size=s) for s in shapes.values()] for _ in range(3)]
    options = {"weight_decay": 0.0, "multipliers": multipliers}
    found = stepped(named_optimizer("momentum", RATE, **options), shapes, steps)
    expected = stepped(OneByOne(RATE, momentum=0.9), shapes, steps)
    for path, values in expected.items():
        np.testing.assert_array_equal(found[path], values)


@pytest.mark.parametrize("shape", [(1, 1, 8, 3), (1, 1, 3, 8), (1, 1, 4, 4)])
def test_muon_moves_a_pointwise_kernel_alike_in_all_directions(shape):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(2, 1, *shape)) * 1e-3
    made = named_optimizer("muon", RATE, weight_decay=0.5)
    after = stepped(made, {"a/kernel": shape}, gradients)["a/kernel"]
    momentum, expected = np.zeros(shape[2:]), np.ones(shape[2:])
    for (gradient,) in gradients.reshape(2, 1, *shape[2:]):
        momentum = 0.9 * momentum + gradient
        u, values, v = np.linalg.svd(gradient + 0.9 * momentum, full_matrices=False)
        values /= np.linalg.norm(values)
        for _ in range(5):  # the polynomial works on singular values alone
            values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
        assert values.min() > 0.6 and values.max() < 1.3
        expected *= 1 - RATE * 0.5
        expected -= RATE * 0.4 * np.sqrt(max(shape)) * (u * values) @ v
    np.testing.assert_allclose(after[0, 0], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("a/kernel", (3, 3, 4, 4)),
        ("a/depthwise_kernel", (3, 3, 4, 1)),
        ("a/bias", (4,)),
        ("class_net/class-predict/pointwise_kernel", (1, 1, 4, 4)),
    ],
)
def test_muon_is_adamw_for_all_else(path, shape):
    # Where nothing at all decays, Keras' AdamW fails on torch: so another kernel.
    shapes = {path: shape, "other/kernel": (3, 3, 2, 2)}
    rng = np.random.default_rng(0)
    gradients = [[rng.normal(size=s) for s in shapes.values()] for _ in range(2)]
    muon, adamw = (
        stepped(named_optimizer(name, RATE, weight_decay=0.5), shapes, gradients)
        for name in ("muon", "adamw")
    )
    np.testing.assert_allclose(muon[path], adamw[path], rtol=1e-5)


@pytest.mark.tensorflow  # elsewhere nothing is fused
@pytest.mark.parametrize(
    "optimizer",
    [
        "sgd",
        "momentum",
        {"name": "momentum", "nesterov": True},
        "adam",
        {"name": "adamw", "beta_2": 0.9},
        "muon",
    ],
)
@pytest.mark.parametrize("multipliers", [None, {"a/kernel": 0.5}])
def test_a_fused_update_is_that_of_keras(optimizer, multipliers, monkeypatch):
    shapes = {"a": (1, 1, 3, 5), "b": (1, 1, 3, 5), "c": (1, 1, 5, 3), "d": (2, 4)}
    shapes = {f"{name}/kernel": shape for name, shape in shapes.items()}
    rng = np.random.default_rng(0)
    gradients = [[rng.normal(size=s) for s in shapes.values()] for _ in range(3)]

    def weights_after():
        options = {"weight_decay": 0.5, "multipliers": multipliers}
        return stepped(named_optimizer(optimizer, RATE, **options), shapes, gradients)

    fused = weights_after()
    monkeypatch.setattr(optimizers._Fused, "_is_fused", lambda self: False)
    for path, expected in weights_after().items():
        np.testing.assert_allclose(fused[path], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["sgd", "momentum", "adam", "adamw", "rmsprop", "muon"]
)
def test_a_variable_has_its_multiplier_on_the_learning_rate(name):
    shapes = {"a/kernel": (1, 1, 4, 4), "b/kernel": (1, 1, 4, 4)}
    gradient = np.random.default_rng(0).normal(size=(4, 4)).reshape(1, 1, 4, 4)
    gradients = [[gradient, gradient]] * 3

    def after(rate, multipliers=None):
        made = named_optimizer(name, rate, weight_decay=0.5, multipliers=multipliers)
        return stepped(made, shapes, gradients)

    plain, slow = after(RATE), after(RATE / 10)
    both = after(RATE, {"^a/": 0.1, "kernel$": 1.0})
    np.testing.assert_allclose(both["a/kernel"], slow["a/kernel"], rtol=1e-6)
    np.testing.assert_allclose(both["b/kernel"], plain["b/kernel"], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"optimizer": "adamv"}, ValueError, "'adamw?'.*optimizer='adamv'"),
        (
            {"optimizer": {"momentum": 0.9}},
            ValueError,
            "a dict with one of these as 'name'",
        ),
        (
            {"optimizer": {"name": "rmsprop", "roh": 0.9}},
            ValueError,
            "'rmsprop' has no setting 'roh'. Did you mean 'rho'.*Its settings are: "
            "rho, momentum",
        ),
        ({"optimizer": keras.optimizers.Adam}, ValueError, "or a Keras optimizer"),
        ({"weight_decay": "none"}, ValueError, "`weight_decay` must be a number"),
        ({"learning_rate": "high"}, ValueError, "`learning_rate` must be a number"),
        ({"loss_scale": -1.0}, ValueError, "`loss_scale` must be a number above 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Recipe(**arguments)


# Weight decay

ADAMW = keras.optimizers.AdamW


@pytest.mark.parametrize(
    ("optimizer", "weight_decay", "of_loss"),
    [
        (None, "auto", 4e-5),
        (None, 0.1, 0.1),
        (None, None, 0.0),
        (None, 0, 0.0),
        ("adam", "auto", 4e-5),
        ("sgd", 0.1, 0.1),
        ("adamw", "auto", 0.0),
        ("adamw", 0.1, 0.0),
        ("adamw", None, 0.0),
        (keras.optimizers.Adam(), "auto", 4e-5),
        (keras.optimizers.SGD(weight_decay=0.1), "auto", 0.0),
        (ADAMW(), "auto", 0.0),
        (ADAMW(weight_decay=0.0), "auto", 4e-5),
        (ADAMW(), 0.1, 0.1),  # said, so done
        (keras.optimizers.LossScaleOptimizer(ADAMW()), "auto", 0.0),
    ],
)
def test_the_loss_decays_only_where_the_optimizer_does_not(
    optimizer, weight_decay, of_loss
):
    recipe = Recipe(optimizer=optimizer, weight_decay=weight_decay)
    assert recipe.l2_decay == of_loss


@pytest.mark.parametrize(
    ("weight_decay", "expected"), [("auto", 0.004), (0.1, 0.1), (0, 0.0), (None, 0.0)]
)
def test_weight_decay_is_that_of_adamw_by_name(weight_decay, expected):
    made = Recipe(optimizer="adamw", weight_decay=weight_decay).new_optimizer()
    assert made.weight_decay == expected
    adam = Recipe(optimizer="adam", weight_decay=weight_decay).new_optimizer()
    assert adam.weight_decay is None


# In a model


@pytest.fixture(scope="module")
def model():
    """For tests that look at no weight, each of which compiles it anew."""
    return tiny_model()


@pytest.mark.slow_elsewhere
def test_fit_gives_a_named_optimizer_its_schedule(model):
    model.compile("adam", learning_rate=0.02, run_eagerly=True)
    model.fit(*batch(), batch_size=1, verbose=0)
    schedule = schedule_of(model.optimizer)
    assert schedule.learning_rate == 0.02  # not that of a batch of 64
    # Of one epoch a tenth is warm-up, and one step at least.
    assert (schedule.total_steps, schedule.warmup_steps) == (2, 1)


@pytest.mark.slow_elsewhere
def test_a_constant_rate_that_was_reduced_stays_so(tmp_path):
    """As by `ReduceLROnPlateau`: the next `fit`, or a resumed one, goes on with it."""
    model = tiny_model()
    model.compile(recipe="reference", schedule="constant", run_eagerly=EAGER)
    model.fit(*batch(), batch_size=2, verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.08 * 2 / 64)
    model.optimizer.learning_rate = 1e-4
    model.save(tmp_path / "model.keras")
    for resumed in (model, keras.saving.load_model(tmp_path / "model.keras")):
        resumed.fit(*batch(), batch_size=2, epochs=2, initial_epoch=1, verbose=0)
        assert float(resumed.optimizer.learning_rate) == pytest.approx(1e-4)


@pytest.mark.slow_elsewhere
@pytest.mark.slow
def test_training_with_a_named_optimizer_goes_on_from_a_file_bit_for_bit(tmp_path):
    recipe = {
        "optimizer": {"name": "adamw", "beta_2": 0.99},
        "schedule": {"name": "cosine", "warmup_steps": 1},
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        # "bias" would be first, were the order lost and the names sorted.
        "learning_rate_multipliers": {"class_net.*bias$": 3.0, "bias$": 2.0},
    }
    keras.utils.set_random_seed(1)
    model = without_stochastic_depth(tiny_model())
    model.compile(**recipe, run_eagerly=True)
    options = {"batch_size": 2, "shuffle": False, "verbose": 0}
    model.fit(*batch(), epochs=2, **options)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    without_stochastic_depth(again)
    for m in (model, again):
        m.fit(*batch(), epochs=4, initial_epoch=2, **options)
        schedule = schedule_of(m.optimizer)
        assert (schedule.total_steps, schedule.warmup_steps) == (4, 1)
    assert_equal(model.weights, again.weights)
    for kind in ("optimizer", "averages"):
        ours, theirs = getattr(model, kind), getattr(again, kind)
        assert_equal(ours.variables, theirs.variables)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(optimizer="adamw", schedule="constant", weight_decay=None),
        Recipe(matching=ATSSMatching(top_k=5)),
        Recipe(optimizer={"name": "rmsprop", "rho": 0.5}, learning_rate=0.1),
        Recipe(
            schedule={"name": "manual_step", "boundaries": [3, 6], "rates": [3, 2, 1]},
            learning_rate_multipliers={"z": 2.0, "a": 3.0},
        ),
    ],
    ids=str,
)
def test_a_recipe_comes_back_from_its_config(recipe):
    again = Recipe.from_config(recipe.get_config())
    names = ("optimizer", "schedule", "learning_rate", "weight_decay", "matching")
    for name in names:
        assert getattr(again, name) == getattr(recipe, name)
    multipliers = again.learning_rate_multipliers
    assert multipliers == recipe.learning_rate_multipliers
    assert list(multipliers or ()) == list(recipe.learning_rate_multipliers or ())


def test_an_optimizer_is_not_compiled_for_variables_that_it_does_not_know():
    """Keras' error in the first step prints all numbers of a variable."""
    for optimizer in (keras.optimizers.Adam(1e-3), Recipe("reference").new_optimizer()):
        model, other = tiny_model(), tiny_model()
        model.compile(optimizer, freeze="backbone")
        model.compile(optimizer, freeze="backbone+fpn")  # it knows all of these
        for again in (model, other):
            again.unfreeze()
            before = again.settings
            with pytest.raises(ValueError, match="Pass a new optimizer") as error:
                again.compile(optimizer)
            assert len(str(error.value)) < 400
            assert again.settings is before
        model.compile(type(optimizer).from_config(optimizer.get_config()))


def test_variables_that_train_again_need_another_compile():
    model = tiny_model()
    backbone = model.get_layer(BACKBONE)
    backbone.trainable = False
    model.compile("sgd", recipe="reference", run_eagerly=EAGER)
    backbone.trainable = True
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(RuntimeError, match=r"Call `compile` again.*first=\['effic"):
            train(*batch())
    model.compile("sgd", recipe="reference", run_eagerly=EAGER)
    backbone.trainable = False
    model.check_optimizer_knows_variables()  # fewer variables are no error
