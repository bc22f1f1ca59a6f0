"""Small datasets as people leave them: files in folders, and what is read of them."""

import json
import warnings

from PIL import Image

from effdet_keras.data import load_splits, write_tfrecord

ROW = "0 0.5 0.5 0.4 0.4\n"
VOC = (
    "<annotation><filename>{0}</filename><object><name>cat</name><bndbox>"
    "<xmin>2</xmin><ymin>3</ymin><xmax>14</xmax><ymax>16</ymax></bndbox></object>"
    "</annotation>"
)
CSV = "filename,width,height,class,xmin,ymin,xmax,ymax\n"


def put(folder, *names, text="", color="black"):
    """Writes files into a folder: images by their endings, all others with a text."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() in (".jpg", ".png"):
            Image.new("RGB", (40, 20), color).save(path)
        else:
            path.write_text(text)


def coco(*names, size=(40, 20)):
    return json.dumps(
        {
            "images": [
                {"id": i, "file_name": name, "width": size[0], "height": size[1]}
                for i, name in enumerate(names, 1)
            ],
            "annotations": [
                {"id": i, "image_id": i, "category_id": 1, "bbox": [1, 2, 12, 13]}
                for i, _ in enumerate(names, 1)
            ],
            "categories": [{"id": 1, "name": "cat"}],
        }
    )


def yolo(folder, images="images", labels="labels", names=("a",), classes="cat"):
    put(folder, *(f"{images}/{name}.jpg" for name in names))
    put(folder, *(f"{labels}/{name}.txt" for name in names), text=ROW)
    if classes:
        put(folder, "classes.txt", text=classes)


def voc(
    folder,
    *names,
    images="JPEGImages",
    annotations="Annotations",
    lists=(),
    sets="ImageSets/Main",
):
    """Writes a VOC folder of images, and lists of some of them.

    A name may be that of a folder as well, such as "cats/1".
    """
    for name in names:
        text = VOC.format(f"{name.rpartition('/')[2]}.jpg")
        put(folder, f"{images}/{name}.jpg")
        put(folder, f"{annotations}/{name}.xml", text=text)
    for split, members in dict(lists).items():
        put(folder, f"{sets}/{split}.txt", text="".join(f"{m}\n" for m in members))


def put_records(folder, dataset):
    """Writes a dataset as TFRecord files into a folder that has other files."""
    write_tfrecord(dataset, folder / "records")
    for file in (folder / "records").iterdir():
        file.rename(folder / file.name)
    (folder / "records").rmdir()


def loaded(folder, **options):
    """The names of the images of each split, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = load_splits(folder, **options)
    names = {
        s: [r.name.rpartition("/")[2] for r in d.records] for s, d in splits.items()
    }
    return names, " ".join(str(warning.message) for warning in caught)


def paths(dataset, folder):
    return [record.image[len(str(folder)) + 1 :] for record in dataset.records]
