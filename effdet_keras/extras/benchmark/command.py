"""`effdet-keras benchmark`."""

from __future__ import annotations

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import Precision, Runtime


def run(
    model: str,
    *,
    images: str | None = None,
    batch_size: int = 1,
    runs: int = 30,
    json: str | None = None,
    trace: str | None = None,
    threads: int | None = None,
    runtime: Runtime | None = None,
    precision: Precision = "float32",
    overwrite: bool = False,
) -> None:
    """measure how long a model takes per image

    Measures how long detection takes, and how long each of its stages: reading the
    files, letterbox, network, postprocess.

    Args:
        images (FOLDER): folder of images (by default, generated images of 640 x 480)
        runs (N): batches to measure, after 3 to warm up
        json (FILE): file for the numbers
        trace (FOLDER): folder for a TensorFlow profile of the runs, which it slows down
    """
    keras.require("`effdet-keras benchmark`")
    from effdet_keras.cli.files import check_outputs, open_any_model
    from effdet_keras.extras.benchmark.benchmark_model import benchmark

    check_outputs([json], [model], overwrite=overwrite)
    predictor = open_any_model(model, threads, runtime=runtime, precision=precision)
    sizes = {"batch_size": batch_size, "runs": runs}
    report = benchmark(predictor, images, trace=trace, **sizes)
    print(report)
    if json is not None:
        report.save(json)
