"""The peer: PyTorch effdet 0.4.1, with a stand-in if torchvision is missing."""

import importlib.util
import pathlib
import sys

if importlib.util.find_spec("torchvision") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "torchvision_shim"))

NUM_CLASSES = 90


def network(task="", name="efficientdet_d0", size=512):
    """Returns D0 with random weights; `task="train"` adds anchors and losses.

    It is `efficientdet_d0`, not `tf_efficientdet_d0`. The latter pads like TensorFlow,
    as ours does, but by a separate operation before each strided layer, and is slower.
    """
    import effdet

    return effdet.create_model(
        name,
        bench_task=task,
        bench_labeler=task == "train",
        image_size=(size, size),
        pretrained=False,
        pretrained_backbone=False,
    )
