"""The registry of kinds of weights files: recognizes the kind of a file, and reads it.

A new kind needs one module with a `Kind`, here or in an extra, and one line in `KINDS`.
"""

import pathlib

from effdet_keras._internal.extras import extra
from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds import automl, keras_h5, own, torch_state_dict

# The kinds are tried in this order: checkpoints of the Object Detection API before all
# other TensorFlow checkpoints, our own HDF5 files before those of Keras 2.
KINDS = (
    "tfod.checkpoint:KIND",
    automl.KIND,
    own.KIND,
    keras_h5.KIND,
    torch_state_dict.KIND,
)
_HEAD = 16  # bytes, enough to distinguish the formats


def open_weights(path, averages=True, pipeline_config=None, own_pipeline_config=None):
    """Recognizes the kind of a weights file, and reads it as a `WeightSource`.

    Args:
        path: path of a file, or prefix of a TensorFlow checkpoint.
        averages: bool, whether to take moving averages if the file has any.
        pipeline_config: path of the `pipeline.config` of a checkpoint of the Object
            Detection API, or None.
        own_pipeline_config: path of a `pipeline.config` to use if there is no
            `pipeline_config` and none next to the checkpoint, or None.

    Raises:
        ValueError: If the kind is unknown or the file cannot be read, or if there is a
            `pipeline_config` for another kind of file.
        FileNotFoundError: If there is no such file.
    """
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
            "`pipeline_config` can be given only with checkpoints of the Object "
            f"Detection API. Received: '{path}', which is of another kind: "
            f"{kind.title}"
        )
    if kind is not None:
        return kind.read(path, averages, **{n: options[n] for n in kind.options})
    if not path.exists():
        raise FileNotFoundError(f"There is no file '{path}' with weights")
    titles = "; ".join(kind.title for kind in _kinds())
    raise InvalidValueError(
        f"'{path}' contains no weights of a known kind. Known kinds are: {titles}; a "
        "`.tar.gz` of any of these; and the http(s) address of one."
    )


def _kinds():
    return [extra(kind) if isinstance(kind, str) else kind for kind in KINDS]
