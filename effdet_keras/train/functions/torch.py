"""The functions of `fit`, `evaluate` and `predict` on PyTorch.

They check the loss of each step. The computations of a step are in
`train/steps/torch.py`.
"""

from effdet_keras.train.training_defaults import TrainingDefaults


class TorchFunctions(TrainingDefaults):
    """Methods with which Keras runs the steps of `EfficientDet` on PyTorch."""

    receives_batches = True

    def _with_finite_check(self, function, is_training):
        """Wraps a function of a batch, to raise an error for a loss that is NaN."""

        def run(data):
            logs = function(data)
            # Keras passes a list with one batch.
            self.check_loss(logs["loss"], data[0], is_training=is_training)
            return logs

        return run
