"""The functions that Keras' `fit`, `evaluate` and `predict` call, for the backend."""

import keras

# As Keras does it: `EfficientDet` inherits the class of the backend that runs.
if keras.backend.backend() == "tensorflow":
    from effdet_keras.train.functions.tensorflow import (
        TensorFlowFunctions as BackendFunctions,
    )
elif keras.backend.backend() == "jax":
    from effdet_keras.train.functions.jax import JAXFunctions as BackendFunctions
else:
    from effdet_keras.train.functions.torch import TorchFunctions as BackendFunctions

__all__ = ["BackendFunctions"]
