"""What tests of all rules of matching share: boxes, and one graph for all sizes."""

import numpy as np


def random_truth(seed, num_images, num_boxes):
    """Boxes of many sizes, some labels -1, as padding between real rows."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-8, 60, (num_images, num_boxes, 2))
    high = low + rng.uniform(2, 60, (num_images, num_boxes, 2))
    labels = rng.integers(-1, 5, (num_images, num_boxes))
    return np.concatenate([low, high], -1).astype("float32"), labels.astype("int32")


def assert_one_graph_serves_any_sizes(match, num_anchors, jit_compile):
    """A graph of any number of images and boxes gives what `match` gives eagerly.

    Args:
        match: function of boxes and labels; class targets and box targets.
        num_anchors: int.
        jit_compile: bool, whether XLA compiles it.
    """
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 4]),
            tf.TensorSpec([None, None], tf.int64),
        ],
        jit_compile=jit_compile,
    )
    def graph(boxes, labels):
        found = match(boxes, labels)
        assert found[0].shape.as_list() == [None, num_anchors]
        assert found[1].shape.as_list() == [None, num_anchors, 4]
        return found

    for num_images, num_boxes in [(1, 0), (1, 3), (3, 1), (2, 0)]:
        boxes, labels = random_truth(6, num_images, num_boxes)
        expected = match(boxes, labels)
        found = graph(boxes, labels.astype("int64"))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
