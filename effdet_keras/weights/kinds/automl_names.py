"""Names in google/automl's files, brought to their published form."""

import collections
import re

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.network_arrays import OBJECT_GRAPH, TF1

# How the name of an array begins, in each scheme.
_ROOTS = {
    TF1: r"efficientnet(v2)?-[\w-]+/|resample_p\d+/|fpn_cells/|(class|box)_net/",
    OBJECT_GRAPH: r"backbone/_|resample_layers/|fpn_cells/|(class|box)_net/",
}

# The stem's layers have no names of their own: those of the second model that a
# process builds are counted on, as in "stem_1/conv2d_1/kernel".
_STEM = re.compile(
    r"^(efficientnet(?:v2)?-[\w-]+/stem)(?:_\d+)?/(conv2d|tpu_batch_normalization)(?:_\d+)?/"
)


def published_names(names, scheme, path):
    """Finds the published name of each name in a file.

    What stands before all names, as in `model/fpn_cells/...`, is taken off, and
    so are the numbers that the second model of a process has in its stem.

    Args:
        names: collection of strings.
        scheme: `TF1` or `OBJECT_GRAPH` of `network_arrays`.
        path: string, what to call the file in messages.

    Returns:
        Dict of each of `names` to its published name.

    Raises:
        ValueError: If no name is one of EfficientDet's or EfficientNet's, or
            the file holds several networks.

    Example:
        >>> name = "model/efficientnet-b0/stem_1/conv2d_1/kernel"
        >>> published_names([name], TF1, "x")[name]
        'efficientnet-b0/stem/conv2d/kernel'
    """
    prefix = _common_prefix(names, scheme, path)
    published = {name: name.removeprefix(prefix) for name in names}
    if scheme == TF1:
        published = {
            name: _STEM.sub(r"\1/\2/", short) for name, short in published.items()
        }
    counts = collections.Counter(published.values())
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        same = [name for name in names if published[name] == twice[0]]
        raise InvalidValueError(_several_networks(path, same))
    return published


def _common_prefix(names, scheme, path):
    root = re.compile(rf"(?:^|/)(?={_ROOTS[scheme]})")
    matches = ((name, root.search(name)) for name in names)
    firsts = {name[: match.end()]: name for name, match in matches if match}
    if not firsts:
        raise InvalidValueError(
            f"'{path}' holds the weights of another network: none of its "
            f"{len(names)} arrays has a name of EfficientDet or EfficientNet. "
            f"Received: {sorted(names)[:3]}"
        )
    if len(firsts) > 1 and "" not in firsts:
        raise InvalidValueError(_several_networks(path, list(firsts.values())))
    return "" if "" in firsts else next(iter(firsts))


def _several_networks(path, names):
    return (
        f"'{path}' holds several networks, and which is meant is not known: save the "
        f"one you want alone. Received: arrays such as {sorted(names)[:2]}"
    )
