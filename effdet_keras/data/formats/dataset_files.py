"""Which files and folders belong to a dataset, and which split a name stands for.

Every reader lists folders through these functions, so that hidden files, a Mac's `._`
files, Jupyter's copies and the settings of editors are data for none of them.
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

# Folders of programs beside data: environments, caches, logs, models and their results.
# They are looked into last of all, for a dataset that is nowhere else.
NO_DATA_FOLDERS = frozenset(
    """
    __pycache__ node_modules site-packages venv env virtualenv build dist
    wandb mlruns lightning_logs logs log runs output outputs results predictions
    checkpoints checkpoint ckpt saved_model saved_models exported_models exported-models
    models model weights pretrained pre-trained-models pretrained_models
    training_checkpoints tensorboard cache notebooks third_party
    """.split()
)
DEPTH = 4  # folders below the one that is named, in which a dataset is looked for
DEEPEST = 8  # where there is none above


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name can belong to a dataset.

    Names that begin with a dot are of editors (`.idea`), Jupyter
    (`.ipynb_checkpoints`), Git, and of a Mac (`._a.jpg`), which also makes `__MACOSX`.

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
    """Context in which a folder is listed once, however many readers look into it."""
    known = _listings.get()
    token = _listings.set({} if known is None else known)
    try:
        yield
    finally:
        _listings.reset(token)


def names_in(folder: Any) -> tuple[list[str], list[str]]:
    """The visible names in a folder, sorted: of its folders, and of its files."""
    listing = _listing_of(folder)
    return list(listing.folders), listing.files


class _Listing(NamedTuple):
    """The visible names in a folder, sorted."""

    folders: list[str]
    files: list[str]
    by_suffix: Mapping[str, list[str]]  # the files by what follows their last dot


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
    """The folders directly in a folder, sorted by name."""
    return [folder / name for name in names_in(folder)[0]]


def visible_files(folder: Any, *suffixes: str) -> list[Any]:
    """The files directly in a folder, sorted by name.

    Args:
        folder: path of a folder; one that is not there has no files.
        suffixes: endings in lower case, such as ".json". None of them means every file.
    """
    if not folder.is_dir():
        return []
    listing = _listing_of(folder)
    if not suffixes:
        return [folder / name for name in listing.files]
    # There may be 100,000 images beside few other files: those are not looked through.
    endings = {suffix.rpartition(".")[2] for suffix in suffixes}
    names = [name for ending in endings for name in listing.by_suffix.get(ending, ())]
    return [folder / n for n in sorted(names) if n.lower().endswith(suffixes)]


def walk(folder: Any, depth: int | None = None) -> Iterator[tuple[Any, list, list]]:
    """As `os.walk`: each folder, with the sorted visible names of folders and files.

    The caller may shorten the list of folders: those left out are not entered. A folder
    that a link leads to is entered once.
    """
    waiting, seen = [(folder, 0)], set()
    while waiting:
        place, level = waiting.pop()
        try:
            folders, files = names_in(place)
        except OSError:
            continue  # that may not be read: not ours
        yield place, folders, files
        if depth is not None and level >= depth:
            continue
        inner = [place / name for name in folders]
        if not is_remote(folder):
            inner = [p for p in inner if not p.is_symlink() or _is_new(p, seen)]
        waiting += [(path, level + 1) for path in reversed(inner)]


def _is_new(link, seen):
    """Whether a link leads to a folder that is not above it, nor was there before."""
    target = link.resolve()
    if target in seen or target in link.parent.resolve().parents:
        return False
    seen.add(target)
    return target != link.parent.resolve()


ARCHIVES = (".zip", ".rar", ".7z", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_ARCHIVE_DEPTH = 3  # folders below that of a dataset, in which archives are looked for


def describe_archives(folder: Any, missing: Sequence[str] = ()) -> str:
    """Says which archives below a folder may have images that are missing.

    Args:
        folder: path, or None where it is not known; of addresses nothing is said.
        missing: paths of these images, where they are known: zip files without any of
            them are left out.

    Returns:
        A sentence; "" without an archive.
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
    names = ", ".join(repr(str(file)) for file in found[:3])
    names += ", ..." if len(found) > 3 else ""
    return f"The images may be in {names}: unpack {'it' if len(found) == 1 else 'them'}"


def _may_have(archive, wanted):
    """Whether an archive may have files of some names, by the list of a zip file."""
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


_IS_UTF8 = 0x800  # the flag of a name in a zip file whose encoding is known


def _file_name(path):
    """The last part of a path of any machine, for a comparison."""
    return re.split(r"[\\/]", path)[-1].lower()


# --- The split that the name of a file or folder stands for.

ONE_SPLIT = "train"  # the name of a dataset that is not divided

# In Spanish, Portuguese, French and Italian. Some mean other things as well: `teste`
# are heads in Italian.
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
# Words of such names that tell what is in a file, not of which split it is.
_OTHER_WORDS = frozenset(
    """
    annotation annotations annots annot anns ann instances instance default data dataset
    datasets label labels result results coco voc yolo csv json xml xmls txt bbox bboxes
    box boxes set image images imgs img gt obj object objects split files file list
    detection detections det record records tfrecord tfrecords tf via region regions
    project createml labelme darknet cvat roboflow final new export custom
    """.split()
)

# Those that are written together with another word, as in `oldimages`.
_CONTENTS = (
    "annotations?|images?|labels?|files|data|datasets?|sets?|imgs?|photos?|frames?"
    "|txts?|xmls?|version"
)


