"""The training step on TensorFlow: replicas, loss scaling, XLA where it is asked."""

import contextlib
import weakref

import keras
import tensorflow as tf

from effdet_keras._internal.extras import extra
from effdet_keras._internal.processes import current_processes
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.model.batch_norm import num_replicas, statistics_of, sum_of_replicas
from effdet_keras.model.computing import computing_with
from effdet_keras.train.optimizers import all_finite
from effdet_keras.train.parts import joined, step_counter, steps_per_update
from effdet_keras.train.steps import BackendStep


class Step(BackendStep):
    """`BackendStep` of TensorFlow."""

    left_out_steps_move_statistics = False

    def train(self, step, data):
        if not self._model.jit_compile:
            return self._logs(step(data))

        def step_with_logs(data):  # XLA cannot raise
            logs, goes_on = step(data)
            return self._logs(logs), goes_on

        done = tf.identity(step_counter(self._model.optimizer).value)
        logs, goes_on = self._by_xla(step_with_logs, data)
        return _after(self._refuse_unless(goes_on, data, done), logs)

    def gradients(self, data, before):
        model = self._model
        with tf.GradientTape() as tape:
            outputs, of_batch = self._outputs(data[0])
            loss = self._loss(data, outputs, training=True)
            # Replicas are summed below; a loss scale keeps float16 from underflow.
            scaled = model.optimizer.scale_loss(loss / num_replicas())
        gradients = self.gradients_of(tape, scaled, model.trainable_variables)
        own = before[: of_batch.shape[0]]
        moved = own + (of_batch - own) * model.rate_of_statistics()
        return loss, gradients, moved

    def _outputs(self, images):
        """The network's outputs, and statistics of the batch in the order of its own.

        All of these move at once, by two operations each. One by one, and back again
        where a batch is refused, they take eight.
        """
        model, own = self._model, self._model.moved_statistics()
        # Quantization assigns under conditions, whose values no scope can hand on.
        scope = keras.StatelessScope() if model.quantization is None else None
        with (
            scope or contextlib.nullcontext(),
            computing_with(give_statistics=_assign_statistics),
        ):
            outputs = model(images, training=True)
            of_batch = joined([v.value for v in own])
        if scope is None:
            return outputs, of_batch
        fields = ("variables", "statistics", "moved", "carried")
        of_parts = (v for field in fields for v in model.of_parts(field))
        for variable in (*model.variables, *of_parts):
            value = scope.get_current_value(variable)
            if value is not None and not any(variable is v for v in own):
                variable.assign(value)  # such as a random state
        return outputs, of_batch

    def on_all_replicas(self, is_fine):
        if num_replicas() == 1:
            return is_fine
        return sum_of_replicas(tf.cast(~is_fine, tf.float32)) == 0.0

    def finish(self, logs, update, goes_on, data, step):
        # What the forward pass moved is put back before anything is raised.
        model = self._model
        moved = model.of_parts("statistics") + model.of_parts("moved")
        with tf.control_dependencies([tf.convert_to_tensor(v.value) for v in moved]):
            goes_on = tf.identity(goes_on)
        if model.jit_compile:
            tf.cond(goes_on, lambda: update() or True, lambda: False)
            return logs, goes_on
        with tf.control_dependencies([self._refuse_unless(goes_on, data, step)]):
            update()
        return logs

    def test(self, keras_step, data):
        if self._model.jit_compile:
            logs, is_fine = self._by_xla(self._test, data)
        else:
            logs, is_fine = self._test(data)
        return _after(self._refuse_unless(is_fine, data), logs)

    @contextlib.contextmanager
    def making_function(self):
        """Keras compiles nothing that `compiled` compiles.

        XLA has no way back to Python, which refuses a batch: see `_by_xla`.
        """
        model, options = self._model, (self._model.jit_compile, self._model.run_eagerly)
        model.jit_compile = model.jit_compile and _is_on_tpu()
        model.run_eagerly = model.run_eagerly or self._compiles
        try:
            yield
        finally:
            model.jit_compile, model.run_eagerly = options

    @property
    def _compiles(self):
        model = self._model
        return not (model.run_eagerly or model.steps_per_execution > 1 or _is_on_tpu())

    def compiled(self, function):
        """Keras' function of an iterator, compiled.

        Keras compiles a step of a batch within a step of an iterator: TensorFlow copies
        the graph of one into that of the other, which takes 2 seconds of D0's first.
        """
        if not self._compiles:
            return function

        @tf.function(autograph=False, reduce_retracing=True)
        def steps_of(source):
            is_iterator = hasattr(source, "get_next")
            return function([source.get_next() if is_iterator else source])

        def run(iterator):
            if hasattr(iterator, "get_next"):
                return steps_of(iterator)
            return steps_of(next(iterator))  # Python's own, of `train_on_batch`

        return run

    def scope(self):
        strategy = self._model.distribute_strategy
        if strategy is tf.distribute.get_strategy():
            return contextlib.nullcontext()
        return strategy.scope()

    def data_of_fit(self, data):
        if current_processes().count == 1:
            return data
        rule = "Several processes train on a `DetectionDataset` or a `tf.data.Dataset`"
        require(hasattr(data, "element_spec"), rule, type=type(data))
        if not self._model.config.sync_batch_norm:
            raise InvalidValueError(
                "Several processes need `sync_batch_norm=True` in the model's config: "
                "without it each has statistics of its own, and only the first's are "
                "saved. Pass it to `from_preset`."
            )
        strategy = self._model.distribute_strategy
        count = len(strategy.extended.worker_devices)
        size = keras.tree.flatten(data.element_spec)[0].shape[0]
        rule = f"Each of the {count} devices of a process trains on as many images"
        require(size and size % count == 0, rule, images_per_process=size)
        # Keras would have TensorFlow share out what is shared out already.
        parts = data.rebatch(size // count, drop_remainder=True) if count > 1 else data
        return strategy.distribute_datasets_from_function(lambda context: parts)

    def normalizer(self, num_positives, rule):
        """Replicas sum their gradients: together they take the loss of one batch."""
        count = num_replicas()
        if count == 1:
            return None
        return rule(sum_of_replicas(num_positives)) / count

    def predicting(self, predict_function):
        if self._model.distribute_strategy.num_replicas_in_sync == 1:
            return predict_function
        predicting = extra("multiprocess.tensorflow:predicting")
        return predicting(self._model, predict_function)

    @staticmethod
    def gradients_of(tape, target, variables):
        """The gradients of a scalar, zeros for what it does not depend on.

        The tape's own `unconnected_gradients="zero"` cannot make zeros of a Keras
        variable where a step runs eagerly.
        """
        gradients = tape.gradient(target, variables)
        return [
            tf.zeros_like(variable.value) if gradient is None else gradient
            for gradient, variable in zip(gradients, variables, strict=True)
        ]

    def clipped(self, gradients):
        """As everywhere, of gradients with loss scale, one replica's share.

        Clipping what the sum over replicas will be makes N replicas equal one device;
        the reference clips before it.
        """
        count = num_replicas()
        if count == 1:
            return super().clipped([tf.convert_to_tensor(g) for g in gradients])
        steps = steps_per_update(self._model.optimizer)
        if steps > 1:
            raise InvalidValueError(
                "Keras cannot accumulate gradients under a `tf.distribute` strategy of "
                "several devices. Leave `accumulate_steps` out. Received: "
                f"accumulate_steps={steps}"
            )
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce("SUM", gradients)
        whole, norm = super().clipped([tf.convert_to_tensor(g) for g in gradients])
        return [g / count for g in whole], norm

    def _by_xla(self, step, data):
        """Runs a step on a batch as one function that XLA compiles.

        What must stay outside does: strings, and the error of a batch that is refused.
        """
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        numbers = {n: v for n, v in truth.items() if v.dtype != tf.string}
        compiled = tf.function(step, jit_compile=True, autograph=False)
        return compiled((images, numbers, weight))

    def _test(self, data):
        loss = self._loss(data, self._model(data[0], training=False), training=False)
        self._model._loss_tracker.update_state(loss)
        logs = self._model.get_metrics_result()
        logs = self._model.settings.trackers.without_steps(logs)
        return self._logs(logs), all_finite([loss])

    def _logs(self, logs):
        """Logs as Keras reduces them: those of several processes along an axis."""
        if current_processes().count == 1:
            return logs
        return {name: tf.reshape(value, [1]) for name, value in logs.items()}

    def _loss(self, data, outputs, training):
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        loss = self._model.compute_loss
        return loss(images, truth, outputs, weight, training=training)

    def _refuse_unless(self, is_fine, data, step=None):
        """An operation that raises where a batch is not fine."""
        model = self._model
        if _is_on_tpu():  # nothing but XLA runs there, which cannot raise
            return tf.no_op()
        _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        explained = ("boxes", "labels", "masks", "image_id")
        names = [name for name in explained if name in truth]
        refuse = _Refusal(model, names)
        done = -1 if step is None else step
        return tf.cond(
            is_fine,
            lambda: True,
            lambda: tf.numpy_function(refuse, [done, *map(truth.get, names)], tf.bool),
        )


def _assign_statistics(batch_norm, *of_batch):
    for statistic, value in zip(statistics_of([batch_norm]), of_batch):
        statistic.assign(value)


def _after(operation, logs):
    """Logs that are there once an operation has been done."""
    with tf.control_dependencies([operation]):
        return {name: tf.identity(value) for name, value in logs.items()}


def _is_on_tpu():
    return bool(tf.config.list_logical_devices("TPU"))


class _Refusal:
    """Raises what a batch is refused with; TensorFlow never lets go of it.

    So it holds no model, which could not be freed otherwise, nor its graphs.
    """

    def __init__(self, model, names):
        self._model = weakref.ref(model)
        self._names = names

    def __call__(self, done, *arrays):
        step = None if done < 0 else int(done) + 1
        raise self._model().refusal(dict(zip(self._names, arrays)), step=step)
