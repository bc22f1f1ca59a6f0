"""What tests and doctests share: random state, names, and the backend's limits."""

import importlib.util
import os
import pathlib
import random
import re
import signal
import sys
import zlib

# One thread for each worker of `pytest -n auto`, of which there is one for each core:
# more wait for each other, which takes a tenth of the time of a step.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import keras
import numpy as np
import pytest
from keras.src.backend.common import global_state

PACKAGE = pathlib.Path(__file__).parent / "effdet_keras"
BACKEND = keras.backend.backend()
STOPS = (signal.SIGINT, signal.SIGTERM)
SEED = 7


# What is collected

# Rooms whose doctests run on the TensorFlow backend alone.
TENSORFLOW_ROOMS = {"augment", "callbacks", "cli", "data", "export", "extras"}
TENSORFLOW_ROOMS |= {"hub", "runs"}
# Tests of functions of arrays, each for many cases. Another backend than TensorFlow
# compiles every case again: one shows that it runs there, `--every-case` runs all.
TESTS_OF_CASES = (
    "test_box_ops.py",
    "test_letterbox.py",
    "detect/test_postprocess.py",
    "network/test_anchors.py",
    "train/test_losses.py",
    "train/test_matching.py",
)
FRAMEWORK = re.compile(
    r"^(?:import|from) (?:keras\.src\.backend\.)?(tensorflow|jax|torch)\b", re.MULTILINE
)


def pytest_addoption(parser):
    parser.addoption(
        "--every-case",
        action="store_true",
        help="on another backend than TensorFlow, every case of each test",
    )


def pytest_ignore_collect(collection_path):
    """Leaves out a file of the package that imports a framework that is not there.

    Doctests are collected by importing a file, and who has TensorFlow need not have
    JAX and torch.
    """
    path = collection_path
    if path.suffix != ".py" or not path.is_relative_to(PACKAGE):
        return None
    room = path.relative_to(PACKAGE).parts[0]
    if BACKEND != "tensorflow" and room in TENSORFLOW_ROOMS:
        return True
    needed = set(FRAMEWORK.findall(path.read_text()))
    return any(importlib.util.find_spec(name) is None for name in needed) or None


def pytest_collection_modifyitems(config, items):
    # Minutes each: first, so that they do not run alone at the end.
    items.sort(key=lambda item: item.path.name != "test_backends.py")
    if BACKEND == "tensorflow":
        return
    every_case, seen = config.getoption("--every-case"), set()
    for item in items:
        is_another_case = _test_of(item) in seen and not every_case
        if item.get_closest_marker("tensorflow"):
            reason = "needs the TensorFlow backend"
        elif item.get_closest_marker("slow_elsewhere"):
            reason = f"minutes of compiling on {BACKEND}, for the same code"
        elif is_another_case and _test_of(item)[0].startswith(TESTS_OF_CASES):
            reason = f"another case ran on {BACKEND}; --every-case runs all"
        else:
            seen.add(_test_of(item))
            continue
        item.add_marker(pytest.mark.skip(reason=reason))


def _test_of(item):
    """The test that an item is a case of: its file in `tests`, and its name."""
    file, _, name = item.nodeid.partition("::")
    return file.removeprefix("tests/"), name.partition("[")[0]


# The same random state for every test, whatever ran before it


def set_random_state(seed):
    """Seeds `random`, NumPy and Keras, and torch where it is loaded.

    Keras draws the seeds of its initializers from `random`, and makes its global
    generator anew, from the same source, where there is none. Its own
    `set_random_seed` would have TensorFlow prepare every graph again.
    """
    random.seed(seed)
    np.random.seed(seed)
    global_state.set_global_attribute("global_seed_generator", None)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def seed_of(name):
    return zlib.crc32(name.encode())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """What a file computes while it is imported depends on its name alone."""
    set_random_state(seed_of(collector.nodeid))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    set_random_state(SEED)
    if BACKEND == "tensorflow":
        optimize_graphs(item.get_closest_marker("slow") is not None)


def optimize_graphs(wanted):
    """Whether TensorFlow optimizes graphs, as it does for people.

    Those of most tests run once, and optimizing one takes longer than running it.
    """
    import tensorflow as tf

    option, options = "disable_meta_optimizer", tf.config.optimizer
    # Set only where it changes: TensorFlow prepares every graph again.
    if options.get_experimental_options().get(option, False) is wanted:
        options.set_experimental_options({option: not wanted})


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """A fixture of several tests depends on its own name alone.

    It is made in whichever test comes first. That test must not notice.
    """
    if fixturedef.scope == "function":
        return (yield)
    states = random.getstate(), np.random.get_state()
    generator = global_state.get_global_attribute("global_seed_generator")
    set_random_state(seed_of(f"{fixturedef.argname}[{request.param_index}]"))
    try:
        return (yield)
    finally:
        set_random_state(SEED)
        random.setstate(states[0])
        np.random.set_state(states[1])
        global_state.set_global_attribute("global_seed_generator", generator)


@pytest.fixture(autouse=True)
def signal_handlers():
    """A test that leaves a handler of signals is no matter for the next one."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace["np"] = np
    doctest_namespace["keras"] = keras
    doctest_namespace["ops"] = keras.ops
