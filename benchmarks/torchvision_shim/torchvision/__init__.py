"""What timm and effdet import of torchvision, in plain torch.

For machines where torchvision has no build that fits torch. Box operations and
`FrozenBatchNorm2d` are real, the rest can be imported but not used.
"""

__version__ = "0.28.0+peershim"

from . import datasets, ops, transforms, utils  # noqa: F401
