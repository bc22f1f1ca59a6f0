"""Moving averages: against TensorFlow Addons' numbers; swaps always undone."""

import keras
import numpy as np
import pytest
from keras import ops

from effdet_keras.train.averages import WeightAverages


def numpy(variable):
    return np.array(ops.convert_to_numpy(variable))


def make(shapes=((3,), (2, 2)), **arguments):
    """Variables with random values, and averages with other random values."""
    random = np.random.default_rng(0)
    variables = [keras.Variable(random.normal(size=s), dtype="float32") for s in shapes]
    averages = WeightAverages(variables, **arguments)
    for variable in variables:
        variable.assign(random.normal(size=variable.shape))
    return variables, averages


def state(variables, averages):
    return [numpy(v) for v in variables + averages.variables]


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
        actual.append([float(numpy(a)) for a in averages.variables])

    assert len(actual) == 20
    # float32; the start is known to 1e-6.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_dynamic_decay_stops_growing_at_decay():
    variable = keras.Variable(0.0)
    averages = WeightAverages([variable], decay=0.75)
    variable.assign(1.0)
    averages.update(0)  # d = 1 / 10
    assert float(numpy(averages.variables[0])) == pytest.approx(0.9)
    averages.reset()
    variable.assign(2.0)
    averages.update(1000)  # d = min(0.75, 1001 / 1010)
    assert float(numpy(averages.variables[0])) == pytest.approx(1.25)


def test_a_static_decay_ignores_the_step():
    variable = keras.Variable(0.0)
    averages = WeightAverages([variable], decay=0.75, dynamic=False)
    variable.assign(4.0)
    averages.update(0)
    assert float(numpy(averages.variables[0])) == pytest.approx(1.0)


def test_averages_are_their_own_non_trainable_variables():
    variables, averages = make()
    assert averages.sources == variables
    for variable, average in zip(variables, averages.variables):
        assert isinstance(average, keras.Variable)
        assert not average.trainable
        assert average.shape == variable.shape
    assert len({average.path for average in averages.variables}) == 2


def test_averages_start_as_copies_that_do_not_follow():
    variable = keras.Variable([1.0, 2.0])
    averages = WeightAverages([variable])
    variable.assign([5.0, 6.0])
    np.testing.assert_array_equal(numpy(averages.variables[0]), [1.0, 2.0])


def test_two_swaps_change_no_bit():
    variables, averages = make()
    before = state(variables, averages)
    averages.swap()
    assert averages.is_swapped
    assert_state(state(variables, averages), before[2:] + before[:2])
    averages.swap()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_swaps_are_exact_in_other_precisions(dtype):
    variable = keras.Variable([1.0, 2.0, 3.0], dtype=dtype)
    averages = WeightAverages([variable])
    variable.assign([1.5, 2.5, 3.5])
    for step in range(3, 6):
        averages.update(step)
    average = averages.variables[0]
    before = numpy(ops.cast(variable, "float64")), numpy(average)
    averages.swap()
    np.testing.assert_allclose(
        numpy(ops.cast(variable, "float64")), before[1], rtol=4e-3
    )
    averages.swap()
    np.testing.assert_array_equal(numpy(ops.cast(variable, "float64")), before[0])
    np.testing.assert_array_equal(numpy(average), before[1])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_context_restores_after_an_exception(error):
    variables, averages = make()
    before = state(variables, averages)
    with pytest.raises(error), averages.swapped():
        assert_state(state(variables, averages), before[2:] + before[:2])
        raise error
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


def test_a_context_inside_a_context_leaves_the_outer_one_swapped():
    variables, averages = make()
    before = state(variables, averages)
    with averages.swapped():
        with averages.swapped():
            assert_state(state(variables, averages), before[2:] + before[:2])
        assert averages.is_swapped
        assert_state(state(variables, averages), before[2:] + before[:2])
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
        averages.swap()
    assert averages.is_swapped
    averages.restore()
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_interruption_in_the_middle_of_a_restore_loses_nothing(monkeypatch, place):
    variables, averages = make()
    before = state(variables, averages)
    averages.swap()
    interrupt_once(monkeypatch, (variables + averages.variables)[place])
    with pytest.raises(KeyboardInterrupt):
        averages.restore()
    averages.restore()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before)


def test_restore_without_a_swap_changes_nothing():
    variables, averages = make()
    before = state(variables, averages)
    averages.restore()
    assert_state(state(variables, averages), before)


def test_nothing_learns_from_swapped_weights():
    variables, averages = make()
    before = state(variables, averages)
    with (
        averages.swapped(),
        pytest.raises(RuntimeError, match=r"averages\.restore\(\)"),
    ):
        averages.update(0)
    assert_state(state(variables, averages), before)


