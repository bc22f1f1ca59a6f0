"""Selects the functions of the backend that `fit`, `evaluate` and `predict` call."""

import keras

# As in Keras, `EfficientDet` inherits from the class of the current backend.
if keras.backend.backend() == "tensorflow":
    from effdet_keras.train.functions.tensorflow import (
        TensorFlowFunctions as BackendFunctions,
    )
elif keras.backend.backend() == "jax":
    from effdet_keras.train.functions.jax import JAXFunctions as BackendFunctions
else:
    from effdet_keras.train.functions.torch import TorchFunctions as BackendFunctions

__all__ = ["BackendFunctions"]
