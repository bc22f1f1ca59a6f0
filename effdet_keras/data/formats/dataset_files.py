"""Decides which files and folders belong to a dataset, and which split a name means.

Every reader lists folders through these functions. Hidden files, a Mac's `._` files,
Jupyter's copies and the settings of editors are therefore data for none of them.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import os
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.images import LFS_CURE, is_lfs_pointer

# Folders of programs beside data: environments, caches, logs, models and their results.
# A dataset is looked for in them last, if there is none elsewhere.
NO_DATA_FOLDERS = frozenset(
    """
    __pycache__ node_modules site-packages venv env virtualenv build dist
    wandb mlruns lightning_logs logs log runs output outputs results predictions
    checkpoints checkpoint ckpt saved_model saved_models exported_models exported-models
    models model weights pretrained pre-trained-models pretrained_models
    training_checkpoints tensorboard cache notebooks third_party
    """.split()
)
DEPTH = 4  # levels of folders below the named folder in which a dataset is looked for
DEEPEST = 8  # levels to look at if no dataset is found in the first `DEPTH`


def is_visible(name: str) -> bool:
    """Returns whether a file or folder of this name can belong to a dataset.

    Names that begin with a dot come from editors (`.idea`), Jupyter
    (`.ipynb_checkpoints`), Git, or a Mac (`._a.jpg`), which also makes `__MACOSX`.

    Example:
        >>> list(filter(is_visible, ("a.jpg", "._a.jpg", ".idea", "__MACOSX")))
        ['a.jpg']
    """
    return not name.startswith(".") and name != "__MACOSX"


_listings: contextvars.ContextVar[dict | None] = contextvars.ContextVar(
    "listings", default=None
)


@contextlib.contextmanager
def listing_once() -> Iterator[None]:
    """Context in which a folder is listed only once, however many readers need it."""
    known = _listings.get()
    token = _listings.set({} if known is None else known)
    try:
        yield
    finally:
        _listings.reset(token)


def names_in(folder: Any) -> tuple[list[str], list[str]]:
    """Returns the sorted visible names of folders, and of files, in a folder."""
    listing = _listing_of(folder)
    return list(listing.folders), listing.files


class _Listing(NamedTuple):
    """The sorted visible names in a folder."""

    folders: list[str]
    files: list[str]
    # Names of files by what follows their last dot, in lower case.
    by_suffix: Mapping[str, list[str]]


def _listing_of(folder):
    listings = _listings.get()
    if listings is None:
        return _list(folder)
    if folder not in listings:
        listings[folder] = _list(folder)
    return listings[folder]


def _list(folder):
    folders, files, by_suffix = [], [], collections.defaultdict(list)
    if is_remote(folder):
        for path in folder.iterdir():
            if is_visible(path.name):
                (folders if path.is_dir() else files).append(path.name)
    else:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_visible(entry.name):
                    (folders if entry.is_dir() else files).append(entry.name)
    files.sort()
    for name in files:
        by_suffix[name.lower().rpartition(".")[2]].append(name)
    return _Listing(sorted(folders), files, by_suffix)


def visible_folders(folder: Any) -> list[Any]:
    """Returns the visible folders directly in a folder, sorted by name."""
    return [folder / name for name in names_in(folder)[0]]


def visible_files(folder: Any, *suffixes: str) -> list[Any]:
    """Returns the visible files directly in a folder, sorted by name.

    Args:
        folder: path of a folder. One that does not exist has no files.
        suffixes: endings in lower case, such as ".json". Without any, all files are
            returned.

    Returns:
        List of paths.
    """
    if not folder.is_dir():
        return []
    listing = _listing_of(folder)
    if not suffixes:
        return [folder / name for name in listing.files]
    # There may be 100,000 images beside few other files: the listing by suffix avoids a
    # search through all of them.
    endings = {suffix.rpartition(".")[2] for suffix in suffixes}
    names = [name for ending in endings for name in listing.by_suffix.get(ending, ())]
    return [folder / n for n in sorted(names) if n.lower().endswith(suffixes)]


def walk(folder: Any, depth: int | None = None) -> Iterator[tuple[Any, list, list]]:
    """Yields a folder and the folders below it, as `os.walk` does.

    Each item has the path, and the sorted visible names of the folders and of the files
    in it. The caller may shorten the list of folders: those left out are not entered. A
    folder that a link leads to is entered once.

    Args:
        folder: path of the folder.
        depth: how many levels of folders to enter; None means all.
    """
    waiting, seen = [(folder, 0)], set()
    while waiting:
        place, level = waiting.pop()
        try:
            folders, files = names_in(place)
        except OSError:
            continue  # a folder without permission is not part of a dataset
        yield place, folders, files
        if depth is not None and level >= depth:
            continue
        inner = [place / name for name in folders]
        if not is_remote(folder):
            inner = [p for p in inner if not p.is_symlink() or _is_new(p, seen)]
        waiting += [(path, level + 1) for path in reversed(inner)]


def _is_new(link, seen):
    """Returns whether a link leads to a folder neither above it nor entered before."""
    target = link.resolve()
    if target in seen or target in link.parent.resolve().parents:
        return False
    seen.add(target)
    return target != link.parent.resolve()


ARCHIVES = (".zip", ".rar", ".7z", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_ARCHIVE_DEPTH = 3  # levels of folders below a dataset in which archives are looked for


def describe_archives(folder: Any, missing: Sequence[str] = ()) -> str:
    """Returns a sentence about archives below a folder that may have missing images.

    Args:
        folder: path, or None if it is unknown. For an address, the result is "".
        missing: paths of the missing images, if they are known. Zip files without any
            of them are then left out.

    Returns:
        A sentence, or "" if there is no archive.
    """
    if folder is None or is_remote(folder):
        return ""
    found = []
    for place, folders, files in walk(folder, depth=_ARCHIVE_DEPTH):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        found += [place / name for name in files if name.lower().endswith(ARCHIVES)]
    wanted = set(map(_file_name, missing))
    found = [file for file in found if not wanted or _may_have(file, wanted)]
    if not found:
        return ""
    pointers = list(filter(is_lfs_pointer, found))
    if pointers:
        return f"The images may be in {str(pointers[0])!r}, which {LFS_CURE}"
    names = ", ".join(repr(str(file)) for file in found[:3])
    names += ", ..." if len(found) > 3 else ""
    return f"The images may be in {names}: unpack {'it' if len(found) == 1 else 'them'}"


def _may_have(archive, wanted):
    """Returns whether an archive may have files of some names, by a zip's table.

    Archives other than zip files may always have them.
    """
    if archive.suffix.lower() != ".zip":
        return True
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return True
    return any(
        _file_name(member.filename) in wanted
        or member.filename.lower().endswith(ARCHIVES)
        or not (member.filename.isascii() or member.flag_bits & _IS_UTF8)
        for member in members
    )


_IS_UTF8 = 0x800  # flag in a zip file: the name of the member is in UTF-8


def _file_name(path):
    """Returns the last part of a path of any operating system, in lower case."""
    return re.split(r"[\\/]", path)[-1].lower()


# --- The split that the name of a file or folder means.

ONE_SPLIT = "train"  # the name of the split of a dataset that is not divided

# Words in Spanish, Portuguese, French and Italian. Some have other meanings too:
# `teste` means heads in Italian.
_IN_OTHER_LANGUAGES = {
    "entrenamiento": "train",
    "treinamento": "train",
    "treino": "train",
    "entrainement": "train",
    "entraînement": "train",
    "apprentissage": "train",
    "addestramento": "train",
    "validacion": "validation",
    "validación": "validation",
    "validacao": "validation",
    "validação": "validation",
    "validazione": "validation",
    "prueba": "test",
    "pruebas": "test",
    "teste": "test",
    "testes": "test",
}
_SPLIT_WORD = re.compile(
    r"(?P<word>training|train|trn|validation|validate|valid|val|eval|testing|test|tst)"
    r"(?P<year>\d{4})?(?:set|data|imgs?|images?|labels?|_)?",
    re.IGNORECASE,
)
_TRAINVAL = re.compile(r"train_?val(\d{4})?", re.IGNORECASE)
_SHORT = {"training": "train", "trn": "train", "testing": "test", "tst": "test"}
_SHORT["validate"] = "validation"
_ROLES = {"train": "train", "test": "test"}
_ROLES |= dict.fromkeys(("val", "valid", "validation", "eval"), "validation")
# Words in names that describe the content of a file and not its split.
_OTHER_WORDS = frozenset(
    """
    annotation annotations annots annot anns ann instances instance default data dataset
    datasets label labels result results coco voc yolo csv json xml xmls txt bbox bboxes
    box boxes set image images imgs img gt obj object objects split files file list
    detection detections det record records tfrecord tfrecords tf via region regions
    project createml labelme darknet cvat roboflow final new export custom
    """.split()
)

# Words for content that may be joined to another word, as in `oldimages`.
_CONTENTS = (
    "annotations?|images?|labels?|files|data|datasets?|sets?|imgs?|photos?|frames?"
    "|txts?|xmls?|version"
)


def split_in_name(name: str) -> str | None:
    """Returns the split that a name means, or None if it has words of other meaning.

    Words for the content of a file, such as those in `_OTHER_WORDS`, and numbers are
    ignored, except for a year directly behind the split, as in `val2017`. Any other
    word makes the meaning uncertain: `toy_train` may hold toys. If there are several
    names, see `splits_in_names`.

    Example:
        >>> [split_in_name(n) for n in ("obj_train_data", "Train", "val2017", "cats")]
        ['train', 'train', 'val2017', None]
    """
    words = _words_of(name)
    others = [w for w in words if not _SPLIT_WORD.fullmatch(w) and not w.isdecimal()]
    is_known = all(w.lower() in _OTHER_WORDS for w in others)
    return split_word_in(name) if is_known else None


def split_word_in(name: str) -> str | None:
    """Returns the only split that a name mentions, beside any other words; else None.

    Example:
        >>> [split_word_in(n) for n in ("cats_train", "toyTest (1)", "train_test")]
        ['train', 'test', None]
    """
    found = [m for word in _words_of(name) if (m := _SPLIT_WORD.fullmatch(word))]
    return _split_of_match(found[0]) if len(found) == 1 else None


def words_in_name(name: str) -> set[str]:
    """Returns the words of a name in lower case, without words for its content.

    Example:
        >>> sorted(words_in_name("annotations-Test_cam1"))
        ['cam1', 'test']
    """
    return {word.lower() for word in _words_of(name)} - _OTHER_WORDS


def has_word(name: str, words: str) -> bool:
    """Returns whether a name has one of some words, such as "old|backups?".

    The word may be joined to a word for the content of a folder, and to a number.

    Example:
        >>> names = ("images_old", "oldLabels", "rawdata2", "gold", "drawers")
        >>> [has_word(name, "old|raw") for name in names]
        [True, True, True, False, False]
    """
    pattern = rf"(v?\d+)?({_CONTENTS})?({words})({_CONTENTS})?(\d+x?)?"
    return any(re.fullmatch(pattern, word, re.I) for word in _words_of(name))


# Words in names for data from before a correction, or that nobody checked.
_NOT_BETTER = (
    r"olds?|back(up|ed)?s?|bak|raw|orig(inals?)?|aug(s|ment(ed|ations?)?)?|pseudo"
    r"|auto(mated|matic)?|(auto|pseudo)(label|annotat|generat)\w*"
    r"|pred(s|ict(ed|ions?)?)?|copy(of)?|copies"
)


def is_no_better(name: str) -> bool:
    """Returns whether a name is that of an older, unchecked or augmented version.

    Example:
        >>> [is_no_better(n) for n in ("labels_old", "augmented", "with_road")]
        [True, True, False]
    """
    return has_word(name, _NOT_BETTER)


def _words_of(name):
    """Returns the words of a name; "trainImages" and "TrainSet" have two each."""
    return [w for w in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if w]


def _split_of_match(match):
    word = match["word"].lower()
    return _SHORT.get(word, word) + (match["year"] or "")


def _role_of(split):
    return _ROLES[split.rstrip("0123456789")]


def splits_in_names(names: Iterable[str]) -> dict[str, str]:
    """Returns which of the names of neighboring files or folders mean splits.

    A name that also has other words means a split only if another name has the same
    other words and a different split. A word of another language means a split only if
    the names mean more than one split in all.

    Returns:
        Dict from name to split. If two names mean the same split, the name itself takes
        the place of the split.

    Example:
        >>> splits_in_names(["cats_train", "cats_val", "toy_train", "valid images"])
        {'cats_train': 'train', 'cats_val': 'val', 'valid images': 'valid'}
        >>> splits_in_names(["teste", "caschi"]), splits_in_names(["teste", "treino"])
        ({}, {'teste': 'test', 'treino': 'train'})
    """
    names = list(names)
    found = {name: split_in_name(name) for name in names}
    families = collections.defaultdict(dict)
    for name in names:
        if found[name] is None and (split := split_word_in(name)):
            others = [w.lower() for w in _words_of(name) if not w.isdecimal()]
            others = [w for w in others if not _SPLIT_WORD.fullmatch(w)]
            families[tuple(others)][name] = split
    for family in families.values():
        if len({_role_of(s) for s in family.values()}) > 1:
            found |= family
    found = {name: split for name, split in found.items() if split is not None}
    others = {n: s for n in names if n not in found and (s := _foreign_split(n))}
    if len({*map(_role_of, found.values()), *others.values()}) > 1:
        found |= others
    counts = collections.Counter(found.values())
    return {n: split if counts[split] == 1 else n for n, split in found.items()}


def _foreign_split(name):
    """Returns the only split that a name means in another language, or None."""
    words = _words_of(unicodedata.normalize("NFC", name).lower())
    found = [_IN_OTHER_LANGUAGES[w] for w in words if w in _IN_OTHER_LANGUAGES]
    others = (w for w in words if w not in _IN_OTHER_LANGUAGES and not w.isdecimal())
    return (
        found[0]
        if len(found) == 1 and all(map(_OTHER_WORDS.__contains__, others))
        else None
    )


def split_folders(folder: Any) -> dict[str, Any]:
    """Returns the folders directly in a folder that are named after splits.

    Args:
        folder: path of the folder.

    Returns:
        Dict from split, as `splits_in_names` gives it, to path.
    """
    splits = splits_in_names(names_in(folder)[0])
    return {split: folder / name for name, split in splits.items()}


def split_of_name(name: str) -> str:
    """Returns the split that a file name means, which may be the name itself.

    A name that only has words for the content of a file means "train".

    Example:
        >>> [split_of_name(n) for n in ("instances_default", "val_labels", "cats")]
        ['train', 'val', 'cats']
    """
    split = split_in_name(name)
    if split is not None:
        return split
    words = re.split(r"[\s_.\-]+", name.lower())
    return ONE_SPLIT if all(w in _OTHER_WORDS for w in words if w) else name


def split_names(names: Sequence[str]) -> list[str]:
    """Returns a unique split name for each name of a file or folder.

    If two mean the same split, both keep their own names, so that no file hides
    another.

    Example:
        >>> split_names(["instances_default", "instances_val"])
        ['train', 'val']
        >>> split_names(["train", "annotations"])
        ['train', 'annotations']
    """
    named = splits_in_names(names)
    short = [named.get(name) or split_of_name(name) for name in names]
    # "train.json" is the split "train"; "annotations.json" beside it is not.
    certain = {split_word_in(name) for name in named}
    short = [
        s if name in named or s not in certain else name
        for s, name in zip(short, names)
    ]
    counts = collections.Counter(short)
    return [s if counts[s] == 1 else name for s, name in zip(short, names)]


def role_of_split(name: str) -> str | None:
    """Returns the role of a split: "train", "validation", "test", or None if unknown.

    Example:
        >>> [role_of_split(n) for n in ("train2017", "valid", "trainval")]
        ['train', 'validation', None]
    """
    split = split_in_name(name)
    return None if split is None else _role_of(split)


def splits_of_role(names: Iterable[str], role: str | None) -> list[str]:
    """Returns the splits with a role of `role_of_split`.

    Pascal VOC's `trainval` has the role "train" if no other split has it.

    Example:
        >>> splits_of_role(["trainval", "test"], "train")
        ['trainval']
        >>> splits_of_role(["trainval", "train", "val2017"], "train")
        ['train']
    """
    names = list(names)
    found = [name for name in names if role_of_split(name) == role]
    if role == "train" and not found:
        found = [name for name in names if _TRAINVAL.fullmatch(name)]
    return found


def first_to_train_on(names: Iterable[str]) -> str:
    """Returns the split to train on; if none has that role, the first one.

    Example:
        >>> first_to_train_on(["test", "train2017"]), first_to_train_on(["a", "b"])
        ('train2017', 'a')
    """
    names = list(names)
    return (splits_of_role(names, "train") or names)[0]


def split_roles(parts: Iterable[str]) -> set[str]:
    """Returns the roles of the splits that the folders of a path mention.

    Any other words beside them are ignored. A word that may mean a split counts as one,
    so that an image is not taken for one of another split by mistake.

    Example:
        >>> sorted(split_roles(["pets_train", "images"]))
        ['train']
    """
    words = (word for part in parts for word in _words_of(part))
    matches = filter(None, map(_SPLIT_WORD.fullmatch, words))
    return {_role_of(_split_of_match(m)) for m in matches}