@pytest.mark.parametrize("method", ["reset", "adopt"])
def test_starting_anew_from_swapped_weights_starts_from_the_averages(method):
    variables, averages = make()
    before = state(variables, averages)
    averages.swap()
    getattr(averages, method)()
    assert not averages.is_swapped
    assert_state(state(variables, averages), before[2:] + before[2:])
    averages.restore()
    assert_state(state(variables, averages), before[2:] + before[2:])


def test_a_value_given_to_a_swapped_variable_is_kept_and_its_average_starts_anew():
    variables, averages = make()
    before = state(variables, averages)
    averages.swap()
    variables[0].assign([7.0, 8.0, 9.0])
    averages.restore()
    after = state(variables, averages)
    assert_state(after[::2], [np.float32([7, 8, 9])] * 2)
    assert_state(after[1::2], before[1::2])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_swapped_values_of_a_file_are_taken_and_restored(dtype):
    weight = keras.Variable([1.0, 2.0], dtype=dtype)
    averages = WeightAverages([weight])
    third = np.float32([1 / 3, 2 / 3])
    exact = {0: third} if dtype == "float16" else {}
    averages.take_swapped([np.float32([5.0, 6.0])], exact)
    weight.assign(ops.cast(third, dtype))
    averages.restore()
    np.testing.assert_array_equal(numpy(ops.cast(weight, "float32")), [5.0, 6.0])
    np.testing.assert_array_equal(numpy(averages.variables[0]), third)


def test_adopt_copies_the_averages():
    variables, averages = make()
    before = state(variables, averages)
    averages.adopt()
    assert_state(state(variables, averages), before[2:] + before[2:])


def test_reset_copies_the_variables():
    variables, averages = make()
    averages.reset()
    for variable, average in zip(variables, averages.variables):
        np.testing.assert_array_equal(numpy(variable), numpy(average))


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2])
def test_a_decay_out_of_range_is_named(decay):
    with pytest.raises(ValueError, match=f"decay={decay}"):
        WeightAverages([], decay=decay)


def test_an_integer_variable_is_named():
    counter = keras.Variable(0, dtype="int32", trainable=False, name="counter")
    with pytest.raises(ValueError, match="'counter', dtype='int32'"):
        WeightAverages([counter])


def test_averages_of_a_model_with_batch_norm_follow_its_statistics():
    norm = keras.layers.BatchNormalization()
    norm.build((None, 2))
    averages = WeightAverages(norm.variables, decay=0.5, dynamic=False)
    norm(ops.ones((4, 2)) * 100.0, training=True)  # moving mean 0 -> 1
    averages.update(0)
    index = [v.path for v in norm.variables].index(norm.moving_mean.path)
    np.testing.assert_allclose(numpy(averages.variables[index]), [0.5, 0.5], rtol=1e-5)


def test_a_stateless_update_leaves_the_variables_alone():
    variables, averages = make(decay=0.5, dynamic=False)
    before = state(variables, averages)
    mapping = [(v, v.value) for v in variables + averages.variables]
    with keras.StatelessScope(state_mapping=mapping) as scope:
        averages.update(0)
    assert_state(state(variables, averages), before)
    for variable, average in zip(variables, averages.variables):
        np.testing.assert_allclose(
            numpy(scope.get_current_value(average)),
            (numpy(variable) + numpy(average)) / 2,
            rtol=1e-6,
        )


def test_averages_can_be_created_where_a_model_is_built_without_values():
    with keras.StatelessScope():
        variable = keras.Variable(
            keras.initializers.RandomNormal(seed=3), shape=(2,), dtype="float32"
        )
        averages = WeightAverages([variable])
    np.testing.assert_array_equal(numpy(averages.variables[0]), numpy(variable))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_averages_of_16_bit_variables_do_not_stand_still(dtype):
    variable = keras.Variable(1.0, dtype=dtype)
    averages = WeightAverages([variable], decay=0.9998, dynamic=False)
    variable.assign(2.0)
    averages.update(0)
    assert float(numpy(averages.variables[0])) == pytest.approx(1.0002, abs=1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_update_equals_the_eager_one(jit_compile):
    import tensorflow as tf

    averages, expected = make()[1], make()[1]
    compiled = tf.function(averages.update, jit_compile=jit_compile)
    for step in range(4):
        compiled(tf.constant(step, tf.int64))
        expected.update(step)
    for a, b in zip(averages.variables, expected.variables):
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=1e-6)