def split_in_name(name: str) -> str | None:
    """The split that a name mentions, beside words that mean no split; else None.

    Numbers mean no split either, but for a year, as in `val2017`. Other words may mean
    one: `toy_train` may hold toys. Where a second name tells, see `splits_in_names`.

    Example:
        >>> [split_in_name(n) for n in ("obj_train_data", "Train", "val2017", "cats")]
        ['train', 'train', 'val2017', None]
    """
    words = _words_of(name)
    others = [w for w in words if not _SPLIT_WORD.fullmatch(w) and not w.isdecimal()]
    is_known = all(w.lower() in _OTHER_WORDS for w in others)
    return split_word_in(name) if is_known else None


def split_word_in(name: str) -> str | None:
    """The only split that a name mentions, whatever words are beside it; else None.

    Example:
        >>> [split_word_in(n) for n in ("cats_train", "toyTest (1)", "train_test")]
        ['train', 'test', None]
    """
    found = [m for word in _words_of(name) if (m := _SPLIT_WORD.fullmatch(word))]
    return _split_of_match(found[0]) if len(found) == 1 else None


def words_in_name(name: str) -> set[str]:
    """The words of a name in lower case, without those that only say what it holds.

    Example:
        >>> sorted(words_in_name("annotations-Test_cam1"))
        ['cam1', 'test']
    """
    return {word.lower() for word in _words_of(name)} - _OTHER_WORDS


def has_word(name: str, words: str) -> bool:
    """Whether a name has one of some words, such as "old|backups?".

    It may be written together with a word for what a folder holds, and a number.

    Example:
        >>> names = ("images_old", "oldLabels", "rawdata2", "gold", "drawers")
        >>> [has_word(name, "old|raw") for name in names]
        [True, True, True, False, False]
    """
    pattern = rf"(v?\d+)?({_CONTENTS})?({words})({_CONTENTS})?(\d+x?)?"
    return any(re.fullmatch(pattern, word, re.I) for word in _words_of(name))


def _words_of(name):
    """The words of a name: "trainImages" and "TrainSet" are two as well."""
    return [w for w in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if w]


def _split_of_match(match):
    word = match["word"].lower()
    return _SHORT.get(word, word) + (match["year"] or "")


def _role_of(split):
    return _ROLES[split.rstrip("0123456789")]


def splits_in_names(names: Iterable[str]) -> dict[str, str]:
    """The names that mean splits, of files or folders beside each other.

    Names with other words are splits where two of them differ in the split alone, and
    words of other languages where they mean another split than a name beside them.

    Returns:
        Dict from name to split: the name itself where two mean the same split.

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
    """The only split that a name mentions in another language than English, or None."""
    words = _words_of(unicodedata.normalize("NFC", name).lower())
    found = [_IN_OTHER_LANGUAGES[w] for w in words if w in _IN_OTHER_LANGUAGES]
    others = (w for w in words if w not in _IN_OTHER_LANGUAGES and not w.isdecimal())
    return (
        found[0]
        if len(found) == 1 and all(map(_OTHER_WORDS.__contains__, others))
        else None
    )


def split_folders(folder: Any) -> dict[str, Any]:
    """The folders directly in a folder that are called after splits, by the split."""
    splits = splits_in_names(names_in(folder)[0])
    return {split: folder / name for name, split in splits.items()}


def split_of_name(name: str) -> str:
    """The split that the name of a file stands for, which may be the name itself.

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
    """What the splits of files, or folders, are called, each by a name of its own.

    Where two mean the same split, both keep the name of their file, so that no file is
    lost behind another.

    Example:
        >>> split_names(["instances_default", "instances_val"])
        ['train', 'val']
        >>> split_names(["train", "annotations"])
        ['train', 'annotations']
    """
    named = splits_in_names(names)
    short = [named.get(name) or split_of_name(name) for name in names]
    # "train.json" is that split; "annotations.json" beside it is not.
    certain = {split_word_in(name) for name in named}
    short = [
        s if name in named or s not in certain else name
        for s, name in zip(short, names)
    ]
    counts = collections.Counter(short)
    return [s if counts[s] == 1 else name for s, name in zip(short, names)]


def role_of_split(name: str) -> str | None:
    """What a split of this name is for: "train", "validation", "test"; None: unknown.

    Example:
        >>> [role_of_split(n) for n in ("train2017", "valid", "trainval")]
        ['train', 'validation', None]
    """
    split = split_in_name(name)
    return None if split is None else _role_of(split)


def splits_of_role(names: Iterable[str], role: str | None) -> list[str]:
    """The splits for a role of `role_of_split`.

    Pascal VOC's `trainval` is for training where no other split is.

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
    """The split to train on; where none is called so, the first one.

    Example:
        >>> first_to_train_on(["test", "train2017"]), first_to_train_on(["a", "b"])
        ('train2017', 'a')
    """
    names = list(names)
    return (splits_of_role(names, "train") or names)[0]


def split_roles(parts: Iterable[str]) -> set[str]:
    """The roles that the folders of a path mention, whatever words are beside them.

    An image is not taken for one of another split by mistake: where a word may mean a
    split, it does.

    Example:
        >>> sorted(split_roles(["pets_train", "images"]))
        ['train']
    """
    words = (word for part in parts for word in _words_of(part))
    matches = filter(None, map(_SPLIT_WORD.fullmatch, words))
    return {_role_of(_split_of_match(m)) for m in matches}
