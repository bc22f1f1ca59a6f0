"""What the step on JAX does where devices share out a batch, without any of them."""

import types

import keras
import numpy as np
import pytest

from effdet_keras.errors import InvalidStateError
from effdet_keras.train.averages import placed_like

pytestmark = pytest.mark.extra_packages
jax = pytest.importorskip("jax")


def test_the_part_of_a_batch_that_is_here():
    from effdet_keras.train.functions.jax import local_part

    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    rows = np.arange(6.0).reshape(6, 1)[: 6 // mesh.size * mesh.size]
    array = jax.device_put(rows, jax.sharding.NamedSharding(mesh, spec))
    np.testing.assert_array_equal(local_part(array), rows)


def test_a_value_goes_where_its_variable_is_without_a_question():
    far = types.SimpleNamespace(is_fully_addressable=False)
    assert placed_like(keras.Variable(0.0), 1.0) == 1.0
    asked = []
    variable = types.SimpleNamespace(value=types.SimpleNamespace(sharding=far))

    def made(shape, sharding, part):
        asked.append((shape, sharding))
        return part(...)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "make_array_from_callback", made)
        value = placed_like(variable, np.float32([1.0, 2.0]))
    assert asked == [((2,), far)]
    np.testing.assert_array_equal(value, [1.0, 2.0])


def test_an_error_that_tells_of_a_lost_process_is_plain(monkeypatch):
    from effdet_keras.extras.multiprocess import jax as engine
    from effdet_keras.extras.multiprocess import launch as lost_process

    registered = []
    monkeypatch.setattr(lost_process.atexit, "register", registered.append)
    processes = engine.JaxProcesses()
    assert processes.plain_error(ValueError("no cats")) is None
    assert not registered
    try:
        try:
            raise ValueError("Gloo all-reduce failed: Connection closed by peer")
        finally:  # as `fit` does, which puts the averages in place
            raise RuntimeError("Array has been deleted")
    except RuntimeError as error:
        plain = processes.plain_error(error)
    assert isinstance(plain, InvalidStateError)
    assert "another worker of the training died" in str(plain) and "Gloo" in str(plain)
    assert registered == [lost_process.end_at_once]
