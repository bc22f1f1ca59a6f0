"""Where a YOLO dataset has its images, txt files and class names."""

import dataclasses
import pathlib
import reprlib

from effdet_keras._internal.remote_path import RemotePath, exists, path_of
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.formats.split_names import ONE_SPLIT
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

_SPLITS = ("train", "val", "valid", "validation", "test")
_NAME_FILES = ("classes.txt", "obj.names", "predefined_classes.txt")
MAX_CLASSES = 10_000


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a YOLO dataset has its images.

    Attributes:
        folder: path that its entries start from.
        splits: dict from split name to a list of str: folders, or txt files that
            list images.
        class_names: tuple of str, or None where nothing names the classes.
    """

    folder: pathlib.Path
    splits: dict
    class_names: tuple | None

    def images(self, split, problems):
        """The paths of a split's images, sorted in each folder."""
        paths = []
        for entry in self.splits[split]:
            place = self._find(entry)
            if place.is_dir():
                _refuse_whole_disk(place)
                paths += _images_below(place)
            else:
                paths += self._listed(place, problems)
        if not paths:
            problems.finish()  # all that a list names may be missing
            raise FileNotFoundError(
                f"`from_yolo` found no image. Received: split={split!r} with "
                f"{self.splits[split]} in {str(self.folder)!r}"
            )
        return list(dict.fromkeys(paths))

    def _find(self, entry):
        # Ultralytics looks from `path`; Roboflow writes "../train/images" into
        # the folder that has "train" in it.
        entry = pathlib.Path(entry)
        inner = pathlib.Path(*[part for part in entry.parts if part != ".."])
        for candidate in (self.folder / entry, self.folder / inner):
            if exists(candidate):
                return candidate
        raise FileNotFoundError(
            f"`from_yolo` expects each split to be a folder or a list of images. "
            f"Received: {str(self.folder / entry)!r}, which is not there"
        )

    def _listed(self, path, problems):
        paths = []
        for line in read_text(path).splitlines():
            if line.strip():
                name = pathlib.Path(line.strip())
                places = [path.parent / name, self.folder / name]
                there = [place for place in places if place.is_file()]
                paths += there[:1]
                if not there:
                    problems.add("missing image", line.strip(), f"of {path.name}")
        return paths


def find_layout(path):
    """Finds out how a YOLO dataset is laid out.

    Args:
        path: a `data.yaml`, a `.data` file, or a folder.

    Returns:
        `Layout`.

    Raises:
        FileNotFoundError: If nothing there has YOLO's format.
        ValueError: If the file cannot be read.
    """
    path = path_of(path)
    if path.is_file():
        is_darknet = path.suffix == ".data"
        return _darknet_layout(path) if is_darknet else _yaml_layout(path)
    if not path.is_dir():
        raise FileNotFoundError(
            "`from_yolo` expects a data.yaml, a .data file or a folder. "
            f"Received: path={str(path)!r}"
        )
    files = [*sorted(path.glob("*.yaml")), *sorted(path.glob("*.yml"))]
    files.sort(key=lambda file: file.stem != "data")
    # One of this name is meant; of others, which may be anything, one with names.
    files = [file for file in files if file.stem == "data" or _has_names(file)]
    if files:
        return _yaml_layout(files[0])
    files = sorted(path.glob("*.data"))
    return _darknet_layout(files[0]) if files else _folder_layout(path)


def _has_names(path):
    try:
        return "names" in _read_yaml(path)
    except InvalidValueError:
        return False


def label_file(path):
    """Returns the txt file of an image: in `labels` for `images`, or beside it.

    Args:
        path: path of the image.

    Returns:
        `pathlib.Path`; it need not be there.

    Example:
        >>> label_file(pathlib.Path("cats/images/a.jpg")).as_posix()
        'cats/images/a.txt'
    """
    parts = list(path.parts)
    if "images" in parts[:-1]:
        last = len(parts) - 2 - parts[-2::-1].index("images")
        parts[last] = "labels"
        file = _of_parts(path, parts).with_suffix(".txt")
        if file.is_file():
            return file
    return path.with_suffix(".txt")


def _of_parts(path, parts):
    if isinstance(path, RemotePath):
        return path.with_parts(parts)
    return pathlib.Path(*parts)


