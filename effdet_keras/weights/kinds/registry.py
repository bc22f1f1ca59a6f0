"""The kinds of weights files there are: which one a file is of, and its reader.

A new kind is one file with a `Kind`, here or in an extra, and one line in `KINDS`.
"""

import pathlib

from effdet_keras._internal.extras import extra
from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds import automl, keras_h5, own, torch_state_dict

# Asked in this order: checkpoints of one API before all others of TensorFlow, our own
# HDF5 files before those of Keras 2.
KINDS = (
    "tfod.checkpoint:KIND",
    automl.KIND,
    own.KIND,
    keras_h5.KIND,
    torch_state_dict.KIND,
)
_HEAD = 16  # bytes, enough to tell the formats apart


def open_weights(path, averages=True, pipeline_config=None, own_pipeline_config=None):
    """Finds out the kind of a weights file, and reads it as a `WeightSource`."""
    path = pathlib.Path(path)
    head = b""
    if path.is_file():
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    kind = next((kind for kind in _kinds() if kind.is_of(path, head)), None)
    options = {
        "pipeline_config": pipeline_config,
        "own_pipeline_config": own_pipeline_config,
    }
    if kind is not None and pipeline_config is not None and not kind.options:
        raise WholeFileError(
            "`pipeline_config` belongs to checkpoints of the Object Detection API. "
            f"Received: '{path}', which is of another kind: {kind.title}"
        )
    if kind is not None:
        return kind.read(path, averages, **{n: options[n] for n in kind.options})
    if not path.exists():
        raise FileNotFoundError(f"There is no file of weights '{path}'")
    titles = "; ".join(kind.title for kind in _kinds())
    raise InvalidValueError(
        f"'{path}' holds no weights of a known kind. Known are {titles}; a "
        "`.tar.gz` of any of these; and the http(s) address of one."
    )


def _kinds():
    return [extra(kind) if isinstance(kind, str) else kind for kind in KINDS]
