"""Files as google/automl's programs write them, from lists of names alone.

The lists are the reference's (`tests/golden/names_d0_*.txt`), not our table of
names: what we read is checked against what was there, not against ourselves.
"""

import h5py
import numpy as np

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT = "/.OPTIMIZER_SLOT/optimizer/"
AVERAGE = "/ExponentialMovingAverage"


def rows(path):
    """The rows of a list of names: name, shape, and what else it has."""
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            name, shape, *more = line.split(" | ")
            is_scalar = shape == "scalar"
            yield name, () if is_scalar else tuple(map(int, shape.split("x"))), *more


def save_tensors(prefix, tensors):
    """A TensorFlow checkpoint of these keys, whatever they are."""
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.convert_to_tensor(value) for value in tensors.values()],
    )
    return str(prefix)


def tf1_tensors(golden_path, refweights):
    """A training checkpoint of `main.py`: raw values, averages, momentum, step."""
    tensors = {"global_step": np.int64(7), "beta1_power": np.float32(0.9)}
    for name, shape, trains in rows(golden_path("names_d0_tf1.txt")):
        tensors[name] = refweights.value(name, shape, salt="refdet-raw")
        tensors[name + AVERAGE] = refweights.value(name, shape)
        if trains == "T":
            tensors[f"{name}/Momentum"] = np.zeros(shape, "float32")
    return tensors


def graph_tensors(golden_path, refweights):
    """A checkpoint of `tf2/train.py`: raw values, and averages of what trains."""
    tensors = {
        "_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"graph"),
        f"save_counter{VALUE}": np.int64(1),
        f"optimizer/iter{VALUE}": np.int64(7),
        f"optimizer/awg_optimizer/decay{VALUE}": np.float32(0),
    }
    for key, shape, trains, name in rows(golden_path("names_d0_keras.txt")):
        salt = "refdet-raw" if trains == "T" else refweights.SALT
        tensors[key + VALUE] = refweights.value(name, shape, salt=salt)
        if trains == "T":
            average = refweights.value(name, shape)
            tensors[f"{key}{SLOT}average{VALUE}"] = average
            momentum = np.zeros(shape, "float32")
            tensors[f"{key}{SLOT}awg_optimizer/momentum{VALUE}"] = momentum
    return tensors


def hub_tensors(golden_path, refweights):
    """A checkpoint of the trainer on a hub module: TF1 names as keys of a dict."""
    tensors = {f"optimizer/iter{VALUE}": np.int64(7)}
    for name, shape, *_ in rows(golden_path("names_d0_tf1.txt")):
        scope, leaf = name.rsplit("/", 1)
        if scope in ("class_net/class-predict", "box_net/box-predict"):
            key = f"{'classes' if scope.startswith('class') else 'boxes'}/{leaf}"
        else:
            key = "base_model/" + name.replace("/", ".S") + ":0"
        tensors[key + VALUE] = refweights.value(name, shape)
    return tensors


def write_h5(path, golden_path, refweights, group=""):
    """`save_weights` of Keras 2, or with "model_weights/" its `model.save`."""
    with h5py.File(path, "w") as file:
        for name, shape in rows(golden_path("names_d0_h5.txt")):
            tf1_name = name.partition("/")[2].removesuffix(":0")
            file[group + name] = refweights.value(tf1_name, shape)
    return str(path)
