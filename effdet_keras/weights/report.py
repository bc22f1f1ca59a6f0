"""What was loaded from a file of weights, and what was not."""

import collections
import dataclasses

_SHOWN = 4  # names in a list before "..."


@dataclasses.dataclass(frozen=True)
class NewWeights:
    """Weights of the model that were not loaded as a whole, and why.

    Attributes:
        reason: string.
        names: tuple of strings, the names of the weights.
        carried: tuple of strings, the classes whose outputs were loaded all the same,
            because file and model both have a class of that name.
    """

    reason: str
    names: tuple[str, ...]
    carried: tuple[str, ...] = ()

    @property
    def num_partly_loaded(self) -> int:
        """Number of these weights of which some outputs were loaded."""
        return len(self.names) if self.carried else 0


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load_pretrained` loaded and what it did not. Prints as a few lines.

    Attributes:
        path: string, the file.
        kind: string, what kind of file it is.
        model_name: string, the name of the model's config.
        num_loaded: int, number of weights that were loaded as a whole.
        num_weights: int, number of weights that the model has.
        num_averages: int, number of arrays in the file that were moving averages.
        new: tuple of `NewWeights`, the weights that were not loaded, by reason.
        left_over: tuple of strings, arrays of the file that fit no weight.
        others: tuple of strings, what else is in the file: optimizer, counters.
        notes: tuple of strings, what else the user should know.

    Example:
        >>> head = NewWeights("the file has 90 classes, the model 3", ("a/b/c",))
        >>> print(LoadReport("d0.pth", "state dict", "d0", 2, 3, 0, (head,), (), ()))
        Loaded 2 of 3 weights of d0 from 'd0.pth' (state dict)
          1 starts new: the file has 90 classes, the model 3
            a/b/c
    """

    path: str
    kind: str
    model_name: str
    num_loaded: int
    num_weights: int
    num_averages: int
    new: tuple[NewWeights, ...]
    left_over: tuple[str, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        averages = f", {self.num_averages} moving averages" if self.num_averages else ""
        lines = [
            f"Loaded {self.num_loaded} of {self.num_weights} weights of "
            f"{self.model_name} from '{self.path}' ({self.kind}{averages})"
        ]
        for group in self.new:
            verb = "starts" if len(group.names) == 1 else "start"
            lines.append(f"  {len(group.names)} {verb} new: {group.reason}")
            lines += [f"    {line}" for line in _parts(group.names)]
            if group.carried:
                lines.append(f"    carried over by name: {_listed(group.carried)}")
        if self.left_over:
            lines.append(
                f"  {len(self.left_over)} arrays of the file are not the model's: "
                f"{_listed(self.left_over)}"
            )
        if self.others:
            entries = "entry is" if len(self.others) == 1 else "entries are"
            lines.append(
                f"  {len(self.others)} {entries} not of a network: "
                f"{_listed(self.others)}"
            )
        lines += [f"  Note: {note}" for note in self.notes]
        return "\n".join(lines)


def _parts(names):
    """The names, or how many there are of each part of the network."""
    if len(names) <= _SHOWN:
        return list(names)
    counts = collections.Counter(name.split("/")[0] for name in names)
    return [f"{part}: {count}" for part, count in counts.items()]


def _listed(names):
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
