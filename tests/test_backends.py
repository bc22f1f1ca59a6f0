"""The core on JAX and torch: the same tests, in a process of their own."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import pytest

TESTS = pathlib.Path(__file__).parent
# What the model is made of. `KERAS_BACKEND=jax pytest` runs the rest, too.
_DETECT = ("detections", "postprocess", "postprocess_outputs")
PARTS = [*(f"detect/test_{name}.py" for name in _DETECT)]
PARTS += ["test_letterbox.py", "test_box_ops.py"]
MODELS = ["network", "model"]
TRAINING = sorted(TESTS.glob("train/test_*.py"))
# Most of JAX's time is compiling, of tiny networks that are fast anyhow.
QUICK_COMPILER = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)


@pytest.mark.extra_packages
@pytest.mark.parametrize(
    ("backend", "rooms"),
    # JAX's in parts of about one length, for two processes at a time.
    [
        pytest.param("jax", TRAINING[::2], id="jax-training-1"),
        pytest.param("jax", TRAINING[1::2], id="jax-training-2"),
        pytest.param("jax", MODELS, id="jax-models"),
        pytest.param("jax", PARTS, id="jax-parts"),
        pytest.param("torch", PARTS + MODELS + TRAINING, id="torch"),
    ],
)
def test_the_core_passes_on(backend, rooms, tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("runs once, from the tests on TensorFlow")
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed: pip install -e '.[{backend}]'")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]
        + [str(TESTS / name) for name in rooms],
        cwd=TESTS.parent,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "XLA_FLAGS": QUICK_COMPILER,
            # What several tests compile alike is compiled once.
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    print(result.stdout[-6000:])
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
