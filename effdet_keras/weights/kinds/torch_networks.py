"""Which entries of a torch file belong to one network, and which to none or another."""

import dataclasses
import re

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds.torch_files import damaged

BN_COUNTER = "num_batches_tracked"


@dataclasses.dataclass(frozen=True)
class FoundNetwork:
    """One network in a torch file.

    Attributes:
        arrays: dict of name, without what stands before it in the file, to float32
            array.
        others: tuple of strings, what else is in the file.
        prefix: string, what stands before the names of the network.
        dtypes: set of strings, the types of numbers in the file.
    """

    arrays: dict
    others: tuple
    prefix: str
    dtypes: frozenset

    @property
    def is_average(self):
        """Whether the network's weights are moving averages of another's."""
        return _is_average(self.prefix)

    @property
    def description(self):
        """Where in the file it is and what numbers it has, to stand after its name."""
        under = f", under '{self.prefix.rstrip('.')}'" if self.prefix else ""
        converted = sorted(self.dtypes - {"float32"})
        return under + (f", {' and '.join(converted)}" if converted else "")


def find_network(path, content, prefixes, averages):
    """Takes one network out of what a torch file holds.

    Args:
        path: path of the file, for messages.
        content: dict, what `read_torch_file` found.
        prefixes: list of strings, what stands before the names of each network.
        averages: bool. Of two networks, True takes the one whose prefix says "ema",
            and False the other.

    Returns:
        `FoundNetwork`.

    Raises:
        ValueError: If it is not known which of several networks is meant.

    Example:
        >>> content = {"model.a": np.ones(2), "ema.a": np.zeros(2), "epoch": 3}
        >>> found = find_network("x.pth", content, ["model.", "ema."], averages=False)
        >>> found.arrays, found.others
        ({'a': array([1., 1.], dtype=float32)}, ('ema', 'epoch'))
    """
    wanted = [p for p in prefixes if _is_average(p) == averages] or prefixes
    if len(wanted) > 1:
        raise InvalidValueError(
            f"'{path}' holds {len(wanted)} networks: {wanted}. Save the state dict of "
            "one of them."
        )
    prefix = wanted[0]
    arrays, others, dtypes = {}, {}, set()
    for full_name, value in content.items():
        owner = max(filter(full_name.startswith, prefixes), key=len, default=None)
        name = full_name.removeprefix(prefix)
        # Who halves a whole state dict halves its counters too.
        is_counter = name.endswith(BN_COUNTER)
        if owner == prefix and _is_floating(value) and not is_counter:
            dtypes.add(str(value.dtype))
            arrays[name] = _as_float32(path, value)
        elif owner in (prefix, None):
            others[name if owner else full_name] = None
        else:
            others[owner.rstrip(".")] = None
    return FoundNetwork(arrays, tuple(others), prefix, frozenset(dtypes))


def _is_average(prefix):
    return "ema" in re.split(r"[._]", prefix.lower())


def _is_floating(value):
    # ml_dtypes' bfloat16 is "V".
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def _as_float32(path, value):
    try:
        return np.asarray(value, "float32")
    except (TypeError, ValueError) as error:
        raise InvalidValueError(damaged(path, error)) from error