def _yaml_layout(path):
    content = _read_yaml(path)
    folder = path.parent
    base = content.get("path")
    if isinstance(base, str) and (folder / base).is_dir():
        folder = folder / base
    splits = {}
    for key, value in content.items():
        if value and _is_split(key, value, folder):
            splits[key] = _entries(key, value, path)
    if not splits:
        raise InvalidValueError(
            f"A data.yaml must have `train`, `val` or `test`. Received: {str(path)!r} "
            f"with {reprlib.repr(list(content))}"
        )
    return Layout(folder, splits, _yaml_names(content, path))


def _is_split(key, value, folder):
    if key in _SPLITS[:-1]:
        return True
    # "test" is often named but not given, and other keys are no splits.
    if not isinstance(key, str) or key in ("path", "names"):
        return False
    entry = value[0] if isinstance(value, list) else value
    return isinstance(entry, str) and exists(folder / entry)


def _entries(split, value, path):
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise InvalidValueError(
            f"`{split}` of a data.yaml must be a path or a list of paths. "
            f"Received: {str(path)!r} with {reprlib.repr(value)}"
        )
    return entries


def _read_yaml(path):
    text = read_text(path)
    try:
        content = load_yaml(text, words=True)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"`from_yolo` expects a yaml file. Received: {str(path)!r} ({error})"
        ) from error
    if not isinstance(content, dict):
        raise InvalidValueError(
            "`from_yolo` expects a yaml file with `names` and `train`. "
            f"Received: {str(path)!r} with {reprlib.repr(content)}"
        )
    return content


def _yaml_names(content, path):
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[i] for i in range(len(names))]
    if (
        names is None
        and type(content.get("nc")) is int
        and 0 < content["nc"] <= MAX_CLASSES
    ):
        names = [str(i) for i in range(content["nc"])]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidValueError(
            "`names` of a data.yaml must be a list of class names, or a dict of them "
            f"by number from 0. Received: {str(path)!r} with {reprlib.repr(names)}"
        )
    return tuple(names)


def _darknet_layout(path):
    lines = [line.partition("=") for line in read_text(path).splitlines()]
    content = {key.strip(): value.strip() for key, _, value in lines if value.strip()}
    splits = {key: [content[key]] for key in _SPLITS if key in content}
    if not splits or "names" not in content:
        raise InvalidValueError(
            "A .data file must have lines `train = ...` and `names = ...`. "
            f"Received: {str(path)!r}"
        )
    # Darknet's paths start from where it is called: its folder's parent, or itself.
    for folder in (path.parent, *path.parent.parents):
        if (folder / content["names"]).is_file():
            return Layout(folder, splits, _names_in(folder / content["names"]))
    raise FileNotFoundError(
        f"`from_yolo` found no file of names. Received: {str(path)!r} with "
        f"names={content['names']!r}"
    )


def _folder_layout(path):
    splits = _folder_splits(path)
    if not splits:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            "`labels`, or with images and txt files. "
            f"Received: path={str(path)!r}"
        )
    places = [path, path / "labels", path / "labels" / "train", path.parent]
    files = [place / name for place in places for name in _NAME_FILES]
    names = next((_names_in(file) for file in files if file.is_file()), None)
    return Layout(path, splits, names)


def _folder_splits(path):
    images, labels = path / "images", path / "labels"
    if images.is_dir() and labels.is_dir():
        inner = sorted(place.name for place in images.iterdir() if place.is_dir())
        if inner and not _has_images(images):
            return {name: [f"images/{name}"] for name in inner}
        return {ONE_SPLIT: ["images"]}
    inner = [name for name in _SPLITS if (path / name / "labels").is_dir()]
    if inner:
        return {name: [f"{name}/images"] for name in inner}
    beside = any(label_file(image).is_file() for image in _images_in(path))
    return {ONE_SPLIT: ["."]} if beside else {}


def _images_in(folder):
    return (path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def _has_images(folder):
    return any(True for _ in _images_in(folder))


def _refuse_whole_disk(folder):
    """A slip such as `train: /` would be a search for hours."""
    folder = folder.resolve()
    if folder in (folder.parent, pathlib.Path.home()):
        raise InvalidValueError(
            "A split must be a folder of images, not a whole disk or home folder. "
            f"Received: {str(folder)!r}"
        )


def _images_below(folder):
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )


def _names_in(path):
    """The lines, without blank ones at the end: others would shift the labels."""
    return tuple(line.strip() for line in read_text(path).rstrip().splitlines())


def _lines(path):
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
