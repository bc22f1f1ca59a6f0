"""The problems a dataset can have, and how reading and training handle each."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import enum
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from effdet_keras.errors import InvalidValueError, check_choice, printable


class Severity(enum.Enum):
    """How severe a problem is: readers raise for errors and warn for warnings.

    Example:
        >>> Problem("bad box", "a.xml").severity
        <Severity.ERROR: 'error'>
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Kind(NamedTuple):
    """A kind of problem: its severity, and what happens if it does not raise."""

    severity: Severity
    consequence: str
    # Whether one such problem stands for many cases, which its `detail` describes.
    counts_all: bool = False


KINDS = {
    # Found by the readers.
    "missing image": Kind(Severity.ERROR, "image left out"),
    "unreadable annotation": Kind(Severity.ERROR, "left out"),
    "bad box": Kind(Severity.ERROR, "box left out"),
    "normalized box": Kind(Severity.ERROR, "box left out"),
    "unknown class": Kind(Severity.ERROR, "box left out"),
    "duplicate id": Kind(Severity.ERROR, "second image left out"),
    "stray annotation": Kind(Severity.WARNING, "left out"),
    "only stray annotations": Kind(Severity.ERROR, "every image read without objects"),
    "no annotation": Kind(Severity.WARNING, "treated as an image without objects"),
    "empty box": Kind(Severity.WARNING, "box not trained on"),
    "box outside": Kind(Severity.WARNING, "box not trained on"),
    "boxes beyond images": Kind(Severity.WARNING, "cut at the edge of the image", True),
    "boxes below a pixel": Kind(Severity.WARNING, "trained on as read", True),
    "unread shape": Kind(Severity.WARNING, "left out"),
    "unlabelled image": Kind(Severity.WARNING, "left out"),
    "unnamed class": Kind(Severity.NOTE, "trained on under this name"),
    "extra column": Kind(Severity.NOTE, "left out"),
    "confidence before box": Kind(
        Severity.NOTE, "its box is read, the confidence is left out"
    ),
    "pose label": Kind(Severity.NOTE, "its box is read, the key points are left out"),
    "possible pose label": Kind(Severity.NOTE, "read as an outline"),
    "odd outline": Kind(Severity.NOTE, "read without the last number"),
    "root category": Kind(Severity.NOTE, "not a class"),
    "box columns": Kind(Severity.NOTE, "read as described"),
    "several files": Kind(Severity.NOTE, "read as one split"),
    "class without box": Kind(Severity.NOTE, "read as an image without objects"),
    "repeated annotation file": Kind(Severity.NOTE, "not read"),
    "several labels": Kind(Severity.NOTE, "the first with objects is read"),
    "several entries": Kind(Severity.NOTE, "read as one image"),
    "image of another size": Kind(
        Severity.NOTE, "the image inside the json file is read"
    ),
    "stale image path": Kind(Severity.NOTE, "the image beside it is read"),
    "closed lines": Kind(Severity.NOTE, "read as outlines"),
    "oriented box": Kind(Severity.NOTE, "read as the upright box around it"),
    "moved images": Kind(Severity.NOTE, "read from where they are", True),
    "images of another export": Kind(Severity.WARNING, "read instead", True),
    "misplaced images": Kind(
        Severity.WARNING, "read from the folder of another split", True
    ),
    "moved folders": Kind(Severity.NOTE, "read from where they are", True),
    "images without txt file": Kind(
        Severity.WARNING,
        "read as images without objects, or left out: the message says which",
        True,
    ),
    "images without a box left": Kind(
        Severity.WARNING, "read as images without objects", True
    ),
    "sizes that differ": Kind(Severity.WARNING, "images skipped in training", True),
    "scaled images": Kind(Severity.WARNING, "boxes scaled with their images", True),
    "exchanged corners": Kind(Severity.WARNING, "read with the corners sorted", True),
    "repeated rows": Kind(Severity.WARNING, "each read once", True),
    "images without a row": Kind(
        Severity.WARNING, "read as images without objects", True
    ),
    "txt files without image": Kind(Severity.WARNING, "left out", True),
    "files that are no images": Kind(Severity.WARNING, "left out", True),
    "images beside splits": Kind(Severity.WARNING, "left out", True),
    "classes without names": Kind(Severity.WARNING, "named by their numbers", True),
    "lists of class names": Kind(
        Severity.NOTE, "the list that the message names is used", True
    ),
    "unlisted images": Kind(Severity.NOTE, "not read", True),
    "missing split": Kind(Severity.WARNING, "left out", True),
    "other yaml file": Kind(Severity.WARNING, "not read", True),
    "other csv file": Kind(Severity.WARNING, "not read", True),
    "other label map": Kind(Severity.WARNING, "not read", True),
    "large label map": Kind(Severity.WARNING, "its names are used", True),
    "number of classes": Kind(Severity.WARNING, "the list of names is used", True),
    "shared images": Kind(
        Severity.WARNING, "trained on and evaluated on, as the message says", True
    ),
    # Found by `check`.
    "corrupt image": Kind(Severity.ERROR, "image skipped in training"),
    "wrong size": Kind(Severity.ERROR, "image skipped in training"),
    "suspected box format": Kind(Severity.WARNING, "trained on as read"),
    "duplicate box": Kind(Severity.WARNING, "both trained on"),
    "duplicate image": Kind(Severity.WARNING, "both trained on"),
    "shared image": Kind(
        Severity.WARNING, "trained on and evaluated on, so the evaluation is too good"
    ),
    "near-duplicate image": Kind(
        Severity.NOTE, "all trained on; an automatic split keeps them on one side"
    ),
    "shared near-duplicate": Kind(
        Severity.WARNING,
        "almost the same image is trained on, so the evaluation is too good",
    ),
    "similar class names": Kind(Severity.WARNING, "trained on as different classes"),
    "clipped box": Kind(Severity.NOTE, "clipped to the image"),
    "turned image": Kind(Severity.NOTE, "turned upright, as viewers show it"),
    "sideways image": Kind(Severity.NOTE, "used as stored, as it was annotated"),
    "empty dataset": Kind(Severity.ERROR, "training refuses it"),
    "nothing to train on": Kind(Severity.ERROR, "training refuses it"),
    "nothing to evaluate on": Kind(Severity.WARNING, "it gets no AP"),
    "bad label": Kind(Severity.ERROR, "training stops with an error"),
    "duplicate annotation id": Kind(Severity.WARNING, "evaluation confuses them"),
    "unused class": Kind(Severity.WARNING, "the model cannot learn it"),
    "class imbalance": Kind(Severity.NOTE, "trained on as it is, without `balance`"),
    "tiny box": Kind(Severity.NOTE, "trained on, although the network hardly sees it"),
}


