"""Finds where a YOLO dataset has its images, txt files and class names.

People arrange these files in many ways: Ultralytics' `data.yaml`, darknet's `.data`
file and lists, folders of images and labels, folders of splits, or all files side by
side.
"""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.remote_path import path_of
from effdet_keras.data.formats.yolo_folders import folder_layout
from effdet_keras.data.formats.yolo_lists import darknet_layout
from effdet_keras.data.formats.yolo_places import Layout, MissingFolderError
from effdet_keras.data.formats.yolo_yaml import find_yaml, yaml_layout


def find_layout(path: Any) -> Layout:
    """Finds where a YOLO dataset has its images, its splits and its class names.

    Args:
        path: a folder, a `data.yaml` or a darknet `.data` file.

    Returns:
        `Layout`.

    Raises:
        FileNotFoundError: If there is no such dataset.
        ValueError: If its `data.yaml` has no splits, or invalid `names`.
    """
    path = path_of(path)
    if path.is_file():
        is_darknet = path.suffix.lower() == ".data"
        layout = darknet_layout(path) if is_darknet else yaml_layout(path)
        if layout is None:
            raise MissingFolderError(
                f"The lists of images that {str(path)!r} names were not found."
            )
        return layout
    file, others = find_yaml(path)
    if file is None:
        return folder_layout(path)
    layout = yaml_layout(file)
    if others:
        names = ", ".join(repr(other.name) for other in others)
        detail = (
            f"of several yaml files with splits, {file.name!r} is read, and not {names}"
        )
        layout = layout._replace(
            notes=(*layout.notes, ("other yaml file", str(path), detail))
        )
    return layout
