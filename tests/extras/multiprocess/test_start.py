"""What `start` refuses before it starts anything."""

import keras
import pytest

from effdet_keras import distribution
from effdet_keras._internal.processes import ENGINES, is_first_process
from effdet_keras.extras import multiprocess


@pytest.mark.tensorflow
def test_several_workers_need_a_launcher(monkeypatch):
    for name in ("TF_CONFIG", "JAX_PROCESS_ID", "RANK", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG.*docs/distributed.md"):
        distribution.start("multiworker")


def test_an_engine_needs_its_backend():
    other = "jax" if keras.backend.backend() == "tensorflow" else "mirrored"
    backend = ENGINES[other]
    with pytest.raises(ValueError, match=f"KERAS_BACKEND={backend}"):
        distribution.start(other)


def test_a_process_has_one_engine(monkeypatch):
    engine = object()
    monkeypatch.setattr(multiprocess, "_started", {"mirrored": engine})
    assert distribution.start("mirrored") is engine
    with pytest.raises(RuntimeError, match="trains with distribute='mirrored'"):
        distribution.start("jax")


def test_alone_a_process_is_the_first_and_gathers_its_own():
    processes = distribution.current_processes()
    assert (processes.index, processes.count) == (0, 1)
    assert processes.gather([1]) == [[1]]
    assert is_first_process()