ON_ERROR = ("auto", "raise", "skip")  # what is done about errors in a dataset

# With `on_error="auto"` a reader leaves out at most these shares of the images and of
# the boxes of a split. Most datasets that people share have a few faults; more of them
# are a sign that the whole is read wrongly.
MAX_PERCENT = 5
MAX_PERCENT_WITHOUT_NAME = 1  # boxes without a class name: more may be a whole class
# Kinds of problems with files that all splits share.
_SHARED_BY_SPLITS = frozenset(
    {
        "moved folders",
        "classes without names",
        "lists of class names",
        "missing split",
        "other yaml file",
        "other csv file",
        "other label map",
        "number of classes",
    }
)
_IMAGE_ERRORS = ("missing image", "unreadable annotation", "corrupt image")
_BOX_ERRORS = ("bad box", "unknown class")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem of a dataset.

    Attributes:
        kind: str, the kind of problem, such as "empty box". The guide to `check` lists
            all kinds.
        file: str, the name of the file that has the problem.
        detail: str, a description of what was found there; may be empty.
        image_ids: tuple of int, the ids of the affected images, because several images
            may have the name `file`. Empty if the problem concerns a file, all images,
            or an image that was left out.

    Example:
        >>> print(Problem("empty box", "a.xml", "width 0"))
        a.xml: width 0
    """

    kind: str
    file: str
    detail: str = ""
    image_ids: tuple[int, ...] = ()

    @property
    def severity(self) -> Severity:
        """The `Severity` of this kind of problem."""
        return KINDS[self.kind].severity

    def __str__(self):
        return printable(f"{self.file}: {self.detail}" if self.detail else self.file)


class MissingImageError(FileNotFoundError):
    """Raised if images of a dataset are missing; the text says where they may be.

    Attributes:
        may_be_others: bool, whether images exist that the annotations may mean: some
            with the same names elsewhere, or others where these are expected.
    """

    def __init__(self, text: str, *, may_be_others: bool = False):
        super().__init__(text)
        self.may_be_others = may_be_others


class NoImageError(MissingImageError):
    """Raised if all images of a split are missing, whatever `on_error` is."""


class Problems:
    """Collects the problems that a reader finds, to report all of them at once.

    Args:
        reader: str, the name of the reader, which begins each message.
        on_error: "auto", "raise" or "skip", see `load`.
    """

    def __init__(self, reader: str, on_error: str = "auto"):
        check_choice("on_error", on_error, ON_ERROR)
        self.reader = reader
        self._on_error = on_error
        self._found = []
        self._notes = []
        self._counts = collections.Counter()  # images or boxes with an error, by kind
        self._lost_images = self._lost_boxes = 0  # besides those with an error

    def add(
        self,
        kind: str,
        file: object,
        detail: str = "",
        image_ids: Sequence[int] = (),
        *,
        count: float = 1,
    ) -> None:
        """Adds one `Problem`.

        `count` is the number of images or boxes that are lost because of the problem,
        or `math.inf` if that number is unknown.
        """
        self._found.append(Problem(kind, str(file), detail, tuple(image_ids)))
        self._counts[kind] += count

    def add_note(self, kind: str, file: object, detail: str = "") -> None:
        """Adds one `Problem` that never raises, but that `finish` warns of.

        A reader uses it, once per dataset, for content of valid files that it leaves
        out.
        """
        self.add(kind, file, detail)
        self._notes.append(self._found[-1])

    def add_lost(self, *, images: int = 0, boxes: int = 0) -> None:
        """Counts what is lost by errors besides the images and boxes that have them.

        Examples are the boxes of a missing image, and an image whose rows are all bad.
        """
        self._lost_images += images
        self._lost_boxes += boxes

    def has(self, kind: str) -> bool:
        """Returns whether a problem of this kind was found."""
        return any(problem.kind == kind for problem in self._found)

    def files_with(self, *kinds: str) -> set[str]:
        """Returns the names of the files or images with a problem of these kinds."""
        return {problem.file for problem in self._found if problem.kind in kinds}

    def finish(
        self,
        find_images: Callable[[Sequence[str]], str] | None = None,
        *,
        num_images: int = 0,
        num_boxes: int = 0,
    ) -> tuple[Problem, ...]:
        """Raises an error for the problems found, or warns of them.

        Args:
            find_images: function of the paths of missing images that returns a text
                which says where they may be, or "" if it does not know.
            num_images: int, the number of images that were read without an error.
            num_boxes: int, the number of boxes that were read without an error.

        Returns:
            Tuple of all `Problem`s.

        Raises:
            MissingImageError: If all errors are missing images, with
                `on_error="raise"`, or with "auto" if they are more than a few.
            NoImageError: If there is no image, because all of them are missing.
            ValueError: If there are other errors, in the same cases.
        """
        self.check(find_images, num_images=num_images, num_boxes=num_boxes)
        alone = [p for p in self._found if KINDS[p.kind].counts_all]
        others = [p for p in self._found if not KINDS[p.kind].counts_all]
        serious = [p for p in others if p.severity is not Severity.NOTE]
        if serious:
            described = describe_problems(serious, with_consequences=True)
            text = f"{self.reader} found {described}"
            are_errors = any(p.severity is Severity.ERROR for p in serious)
            if self._on_error == "auto" and are_errors:
                text += f". The errors are few (at most {MAX_PERCENT} %), so the rest "
                text += "was read. To stop at any error, pass on_error='raise' "
                text += "(--on-error raise)"
            warnings.warn(text, stacklevel=3)
        for note in self._notes:
            text = f"{self.reader}: {note} ({KINDS[note.kind].consequence})"
            warnings.warn(text, stacklevel=3)
        for problem in alone:
            text = f"{self.reader}: {problem.detail}"
            if problem.kind not in _SHARED_BY_SPLITS or _is_new(text):
                warnings.warn(text, stacklevel=3)
        return tuple(self._found)

    def _are_few(self, num_images, num_boxes):
        """Returns whether only a few images and boxes are lost by all errors."""
        kinds = {p.kind for p in self._found if p.severity is Severity.ERROR}
        lost_images = self._lost_images + sum(self._counts[k] for k in _IMAGE_ERRORS)
        lost_boxes = self._lost_boxes + sum(self._counts[k] for k in _BOX_ERRORS)
        without_name = self._counts["unknown class"]
        num_images, num_boxes = num_images + lost_images, num_boxes + lost_boxes
        return (
            kinds.issubset(_IMAGE_ERRORS + _BOX_ERRORS)
            and 100 * lost_images <= MAX_PERCENT * num_images < math.inf
            and 100 * lost_boxes <= MAX_PERCENT * num_boxes < math.inf
            and 100 * without_name <= MAX_PERCENT_WITHOUT_NAME * num_boxes
        )

    def check(
        self,
        find_images: Callable[[Sequence[str]], str] | None = None,
        *,
        num_images: int = 0,
        num_boxes: int = 0,
    ) -> tuple[Problem, ...]:
        """Raises the errors that `finish` raises, but does not warn; see `finish`."""
        errors = [p for p in self._found if p.severity is Severity.ERROR]
        is_few = self._on_error == "auto" and self._are_few(num_images, num_boxes)
        missing = [p.file for p in errors if p.kind == "missing image"]
        are_all = len(missing) == len(errors)
        is_empty = bool(missing) and are_all and not num_images
        if is_empty or (errors and self._on_error != "skip" and not is_few):
            where = "Is the image folder right? " if are_all else ""
            if find_images and missing:
                hint = find_images(missing)
                where += f"{hint}. " if hint else ""
            may_be_others = any(problem.detail for problem in errors)
            if is_empty:
                raise NoImageError(
                    f"{self.reader} found {describe_problems(errors)}, and no image "
                    f"that exists. {where}Put the images where the annotations expect "
                    "them",
                    may_be_others=may_be_others,
                )
            more = ""
            if self._on_error == "auto" and num_images:
                more = f" (without that, at most {MAX_PERCENT} % are left out)"
            text = (
                f"{self.reader} found {describe_problems(errors)}. {where}Repair "
                f'this, or pass on_error="skip" (--skip-errors) to leave it out{more}'
            )
            if are_all:
                raise MissingImageError(text, may_be_others=may_be_others)
            raise InvalidValueError(text)
        return tuple(self._found)


_told: contextvars.ContextVar[set | None] = contextvars.ContextVar("told", default=None)


@contextlib.contextmanager
def telling_once() -> Iterator[None]:
    """Within a `with` block, the readers of all splits warn once of what they share."""
    token = _told.set(set()) if _told.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _told.reset(token)


def _is_new(text):
    """Returns whether a text was not told within `telling_once`, and notes it."""
    told = _told.get()
    if told is None:
        return True
    is_new = text not in told
    told.add(text)
    return is_new


def describe_problems(
    problems: Sequence[Problem], shown: int = 3, *, with_consequences: bool = False
) -> str:
    """Returns one line that counts the problems of each kind and names the first.

    Args:
        problems: sequence of `Problem`.
        shown: int, how many problems of each kind are named.
        with_consequences: bool, whether to say what happens to each kind.
    """
    parts = []
    for kind in dict.fromkeys(problem.kind for problem in problems):
        members = [problem for problem in problems if problem.kind == kind]
        names = [str(problem) for problem in members[:shown]]
        names += ["..."] if len(members) > shown else []
        consequence = f" ({KINDS[kind].consequence})" if with_consequences else ""
        count = count_kind(kind, len(members))
        parts.append(f"{count}: {'; '.join(names)}{consequence}")
    return ". ".join(parts)


def count_kind(kind: str, count: int) -> str:
    """Returns a kind of problem with its count, unless one problem stands for all."""
    if KINDS[kind].counts_all:
        return kind
    if count != 1:
        plural = f"{kind}es" if kind.endswith(("s", "x")) else f"{kind}s"
        kind = kind.replace("box ", "boxes ") if kind.startswith("box ") else plural
    return f"{count:,} {kind}"
