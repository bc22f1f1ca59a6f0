from . import boxes, misc  # noqa: F401
from .boxes import *  # noqa: F403
from .misc import FrozenBatchNorm2d  # noqa: F401
