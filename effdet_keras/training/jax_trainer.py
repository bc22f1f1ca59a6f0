"""The training step on JAX: Keras' own, then the averages, as state."""

import keras

from effdet_keras.training.base_trainer import BaseTrainer

# What Keras calls the parts of the state that it hands through a step.
_STATE = (
    *("trainable_variables", "non_trainable_variables"),
    *("optimizer_variables", "metrics_variables"),
)


class Trainer(BaseTrainer):
    """`train_step` and `predict_step` for JAX.

    The averages travel with the variables of the metrics, which Keras hands
    through its compiled steps.
    """

    @staticmethod
    def default_jit_compile():
        return True  # without it JAX runs one operation at a time

    @property
    def metrics_variables(self):
        averages = [] if self.averages is None else self.averages.variables
        return [*super().metrics_variables, *averages]

    def make_train_function(self, force=False):
        """Keras' own, except that an error in a step leaves the model whole.

        For a step Keras takes the values out of the variables; where the first
        one fails, on wrong truth for example, it does not put them back.
        """
        is_new = force or self.train_function is None
        super().make_train_function(force)
        if not is_new:
            return
        train_function = self.train_function

        def keeping_state(state, iterator):
            try:
                return train_function(state, iterator)
            except BaseException:
                self._jax_state = dict(zip(_STATE, state))  # `fit` puts it back
                raise

        self.train_function = keeping_state

    def train_step(self, state, data):
        step = self._iterations(state)
        logs, state = super().train_step(state, data)
        return logs, self._with_averages(state, step)

    def predict_step(self, state, data):
        outputs, state = super().predict_step(state, data)
        return self.detect_outputs(outputs), state

    def _iterations(self, state):
        _, _, optimizer_values, _ = state
        variables = [v is self.optimizer.iterations for v in self.optimizer.variables]
        return optimizer_values[variables.index(True)]

    def _with_averages(self, state, step):
        if self.averages is None:
            return state
        trainable, non_trainable, optimizer, metrics = state
        mapping = [
            *zip(self.trainable_variables, trainable),
            *zip(self.non_trainable_variables, non_trainable),
            *zip(self.metrics_variables, metrics),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            self.averages.update(step)
        metrics = [scope.get_current_value(v) for v in self.metrics_variables]
        return trainable, non_trainable, optimizer, metrics
