"""Settings of the backends that a check of an export changes, and puts back."""

import keras
import pytest

from effdet_keras._internal.backend import without_tf32


def with_tensorflow():
    tf = pytest.importorskip("tensorflow")
    return tf.config.experimental.tensor_float_32_execution_enabled()


def with_jax():
    jax = pytest.importorskip("jax")
    return jax.config.jax_default_matmul_precision != "highest"


def with_torch():
    torch = pytest.importorskip("torch")
    if hasattr(torch.backends.cudnn, "conv"):
        return torch.backends.cudnn.conv.fp32_precision == "tf32"
    return torch.backends.cudnn.allow_tf32


@pytest.mark.extra_packages
@pytest.mark.parametrize("has_tf32", [with_tensorflow, with_jax, with_torch])
def test_float32_has_all_of_its_bits_within_the_block_alone(has_tf32, monkeypatch):
    backend = has_tf32.__name__.removeprefix("with_")
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    assert has_tf32()
    with pytest.raises(KeyError), without_tf32():
        assert not has_tf32()
        raise KeyError
    assert has_tf32()
