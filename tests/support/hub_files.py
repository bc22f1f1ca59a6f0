"""TF-Hub modules for tests, made without this package, and a server for them."""

import contextlib
import http.server
import io
import tarfile

import numpy as np
import tensorflow as tf
from support.remote import Quiet, served

IMAGES = tf.TensorSpec((None, None, None, 3), tf.float32, name="images")


class SmallModule(tf.Module):
    """A module in google/automl's format: one convolution, one batch norm, pools."""

    def __init__(self, num_levels=3):
        super().__init__()
        self.num_levels = num_levels
        random = np.random.default_rng(0)

        def variable(name, value, trainable=True):
            value = tf.constant(value, tf.float32)
            return tf.Variable(value, trainable=trainable, name=name)

        kernel = random.normal(size=(8, 8, 3, 16)) / 10
        self.kernel = variable("stem/conv/kernel", kernel)
        self.gamma = variable("stem/bn/gamma", np.ones(16))
        self.beta = variable("stem/bn/beta", np.zeros(16))
        self.mean = variable("stem/bn/moving_mean", np.zeros(16), False)
        self.variance = variable("stem/bn/moving_variance", np.ones(16), False)
        self.steps = variable("steps", 0.0, False)  # which no one may train

    @tf.function
    def __call__(self, images, training=False):
        x = tf.nn.conv2d(images, self.kernel, 8, "SAME")
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = tf.nn.moments(x, (0, 1, 2))
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance)
            self.steps.assign_add(1.0)
        x = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, 1e-3)
        levels = [tf.nn.relu(x)]
        for _ in range(self.num_levels - 1):
            levels.append(tf.nn.max_pool2d(levels[-1], 2, 2, "SAME"))
        return levels, [0.5 * x for x in levels]


def save_small_module(folder, **arguments):
    module = SmallModule(**arguments)
    return save_callable(module, folder)


def save_callable(module, folder, images=IMAGES):
    """Saves a module for both values of `training`."""
    for training in (True, False):
        module.__call__.get_concrete_function(images, training=training)
    tf.saved_model.save(module, str(folder))
    return str(folder)


def save_function(function, folder, **variables):
    """Saves a module that computes a Python function of (images, training)."""
    module = tf.train.Checkpoint(**variables)
    module.__call__ = tf.function(function)
    return save_callable(module, folder)


def save_detector(folder, outputs, shape=(1, None, None, 3), dtype=tf.uint8):
    """Saves a module with one signature: `outputs`, computed from the images."""
    module = tf.train.Checkpoint()
    module.detect = tf.function(
        outputs, input_signature=[tf.TensorSpec(shape, dtype, name="input_tensor")]
    )
    signatures = {"serving_default": module.detect}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return str(folder)


@contextlib.contextmanager
def serving(modules):
    """An http server as tfhub.dev is one: gives folders, compressed, by name.

    Yields its address, and a list that every request is added to.
    """
    requests = []

    class Handler(Quiet, http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            name, _, query = self.path.lstrip("/").partition("?")
            if name not in modules or query != "tf-hub-format=compressed":
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(_compressed(modules[name]))

    with served(Handler) as server:
        yield server.address, requests


def _compressed(content):
    if isinstance(content, bytes):
        return content
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(content, arcname="./")
    return buffer.getvalue()
