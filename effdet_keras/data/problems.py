"""What can be wrong with a dataset, and what reading and training do about it."""

from __future__ import annotations

import collections
import dataclasses
import enum
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from effdet_keras.errors import InvalidValueError, check_choice, printable


class Severity(enum.Enum):
    """How bad a problem is: readers refuse errors and warn of warnings.

    Example:
        >>> Problem("bad box", "a.xml").severity
        <Severity.ERROR: 'error'>
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Kind(NamedTuple):
    """A kind of problem: how bad it is, and what is done about it if not refused."""

    severity: Severity
    consequence: str
    counts_all: bool = False  # whether one problem, with its own words, is of many


KINDS = {
    # found by the readers
    "missing image": Kind(Severity.ERROR, "image left out"),
    "unreadable annotation": Kind(Severity.ERROR, "left out"),
    "bad box": Kind(Severity.ERROR, "box left out"),
    "normalized box": Kind(Severity.ERROR, "box left out"),
    "unknown class": Kind(Severity.ERROR, "box left out"),
    "duplicate id": Kind(Severity.ERROR, "second image left out"),
    "stray annotation": Kind(Severity.WARNING, "left out"),
    "only stray annotations": Kind(Severity.ERROR, "every image without objects"),
    "no annotation": Kind(Severity.WARNING, "treated as an image without objects"),
    "empty box": Kind(Severity.WARNING, "box not trained on"),
    "box outside": Kind(Severity.WARNING, "box not trained on"),
    "boxes beyond images": Kind(Severity.WARNING, "cut at the edge", True),
    "boxes below a pixel": Kind(Severity.WARNING, "trained on as read", True),
    "unread shape": Kind(Severity.WARNING, "left out"),
    "unlabelled image": Kind(Severity.WARNING, "left out"),
    "unnamed class": Kind(Severity.NOTE, "trained on by this name"),
    "extra column": Kind(Severity.NOTE, "left out"),
    "pose label": Kind(Severity.NOTE, "its box is read, the key points are left out"),
    "possible pose label": Kind(Severity.NOTE, "read as an outline"),
    "odd outline": Kind(Severity.NOTE, "read without the last number"),
    "root category": Kind(Severity.NOTE, "is no class"),
    "box columns": Kind(Severity.NOTE, "read as it says"),
    "several files": Kind(Severity.NOTE, "read as one split"),
    "class without box": Kind(Severity.NOTE, "an image without objects"),
    "repeated annotation file": Kind(Severity.NOTE, "not read"),
    "several labels": Kind(Severity.NOTE, "the first with objects is read"),
    "several entries": Kind(Severity.NOTE, "read as one image"),
    "image of another size": Kind(
        Severity.NOTE, "the image inside the json file is read"
    ),
    "stale image path": Kind(Severity.NOTE, "the image of its own name is read"),
    "closed lines": Kind(Severity.NOTE, "read as outlines"),
    "oriented box": Kind(Severity.NOTE, "read as the upright box around it"),
    "moved images": Kind(Severity.NOTE, "read from where it is", True),
    "moved folders": Kind(Severity.NOTE, "read from where it is", True),
    "images without txt file": Kind(
        Severity.WARNING, "an image without objects, or left out, as it says", True
    ),
    "images without a box left": Kind(Severity.WARNING, "images without objects", True),
    "images without a row": Kind(Severity.WARNING, "images without objects", True),
    "txt files without image": Kind(Severity.WARNING, "left out", True),
    "files that are no images": Kind(Severity.WARNING, "left out", True),
    "images beside splits": Kind(Severity.WARNING, "left out", True),
    "classes without names": Kind(Severity.WARNING, "called by their numbers", True),
    "lists of class names": Kind(Severity.NOTE, "read by them as it says", True),
    "unlisted images": Kind(Severity.NOTE, "not read", True),
    "missing split": Kind(Severity.WARNING, "left out", True),
    "other yaml file": Kind(Severity.WARNING, "not read", True),
    "other csv file": Kind(Severity.WARNING, "not read", True),
    "other label map": Kind(Severity.WARNING, "not read", True),
    "number of classes": Kind(Severity.WARNING, "the names count", True),
    "shared images": Kind(
        Severity.WARNING, "trained on and evaluated on, as it says", True
    ),
    # found by `check`
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
        "nearly trained on and evaluated on, so the evaluation is too good",
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

# What `on_error="auto"` leaves out: faults of a few images or boxes, as most datasets
# that people share have them. More is a sign that the whole was read wrongly.
FEW_IMAGES = 5  # percent of the images of a split
FEW_BOXES = 1  # percent of its boxes
_IMAGE_ERRORS = frozenset(
    {"missing image", "unreadable annotation", "corrupt image", "duplicate id"}
)
_BOX_ERRORS = frozenset({"bad box", "unknown class"})


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        kind: str, what it is, such as "empty box"; the guide to `check` lists all.
        file: str, the name of the file that it is in.
        detail: str, what was found there; may be empty.
        image_ids: tuple of int, the images that it is about, as several may have the
            name `file`. Empty where it is about a file, all images, or one that was
            left out.

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
    """Images that a dataset names are not there; the text says where they may be."""


class NoImageFolderError(FileNotFoundError):
    """No image that a file names is there, and no folder that could have them."""


class Problems:
    """Collects what a reader finds wrong, to report all of it at once.

    Args:
        reader: str, what messages call the reader and its file.
        on_error: "auto", "raise" or "skip", as for `load`.
    """

    def __init__(self, reader: str, on_error: str = "auto"):
        check_choice("on_error", on_error, ON_ERROR)
        self.reader = reader
        self._on_error = on_error
        self._found = []
        self._notes = []
        self._counts = collections.Counter()  # images or boxes with an error, by kind

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

        `count` is the number of images or boxes that it is about, as far as they are
        lost by it; `math.inf` if nobody knows how many there were.
        """
        self._found.append(Problem(kind, str(file), detail, tuple(image_ids)))
        self._counts[kind] += count

    def add_note(self, kind: str, file: object, detail: str = "") -> None:
        """Adds one `Problem` that refuses nothing; `finish` warns of it all the same.

        For what a reader leaves out of files that are right: once for each dataset.
        """
        self.add(kind, file, detail)
        self._notes.append(self._found[-1])

    def has(self, kind: str) -> bool:
        """Whether a problem of a kind was found."""
        return any(problem.kind == kind for problem in self._found)

    def files_with(self, kind: str) -> set[str]:
        """The files, or the images, that have a problem of a kind."""
        return {problem.file for problem in self._found if problem.kind == kind}

    def finish(
        self,
        find_images: Callable[[Sequence[str]], str] | None = None,
        *,
        num_images: int = 0,
        num_boxes: int = 0,
    ) -> tuple[Problem, ...]:
        """Raises or warns of what was found.

        Args:
            find_images: says where images of these paths, which are missing, may be;
                "" if it knows no place.
            num_images, num_boxes: int, the images and boxes that are read. With none,
                "auto" is as "raise".
        """
        is_few = self._on_error == "auto" and self._are_few(num_images, num_boxes)
        if not is_few:
            self.refuse(find_images)
        alone = [p for p in self._found if KINDS[p.kind].counts_all]
        others = [p for p in self._found if not KINDS[p.kind].counts_all]
        serious = [p for p in others if p.severity is not Severity.NOTE]
        if serious:
            described = describe_problems(serious)
            text = f"{self.reader} left out or does not train on: {described}"
            if is_few and any(p.severity is Severity.ERROR for p in serious):
                text += ". These are few. To stop at any error, pass on_error='raise'"
                text += " (--on-error raise)"
            warnings.warn(text, stacklevel=3)
        for note in self._notes:
            text = f"{self.reader}: {note} ({KINDS[note.kind].consequence})"
            warnings.warn(text, stacklevel=3)
        for problem in alone:
            warnings.warn(f"{self.reader}: {problem.detail}", stacklevel=3)
        return tuple(self._found)

    def _are_few(self, num_images, num_boxes):
        """Whether the errors are those of a few images and a few boxes."""
        lost_images = sum(self._counts[kind] for kind in _IMAGE_ERRORS)
        lost_boxes = sum(self._counts[kind] for kind in _BOX_ERRORS)
        return (
            all(
                problem.kind in _IMAGE_ERRORS or problem.kind in _BOX_ERRORS
                for problem in self._found
                if problem.severity is Severity.ERROR
            )
            and lost_images * (100 - FEW_IMAGES) <= FEW_IMAGES * num_images
            and lost_boxes * (100 - FEW_BOXES) <= FEW_BOXES * num_boxes
        )

    def refuse(self, find_images: Callable[[Sequence[str]], str] | None = None) -> None:
        """Raises one error that names all errors, unless they are left out."""
        errors = [p for p in self._found if p.severity is Severity.ERROR]
        if errors and self._on_error != "skip":
            missing = [p.file for p in errors if p.kind == "missing image"]
            are_all = len(missing) == len(errors)
            where = "Is the image folder right? " if are_all else ""
            if find_images and missing:
                hint = find_images(missing)
                where += f"{hint}. " if hint else ""
            raise (MissingImageError if are_all else InvalidValueError)(
                f"{self.reader} found {describe_problems(errors)}. {where}Repair "
                'this, or pass on_error="skip" (--skip-errors) to leave it out'
            )


def describe_problems(problems: Sequence[Problem], shown: int = 3) -> str:
    """Writes problems as one line that counts each kind and names its first ones."""
    parts = []
    for kind in dict.fromkeys(problem.kind for problem in problems):
        members = [problem for problem in problems if problem.kind == kind]
        names = [str(problem) for problem in members[:shown]]
        names += ["..."] if len(members) > shown else []
        parts.append(f"{count_kind(kind, len(members))}: {'; '.join(names)}")
    return ". ".join(parts)


def count_kind(kind: str, count: int) -> str:
    """Writes a kind of problem with its number, unless one problem is of many."""
    if KINDS[kind].counts_all:
        return kind
    if count != 1:
        plural = f"{kind}es" if kind.endswith(("s", "x")) else f"{kind}s"
        kind = kind.replace("box ", "boxes ") if kind.startswith("box ") else plural
    return f"{count:,} {kind}"
