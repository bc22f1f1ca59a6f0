"""State dicts of PyTorch: of a detector of effdet, or of a backbone alone."""

import pathlib

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds.kind import Kind
from effdet_keras.weights.kinds.torch_effdet import (
    ENDINGS,
    effdet_source,
    holds_effdet,
)
from effdet_keras.weights.kinds.torch_efficientnet import (
    efficientnet_source,
    holds_efficientnet,
)
from effdet_keras.weights.kinds.torch_files import (
    PICKLE_MAGIC,
    ZIP_MAGIC,
    read_torch_file,
)


def read_torch_state_dict(path, averages=True):
    """Reads the weights of a detector or of a backbone, as the names in it tell.

    Args:
        path: path of a file of `torch.save` or of a `.safetensors` file.
        averages: bool, see `read_torch_effdet`.

    Returns:
        `WeightSource`.

    Raises:
        ValueError: If the file is damaged, needs Python code to be read, or holds a
            network that is not ours.
        OSError: If it cannot be opened.
        ImportError: If the file is a `.safetensors`, and safetensors is not installed.

    Example:
        >>> import numpy as np, tempfile
        >>> from safetensors.numpy import save_file
        >>> path = f"{tempfile.mkdtemp()}/other.safetensors"
        >>> save_file({"conv1.weight": np.ones(2)}, path)
        >>> read_torch_state_dict(path)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: '...other.safetensors' holds another ...
    """
    path = pathlib.Path(path)
    content = read_torch_file(path)
    if holds_effdet(content):
        return effdet_source(path, content, averages)
    if holds_efficientnet(content):
        return efficientnet_source(path, content, averages)
    raise InvalidValueError(
        f"'{path}' holds another network: none of its {len(content)} entries has a "
        "name of PyTorch effdet ('backbone.conv_stem.weight'), EfficientNet-PyTorch "
        "('_conv_stem.weight') or timm's EfficientNet ('conv_stem.weight'). The first "
        f"are {list(content)[:3]}."
    )


def _is_of(path, head):
    return path.suffix in ENDINGS or head.startswith((ZIP_MAGIC, PICKLE_MAGIC))


KIND = Kind(
    title="PyTorch effdet's `.pth` or `.safetensors`; EfficientNet-PyTorch's or timm's "
    "EfficientNet in such a file, of which the backbone is taken",
    is_of=_is_of,
    read=read_torch_state_dict,
)
