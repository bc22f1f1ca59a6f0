"""A dataset as flags of a command name it: path, split and format."""

import dataclasses

from effdet_keras._internal.remote_path import path_of
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.load import load, split_names
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

# The splits to evaluate on where none is named: the first that is there.
EVALUATION_SPLITS = ("test", "valid", "validation", "val")


@dataclasses.dataclass(frozen=True)
class DatasetSource:
    """Where a dataset is, and which part of it is meant."""

    flag: str
    path: str | None
    split: str | None = None
    format: str | None = None

    def __post_init__(self):
        if self.path is None and (self.split or self.format):
            what = "split" if self.split else "format"
            raise InvalidValueError(
                f"The {what} {self.split or self.format!r} is given without a dataset: "
                f"add `{self.flag} DATA`."
            )

    def load(self, preferred: tuple[str, ...]) -> DetectionDataset:
        """Reads the split that was asked for, or else the first preferred one."""
        return load(self.path, self.chosen_split(preferred), format=self.format)

    def chosen_split(self, preferred: tuple[str, ...]) -> str:
        """The split that was asked for, or else the first preferred one."""
        if self.split is not None:
            return self.split
        names = split_names(self.path, format=self.format)
        found = [name for name in preferred if name in names]
        if not found and len(names) > 1:
            raise InvalidValueError(
                f"`{self.flag} {self.path}` has the splits {', '.join(names)}, and "
                f"none of {', '.join(preferred)}: say which one is meant."
            )
        return (found or names)[0]

    def is_folder_of_images(self) -> bool:
        """Whether the path is a folder with images directly in it."""
        folder = path_of(self.path)
        files = folder.iterdir() if folder.is_dir() else ()
        return any(file.suffix.lower() in IMAGE_SUFFIXES for file in files)
