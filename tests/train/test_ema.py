"""Moving averages: against TensorFlow Addons' numbers; swaps always undone."""

import keras
import numpy as np
import pytest
from support.tiny import values

from effdet_keras.train.averages import WeightAverages


def make(shapes=((3,), (2, 2)), **arguments):
    """Variables with random values, and averages with other random values."""
    random = np.random.default_rng(0)
    variables = [keras.Variable(random.normal(size=s), dtype="float32") for s in shapes]
    averages = WeightAverages(variables, **arguments)
    for variable in variables:
        variable.assign(random.normal(size=variable.shape))
    return variables, averages


def state(variables, averages):
    return [*values(variables), *averages.values]


def assert_state(actual, expected):
    for a, b in zip(actual, expected):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("case", "decay"),
    [
        ("sgd_const_ema", 0.9998),
        ("sgd_cosine_ema", 0.9998),
        ("adam_const_ema", 0.9998),
        ("sgd_const_ema05", 0.5),
    ],
)
def test_averages_equal_tensorflow_addons(golden, case, decay):
    arrays = golden("f_schedules_ema.npz")
    columns = list(arrays["toy/columns"])
    rows = arrays[f"toy/{case}"]
    names = ["v0", "v1", "v2", "c"]
    weights = rows[:, [columns.index(n) for n in names]]
    expected = rows[:, [columns.index(f"avg_{n}") for n in names]]

    # The start is not in the file, but follows from the first average:
    # avg = 0.1 start + 0.9 weight.
    start = (expected[0] - 0.9 * weights[0]) / 0.1
    variables = [keras.Variable(value) for value in start.astype("float32")]
    averages = WeightAverages(variables, decay=decay)
    actual = []
    for step, row in enumerate(weights):
        for variable, value in zip(variables, row):
            variable.assign(value)
        averages.update(step)
        actual.append([float(a) for a in averages.values])

    assert len(actual) == 20
    # float32; the start is known to 1e-6.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_dynamic_decay_stops_growing_at_decay():
    variable = keras.Variable(0.0)
    averages = WeightAverages([variable], decay=0.75)
    variable.assign(1.0)
    averages.update(0)  # d = 1 / 10
    assert float(averages.values[0]) == pytest.approx(0.9)
    averages.reset()
    variable.assign(2.0)
    averages.update(1000)  # d = min(0.75, 1001 / 1010)
    assert float(averages.values[0]) == pytest.approx(1.25)


def test_values_that_are_given_are_not_read_again():
    variables = [keras.Variable(0.0), keras.Variable(0.0)]
    averages = WeightAverages(variables, decay=0.75)
    variables[0].assign(1.0)
    new_values = [(variables[1], keras.ops.convert_to_tensor(2.0))]
    averages.update(0, new_values=new_values)  # d = 1 / 10
    assert [float(a) for a in averages.values] == pytest.approx([0.9, 1.8])


def test_a_swap_and_back_changes_no_bit():
    variables, averages = make()
    before = state(variables, averages)
    averages.swap_in()
    assert averages.is_swapped
    assert_state(state(variables, averages), before[2:] + before[:2])
    averages.swap_out()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


def test_the_old_name_of_swap_out_warns_and_works():
    variables, averages = make()
    before = state(variables, averages)
    averages.swap_in()
    with pytest.warns(DeprecationWarning, match="swap_out"):
        averages.restore()
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_context_restores_after_an_exception(error):
    variables, averages = make()
    before = state(variables, averages)
    with pytest.raises(error), averages.swapped():
        assert_state(state(variables, averages), before[2:] + before[:2])
        raise error
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


def interrupt_once(monkeypatch, target):
    """Makes the next assignment to `target` raise KeyboardInterrupt."""
    target = target.value if keras.backend.backend() == "tensorflow" else target
    assign, calls = type(target).assign, []

    def interrupted(self, value, **options):
        if self is target and not calls:
            calls.append(1)
            raise KeyboardInterrupt
        return assign(self, value, **options)

    monkeypatch.setattr(type(target), "assign", interrupted)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_interruption_in_the_middle_of_a_swap_loses_nothing(monkeypatch, place):
    variables, averages = make()
    before = state(variables, averages)
    interrupt_once(monkeypatch, (variables + averages.variables)[place])
    with pytest.raises(KeyboardInterrupt):
        averages.swap_in()
    assert averages.is_swapped
    averages.swap_out()
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_interruption_in_the_middle_of_a_restore_loses_nothing(monkeypatch, place):
    variables, averages = make()
    before = state(variables, averages)
    averages.swap_in()
    interrupt_once(monkeypatch, (variables + averages.variables)[place])
    with pytest.raises(KeyboardInterrupt):
        averages.swap_out()
    averages.swap_out()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


def test_nothing_learns_from_swapped_weights():
    variables, averages = make()
    before = state(variables, averages)
    with (
        averages.swapped(),
        pytest.raises(RuntimeError, match=r"averages\.swap_out\(\)"),
    ):
        averages.update(0)
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("method", ["reset", "commit"])
def test_starting_anew_from_swapped_weights_starts_from_the_averages(method):
    variables, averages = make()
    before = state(variables, averages)
    averages.swap_in()
    getattr(averages, method)()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before[2:] + before[2:])
    averages.swap_out()
    assert_state(state(variables, averages), before[2:] + before[2:])


def test_a_value_given_to_a_swapped_variable_is_kept_and_its_average_starts_anew():
    variables, averages = make()
    before = state(variables, averages)
    averages.swap_in()
    variables[0].assign([7.0, 8.0, 9.0])
    averages.swap_out()
    after = state(variables, averages)
    assert_state(after[::2], [np.float32([7, 8, 9])] * 2)
    assert_state(after[1::2], before[1::2])


def test_a_variable_of_another_type_is_named():
    for dtype in ("int32", "bfloat16"):
        counter = keras.Variable(0, dtype=dtype, trainable=False, name="counter")
        with pytest.raises(ValueError, match=f"'counter', dtype='{dtype}'"):
            WeightAverages([counter])


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_update_equals_the_eager_one(jit_compile):
    import tensorflow as tf

    averages, expected = make()[1], make()[1]
    compiled = tf.function(averages.update, jit_compile=jit_compile)
    for step in range(4):
        compiled(tf.constant(step, tf.int64))
        expected.update(step)
    for a, b in zip(values(averages.variables), values(expected.variables)):
        np.testing.assert_allclose(a, b, rtol=1e-6)
