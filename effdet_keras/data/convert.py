"""From one form of a dataset to another, with all its splits."""

from effdet_keras.data.formats.coco import write_coco
from effdet_keras.data.formats.csv import write_csv
from effdet_keras.data.formats.folder_writing import refuse_existing
from effdet_keras.data.formats.tfds import write_tfds
from effdet_keras.data.formats.tfrecord import write_tfrecord
from effdet_keras.data.formats.voc import write_voc
from effdet_keras.data.formats.yolo import write_yolo
from effdet_keras.data.load import load, load_splits
from effdet_keras.errors import InvalidValueError

_WRITERS = {
    "coco": write_coco,
    "voc": write_voc,
    "yolo": write_yolo,
    "csv": write_csv,
    "tfrecord": write_tfrecord,
    "tfds": write_tfds,
}


def convert(
    data, out, to, *, split=None, num_shards=None, csv_form=None, on_error="raise"
):
    """Writes a dataset that is on disk in another form, images included.

    Prints what was found and what was written.

    Args:
        data: path of a file or folder, as `load` takes it.
        out: folder to make; it appears once it is complete.
        to: "coco", "voc", "yolo", "csv", "tfrecord" or "tfds".
        split: the part to convert, such as "train"; None converts all.
        num_shards: files a split, of "tfrecord"; None chooses.
        csv_form: "tfod" or "automl", of "csv"; None is "tfod".
        on_error: "raise" tells of everything that is wrong in the data; "skip"
            leaves it out with a warning.

    Returns:
        `None`.

    Raises:
        FileExistsError: If `out` is there.
        FileNotFoundError: If `data` is not there.
        ValueError: If `to` is unknown, an option is not of this form, or as
            `load` and the writer do.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(f"{folder}/coco", num_train=3, num_valid=2)
        >>> convert(f"{folder}/coco", f"{folder}/yolo", "yolo")
        '/.../coco' is COCO json: splits train, valid
        '/.../yolo' is written
          train: DetectionDataset(3 images, ... circle, square, triangle)
          valid: DetectionDataset(2 images, ... circle, square, triangle)
    """
    if to not in _WRITERS:
        raise InvalidValueError(
            f"`to` must be one of {list(_WRITERS)}. Received: to={to!r}"
        )
    if (num_shards is not None and to != "tfrecord") or (csv_form and to != "csv"):
        raise InvalidValueError(
            "`num_shards` is an option of 'tfrecord', `csv_form` one of 'csv'. "
            f"Received: to={to!r}, num_shards={num_shards!r}, csv_form={csv_form!r}"
        )
    options = {"num_shards": num_shards} if to == "tfrecord" else {}
    options = {"form": csv_form} if csv_form else options
    refuse_existing(out)  # before the reading, which may take long
    if split is None:
        datasets = load_splits(data, on_error=on_error)
    else:
        datasets = {split: load(data, split, on_error=on_error)}
    _WRITERS[to](datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")
