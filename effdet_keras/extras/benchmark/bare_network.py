"""The network of a live model without its postprocess, to time it alone."""

import keras
from keras import ops

from effdet_keras._internal.backend import default_jit_compile


class BareNetwork(keras.Model):
    """A network without postprocess, compiled as `predict` compiles it."""

    def __init__(self, model):
        super().__init__(name="network")
        self.model = model
        self.jit_compile = default_jit_compile()

    def call(self, images):
        outputs = self.model(images, training=False)
        # All logits of D0 are 18 MB, which take time to copy to the host. Since the
        # postprocess starts from the best logit of each anchor, these are enough.
        best = ops.max(outputs["class_logits"], axis=-1)
        return {"best": best, "box_deltas": outputs["box_deltas"]}
