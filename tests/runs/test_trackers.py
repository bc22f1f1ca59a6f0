"""Trackers of experiments see a run through their own callbacks, without a network.

No extra brings them: `pip install mlflow wandb`, and `pytest -m slow`.
"""

import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
NAMES = ("loss", "class_loss", "learning_rate", "AP", "AP50", "AP/circle")


def package(name):
    return pytest.importorskip(name, reason=f"{name} is not installed: no extra has it")


@pytest.fixture
def run(shapes, tmp_path, monkeypatch):
    """Trains one step with a callback; what it came to."""
    monkeypatch.chdir(tmp_path)  # some write to where they are called

    def fine_tune(*callbacks, **fields):
        return ek.fine_tune(
            shapes,
            out=tmp_path / "run",
            callbacks=callbacks,
            **tiny_run(one_batch=True, **fields),
        )

    return fine_tune


def test_mlflow_has_the_numbers_by_their_names(run, tmp_path):
    mlflow = package("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run() as tracked:
        result = run(mlflow.keras.MlflowCallback())
    mlflow.flush_async_logging()
    found = mlflow.MlflowClient().get_run(tracked.info.run_id).data.metrics
    for name in NAMES:
        assert found[name] == pytest.approx(result.history[name][-1]), name


def test_wandb_has_the_numbers_behind_its_own_word(run, tmp_path, monkeypatch):
    wandb = package("wandb")
    integration = package("wandb.integration.keras")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="cats", dir=str(tmp_path)) as tracked:
        result = run(integration.WandbMetricsLogger())
        found = dict(tracked.summary)
    for name in set(NAMES) - {"learning_rate"}:  # which it reads after the epoch
        assert found[f"epoch/{name}"] == pytest.approx(result.history[name][-1]), name
