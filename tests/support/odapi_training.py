"""Two training steps on the Object Detection API's own data, in a process of its own.

TensorFlow reads `TF_ENABLE_ONEDNN_OPTS` once. Without it, it computes as the one that
made the golden data: the gradients of this random network differ by hundredths with it.
"""

import json
import sys

import keras
import numpy as np
from support.odapi import odapi_path, padded_truth

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.network_arrays import tf1_name

_SIZE = 256


def digest(value):
    """Sum, sum of magnitudes and first eight values, as the golden rows are."""
    flat = np.zeros(8)
    values = np.asarray(value, "float64").ravel()
    flat[: min(8, values.size)] = values[:8]
    return np.array([values.sum(), np.abs(values).sum(), *flat])


def _named(pairs):
    return {tf1_name(v): keras.ops.convert_to_numpy(value) for v, value in pairs}


def _rows(named, names):
    """Digests; a fusion weight is one array there, and several scalars here."""
    parts = [[np.ravel(named[n]) for n in row if n in named] for row in names]
    missing = np.full(10, np.nan)
    return np.array([digest(np.concatenate(p)) if p else missing for p in parts])


def main(target):
    meta = json.loads(str(np.load(odapi_path("train_step.npz"))["meta"]))
    arrays = np.load(odapi_path("losses.npz"))
    images = np.load(odapi_path("d0_256/outputs.npz"))
    model = EfficientDet.from_pipeline_config(
        odapi_path("d0_256/pipeline.config"),
        weights=odapi_path("d0_256"),
        verbose=0,
        backbone_survival_prob=None,
        mean_rgb=0.0,  # the images are normalised already
        stddev_rgb=1.0,
    )
    images = np.concatenate([images[f"{name}/preprocessed"] for name in "ab"])
    truth = padded_truth(arrays, "network", _SIZE, rows=6)
    logs = model.test_on_batch(images, truth, return_dict=True)
    found = {f"evaluated/{name}": value for name, value in logs.items()}
    for step in (0, 1):
        logs = model.train_on_batch(images, truth, return_dict=True)
        momenta = zip(model.trainable_variables, model.optimizer.momentums)
        rows = {
            "weights": _rows(_named(zip(model.weights, model.weights)), meta["tf1"]),
            "momentum": _rows(_named(momenta), meta["tf1"]),
            **logs,
        }
        found |= {f"step{step}/{name}": value for name, value in rows.items()}
    np.savez(target, **found)


if __name__ == "__main__":
    main(sys.argv[1])
