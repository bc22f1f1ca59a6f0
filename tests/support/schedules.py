"""The learning rate schedule of an optimizer, as its configuration has it."""

import keras


def schedule_of(optimizer):
    """Keras' `optimizer.learning_rate` is only the rate of the current step."""
    return keras.saving.deserialize_keras_object(
        optimizer.get_config()["learning_rate"]
    )
