"""Arrays of models, of configs and of files of weights, and how they compare."""

import tarfile

import numpy as np
from keras import ops

from effdet_keras.weights.identify import match_arrays
from effdet_keras.weights.network_arrays import network_arrays, tf1_name


def values(model):
    """The weights of a model by their names in TF1 checkpoints."""
    return {tf1_name(v): np.array(ops.convert_to_numpy(v)) for v in model.weights}


def random_arrays(config, seed=0):
    """Arrays that are no weights of a new model, with variances above zero."""
    rng = np.random.default_rng(seed)
    return {
        array.name: rng.uniform(0.01, 0.1, array.shape).astype("float32")
        for array in network_arrays(config)
    }


def whole_match(source, config):
    """The arrays of a config's network: a source has each, and nothing else."""
    match = match_arrays(source, config)
    assert (match.missing, match.left_over, match.mismatched) == ([], [], {})
    return match.found


def pack(path, folder):
    """A `.tar.gz` of a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path
