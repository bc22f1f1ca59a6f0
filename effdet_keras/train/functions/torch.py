"""The functions of `fit`, `evaluate` and `predict` on PyTorch: checked.

What a step computes is in `train/steps/torch.py`.
"""

import contextlib
from collections.abc import Callable
from typing import Any


class TorchFunctions:
    """How Keras runs the steps of `EfficientDet` on PyTorch."""

    # Whether the train function is given a batch that `fit` has drawn.
    receives_batches = True

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            super().make_train_function(force)
            self.train_function = self._checked(self.train_function, is_training=True)
            self.skip_steps_before_position()

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            super().make_test_function(force)
            self.test_function = self._checked(self.test_function, is_training=False)

    def _checked(self, function, is_training):
        """A function of a batch that raises where its loss is NaN."""

        def run(data):
            logs = function(data)
            self.check_loss(logs["loss"], data[0], is_training=is_training)
            return logs

        return run

    def predict_of_process(
        self, keras_predict: Callable, model: Any, inputs: Any
    ) -> Any:
        """What a model, or one that runs it, predicts for a batch of this process."""
        return keras_predict(inputs)

    def variable_scope(self) -> contextlib.AbstractContextManager:
        """The context in which variables are made for all devices of the model."""
        return contextlib.nullcontext()

    def prepare_fit_data(self, data: Any) -> Any:
        """What Keras' `fit` is given for the batches of this process."""
        return data

    def skipped_step(self, logs: dict, *arguments: Any) -> Any:
        """What a train function returns for a step that is not trained."""
        return logs
