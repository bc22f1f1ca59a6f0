"""Images, folders, videos and cameras to drawn files and a COCO json file."""

import dataclasses
import json
import os
import pathlib
import warnings

from effdet_keras._internal.whole_files import replacing
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES, list_images, read_image

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")


def predict_files(
    predictor,
    inputs,
    out=None,
    *,
    score_threshold=0.3,
    json_path=None,
    batch_size=1,
    tiles=None,
    augment=None,
):
    """Detects in files, prints a line for each, and writes what is asked for.

    An image that cannot be read is left out with a warning; the others go on.

    Args:
        predictor: `Predictor`.
        inputs: paths of images, of folders of images and of videos, numbers of
            cameras (as text, such as "0") and addresses of streams.
        out: folder for drawn images and videos, made if need be; None for none.
            They have the names of what was read, and replace files of an earlier run.
        score_threshold, batch_size, tiles, augment: see `Predictor.detect`.
        json_path: file to write, or None: all detections as a COCO json file, of
            which each annotation has a `score`, and each frame of a video is a
            image with a number (`frame`).

    Returns:
        int, how many inputs could not be read.

    Raises:
        ValueError: If a drawn image would replace what is read, or two would have
            one name.
        OSError, ImportError: As of `Predictor.detect_video`.
    """
    sources = _sources(inputs)
    targets = _targets(sources, out)
    records = _Records(predictor)
    looks = {"tiles": tiles, "augment": augment}
    looks["score_threshold"] = score_threshold
    failed = 0
    for batch in _batches(sources, batch_size):
        if _is_video(batch[0]):
            _predict_video(predictor, batch[0], targets, records, looks)
        else:
            found = _predict_images(predictor, batch, targets, records, looks)
            failed += len(batch) - found
    if json_path is not None:
        records.write(pathlib.Path(json_path))
    return failed


def _sources(inputs):
    """Paths of single files, numbers of cameras, addresses of streams."""
    sources = []
    for given in inputs:
        path = pathlib.Path(given)
        if path.is_dir():
            sources += list_images(path)
        elif str(given).isdigit() and not path.exists():
            sources.append(int(given))
        elif "://" in str(given):
            sources.append(str(given))
        elif path.is_file():
            sources.append(path)
        else:
            raise FileNotFoundError(f"There is no image, folder or video '{given}'")
    return sources


def _is_video(source):
    if isinstance(source, pathlib.Path):
        return source.suffix.lower() in VIDEO_SUFFIXES
    return True


def _targets(sources, out):
    """Where what is drawn on each source goes: a dict, empty without `out`."""
    if out is None:
        return {}
    out = pathlib.Path(out)
    targets = {source: out / _drawn_name(source) for source in sources}
    read = {source.resolve() for source in sources if isinstance(source, pathlib.Path)}
    taken = {}
    for source, target in targets.items():
        if target.resolve() in read:
            raise InvalidValueError(
                f"'{target}' is one of the images that are read, and would be "
                f"overwritten. Give another folder. Received: out='{out}'"
            )
        if target in taken:
            raise InvalidValueError(
                f"'{taken[target]}' and '{source}' would both be drawn into '{target}'."
                " Give them in two runs with two folders."
            )
        taken[target] = source
    out.mkdir(parents=True, exist_ok=True)
    return targets


def _drawn_name(source):
    if isinstance(source, int):
        return f"camera-{source}.mp4"
    if not isinstance(source, pathlib.Path):
        return "stream.mp4"
    if _is_video(source):
        return f"{source.stem}.{'avi' if source.suffix.lower() == '.avi' else 'mp4'}"
    is_known = source.suffix.lower() in IMAGE_SUFFIXES
    return source.name if is_known else f"{source.name}.png"


def _batches(sources, batch_size):
    """Images in batches; each video alone."""
    images = []
    for source in sources:
        if _is_video(source):
            if images:
                yield images
            yield [source]
            images = []
        else:
            images.append(source)
            if len(images) == batch_size:
                yield images
                images = []
    if images:
        yield images


def _predict_images(predictor, paths, targets, records, looks):
    """Returns how many of the images could be read."""
    images = {}
    for path in paths:
        try:
            images[path] = read_image(path)
        except (ValueError, OSError) as error:
            warnings.warn(f"'{path}' is left out: {error}", stacklevel=3)
    if not images:
        return 0
    size = {"batch_size": len(paths), "verbose": 0}
    found = predictor.detect(list(images.values()), **size, **looks)
    for path, detections in zip(images, found):
        print(f"{path}: {_counted(detections)}", flush=True)
        records.add(detections, file_name=path.name)
        if path in targets:
            detections.save(targets[path])
    return len(images)


def _predict_video(predictor, source, targets, records, looks):
    frames = predictor.detect_video(source, targets.get(source), **looks)
    name = source.name if isinstance(source, pathlib.Path) else str(source)
    for detections in frames:
        frame = detections.image_id
        print(f"{source} frame {frame}: {_counted(detections)}", flush=True)
        records.add(detections, file_name=name, frame=frame)


def _counted(detections):
    """The first line of `repr`, such as "2 detections: 1 dog, 1 cat"."""
    return repr(detections).splitlines()[0]


class _Records:
    """What was found, as it grows into a COCO file."""

    def __init__(self, predictor):
        count = predictor.config.num_classes
        self.category_ids = predictor.category_ids or tuple(range(1, count + 1))
        names = predictor.class_names or map(str, range(count))
        self.categories = [
            {"id": int(category_id), "name": name}
            for category_id, name in zip(self.category_ids, names)
        ]
        self.images, self.annotations = [], []

    def add(self, detections, **image):
        """Adds an image, with its name and what else is known of it."""
        image_id = len(self.images) + 1
        height, width = detections.image.shape[:2]
        self.images.append({"id": image_id, **image, "width": width, "height": height})
        detections = dataclasses.replace(
            detections, image_id=image_id, category_ids=self.category_ids
        )
        for record in detections.to_coco():
            width, height = record["bbox"][2:]
            number = len(self.annotations) + 1
            more = {"id": number, "area": width * height, "iscrowd": 0}
            self.annotations.append({**record, **more})

    def write(self, path):
        content = {
            "images": self.images,
            "annotations": self.annotations,
            "categories": self.categories,
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        print(f"Wrote '{os.fspath(path)}'", flush=True)
