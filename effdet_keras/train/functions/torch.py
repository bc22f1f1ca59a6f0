"""The functions of `fit`, `evaluate` and `predict` on PyTorch: checked.

What a step computes is in `train/steps/torch.py`.
"""

from effdet_keras.train.training_defaults import TrainingDefaults


class TorchFunctions(TrainingDefaults):
    """How Keras runs the steps of `EfficientDet` on PyTorch."""

    receives_batches = True

    def _with_finite_check(self, function, is_training):
        """A function of a batch that raises where its loss is NaN."""

        def run(data):
            logs = function(data)
            # Keras passes a list with one batch.
            self.check_loss(logs["loss"], data[0], is_training=is_training)
            return logs

        return run
