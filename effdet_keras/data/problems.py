"""What can be wrong with a dataset, and what reading and training do about it."""

import collections
import dataclasses
import enum
import warnings

from effdet_keras.errors import InvalidValueError


class Severity(enum.Enum):
    """How bad a problem is: readers refuse errors and warn of warnings."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of problem: how bad, and what is done where it is not refused."""

    severity: Severity
    consequence: str


KINDS = {
    # found by the readers
    "missing image": Kind(Severity.ERROR, "image left out"),
    "unreadable annotation": Kind(Severity.ERROR, "left out"),
    "bad box": Kind(Severity.ERROR, "box left out"),
    "normalized box": Kind(Severity.ERROR, "box left out"),
    "unknown class": Kind(Severity.ERROR, "box left out"),
    "duplicate id": Kind(Severity.ERROR, "second image left out"),
    "stray annotation": Kind(Severity.WARNING, "left out"),
    "no annotation": Kind(Severity.WARNING, "taken as without objects"),
    "empty box": Kind(Severity.WARNING, "box not trained on"),
    "box outside": Kind(Severity.WARNING, "box not trained on"),
    # found by `check`
    "corrupt image": Kind(Severity.ERROR, "image skipped in training"),
    "wrong size": Kind(Severity.ERROR, "image skipped in training"),
    "suspected box form": Kind(Severity.WARNING, "trained on as it is"),
    "duplicate box": Kind(Severity.WARNING, "both trained on"),
    "duplicate image": Kind(Severity.WARNING, "both trained on"),
    "shared image": Kind(
        Severity.WARNING, "trained on and evaluated on, so evaluation flatters"
    ),
    "clipped box": Kind(Severity.NOTE, "clipped to the image"),
    "turned image": Kind(Severity.NOTE, "turned upright, as viewers show it"),
    "sideways image": Kind(Severity.NOTE, "used as stored, as it was annotated"),
    "empty dataset": Kind(Severity.ERROR, "training refuses it"),
    "bad label": Kind(Severity.ERROR, "training stops with an error"),
    "duplicate annotation id": Kind(Severity.WARNING, "evaluation mixes them up"),
    "unused class": Kind(Severity.WARNING, "never learned"),
    "class imbalance": Kind(Severity.NOTE, "trained on as it is"),
    "tiny box": Kind(Severity.NOTE, "trained on, though the network hardly sees it"),
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: key of `KINDS`.
        file: name of the file it is in, as a user would look for it.
        detail: what was found there.
    """

    kind: str
    file: str
    detail: str = ""

    @property
    def severity(self):
        """`Severity` of the kind."""
        return KINDS[self.kind].severity

    def __str__(self):
        return f"{self.file}: {self.detail}" if self.detail else self.file


class Problems:
    """Collects what a reader finds wrong, to report it all at once.

    Args:
        reader: str, who reads what, for messages: "`from_coco` of 'a.json'".
        on_error: "raise": `finish` raises where there are errors; "skip": what
            has an error is left out, and counted in the warning.

    Raises:
        ValueError: If `on_error` is neither.

    Example:
        >>> problems = Problems("`from_coco` of 'a.json'", on_error="raise")
        >>> problems.add("bad box", "a.json", "bbox=[1, 2] of annotation 7")
        >>> problems.finish()
        Traceback (most recent call last):
        ...
        effdet_keras.errors.InvalidValueError: `from_coco` of 'a.json' found ...
    """

    def __init__(self, reader, on_error="raise"):
        if on_error not in ("raise", "skip"):
            raise InvalidValueError(
                f'`on_error` must be "raise" or "skip". Received: on_error={on_error!r}'
            )
        self._reader = reader
        self._on_error = on_error
        self._found = []

    def add(self, kind, file, detail=""):
        """Notes one `Problem`. Returns `None`."""
        KINDS[kind]  # a kind that does not exist is a fault of the caller
        self._found.append(Problem(kind, str(file), detail))

    def finish(self):
        """Raises or warns of what was found.

        Returns:
            Tuple of `Problem`, in the order found.

        Raises:
            FileNotFoundError: If images are missing, and nothing else is wrong.
            ValueError: If there are other errors.
        """
        errors = [p for p in self._found if p.severity is Severity.ERROR]
        if errors and self._on_error == "raise":
            them = "it" if len(errors) == 1 else "them"
            missing = all(p.kind == "missing image" for p in errors)
            where = "Is the folder of the images right? " if missing else ""
            raise (FileNotFoundError if missing else InvalidValueError)(
                f"{self._reader} found {describe_problems(errors)}. {where}Repair "
                f'{them}, or pass on_error="skip" to leave {them} out'
            )
        told = [p for p in self._found if p.severity is not Severity.NOTE]
        if told:
            warnings.warn(
                f"{self._reader} left out or does not train on: "
                f"{describe_problems(told)}",
                stacklevel=3,
            )
        return tuple(self._found)


def describe_problems(problems, shown=3):
    """Writes problems as one line: each kind counted, its first ones named.

    Args:
        problems: sequence of `Problem`.
        shown: how many of each kind to name.

    Returns:
        str.

    Example:
        >>> boxes = [Problem("empty box", f"{i}.xml") for i in range(5)]
        >>> describe_problems(boxes, shown=2)
        '5 empty boxes: 0.xml; 1.xml; ...'
    """
    groups = collections.defaultdict(list)
    for problem in problems:
        groups[problem.kind].append(problem)
    parts = []
    for kind, members in groups.items():
        names = [str(problem) for problem in members[:shown]]
        names += ["..."] if len(members) > shown else []
        parts.append(f"{count_kind(kind, len(members))}: {'; '.join(names)}")
    return ". ".join(parts)


def count_kind(kind, count):
    """Writes a kind of problem with its number.

    Args:
        kind: key of `KINDS`.
        count: int.

    Returns:
        str.

    Example:
        >>> count_kind("box outside", 1), count_kind("box outside", 2_000)
        ('1 box outside', '2,000 boxes outside')
    """
    first, _, rest = kind.partition(" ")
    if count != 1 and first == "box":
        kind = f"boxes {rest}"
    elif count != 1:
        kind += "es" if kind.endswith(("s", "x")) else "s"
    return f"{count:,} {kind}"
