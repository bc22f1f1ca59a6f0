"""Reduces the reference's golden arrays to what the tests compare with.

Run from the repository with the folder of the golden arrays as its argument; it
writes beside itself. Every number that is kept is kept exactly. What the arrays
are: `PROVENANCE-reference.md`, `PROVENANCE-data.md` and `PROVENANCE-records.md`.
"""

import io
import json
import pathlib
import shutil
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
NUM_ROWS = 2000  # of a grid of anchors that is too long to keep
NUM_PIXELS = 4000  # of an image's 20,000 sampled numbers
PIPELINE_CASES = (
    "eval_d0_512",
    "eval_lite0_320",
    "eval_d0_384x640",
    "eval_d7x_up_1536",
    "train_f0_s01",
    "train_f0_s05",
    "train_f0_s13_nonsquare",
    "train_f0_s2_target",
    "train_f1_s05",
    "train_f1_s13_crowdkept",
    "train_f1_s17",
)


def network_outputs(arrays):
    """Outputs of the whole network; of the finest level's classes every 2nd place."""
    kept = {"meta": arrays["meta"]}
    for key in arrays.files:
        head, _, level = key.partition("/")
        if head in ("cls", "box") and "/" not in level:
            thin = key == "cls/p3"
            kept[key] = arrays[key][:, ::2, ::2] if thin else arrays[key]
    return kept


def network_and_detections(arrays):
    """Outputs of the whole network, and what the reference detects in them."""
    kept = {"meta": arrays["meta"], "image_scales": arrays["image_scales"]}
    for key in arrays.files:
        head, _, rest = key.partition("/")
        if (
            (head in ("cls", "box") and "/" not in rest)
            or head == "nms_configs"
            or (head == "det" and rest.split("/")[1] != "generate_flip")
        ):
            kept[key] = arrays[key]
    return kept


def training(arrays):
    """Losses of three steps, and digests of weights, averages and momentum."""
    starts = ("meta", "gt_", "weight_names", "trainable_names", "losses", "eval_losses")
    starts += ("after",)
    return {key: arrays[key] for key in arrays.files if key.startswith(starts)}


def losses(arrays):
    """Inputs of the detection loss of two images (`maths.npz` has those of one)."""
    table = json.loads(str(arrays["det/table"]))
    inputs = {row["inputs"] for row in table.values()}
    kept = {"det/table": arrays["det/table"]}
    for key in arrays.files:
        prefix = key.rpartition("/")[0]
        if prefix in inputs and prefix != "det/s4_b1_i0_z0":
            kept[key] = arrays[key]
    return kept


def anchors(arrays):
    """The anchors of each configuration: all, or rows spread evenly over them."""
    kept = {"table": arrays["table"]}
    for name, case in json.loads(str(arrays["table"])).items():
        key = f"anchors/{name}"
        if key not in arrays.files:
            if f"{key}/idx" in arrays.files:  # sampled already
                step = max(1, len(arrays[f"{key}/idx"]) // NUM_ROWS)
                for end in ("idx", "val"):
                    kept[f"{key}/{end}"] = arrays[f"{key}/{end}"][::step]
        elif case["n"] <= 3 * NUM_ROWS:
            kept[key] = arrays[key]
        else:
            rows = np.linspace(0, case["n"] - 1, NUM_ROWS).round().astype("int32")
            kept[f"{key}/idx"], kept[f"{key}/val"] = rows, arrays[key][rows]
    return kept


def pipeline(arrays):
    """What the input pipeline made of one photograph, at sampled places."""
    kept = {key: arrays[key] for key in ("boxes", "classes", "is_crowd", "area")}
    whole = ("draws", "params", "image/shape", "image0/extent", "image0/stats")
    for case in PIPELINE_CASES:
        for key in (*whole, "image_scales"):
            if f"{case}/{key}" in arrays.files:
                kept[f"{case}/{key}"] = arrays[f"{case}/{key}"]
        step = len(arrays[f"{case}/image0/idx"]) // NUM_PIXELS
        for key in ("image0/idx", "image0/val"):
            kept[f"{case}/{key}"] = arrays[f"{case}/{key}"][::step]
    return kept


BOX_KEYS = ("draws", "params", "image/shape", "image0/extent", "image_scales")


def pipeline_boxes(arrays):
    """The boxes of the input pipeline, without its images."""
    kept = {key: arrays[key] for key in ("boxes", "classes", "is_crowd", "area")}
    kept["raw_size"] = np.array([636, 1024])
    cases = sorted({key.split("/")[0] for key in arrays.files if "/" in key})
    for case in cases:
        for key in BOX_KEYS:
            if f"{case}/{key}" in arrays.files:
                kept[f"{case}/{key}"] = arrays[f"{case}/{key}"]
        truth = arrays[f"{case}/groundtruth_data"].reshape(-1, 100, 7)[0]
        kept[f"{case}/groundtruth_data"] = truth[truth[:, 6] > -1]
    return kept


def write_records(source):
    """The records, with a black image in the place of the photograph."""
    import tensorflow as tf  # here, because tests are collected by importing
    from PIL import Image

    blank = io.BytesIO()
    Image.new("RGB", (1024, 636)).save(blank, "JPEG", quality=30)
    with tf.io.TFRecordWriter(str(HERE / "records.tfrecord")) as writer:
        for data in tf.data.TFRecordDataset(f"{source}/d_img1.tfrecord"):
            example = tf.train.Example.FromString(data.numpy())
            encoded = example.features.feature["image/encoded"].bytes_list
            encoded.value[0] = blank.getvalue()
            writer.write(example.SerializeToString(deterministic=True))


# By the name of the file that is written: that of the source, but for `_boxes`.
REDUCED = {
    "a_d0_s128": network_outputs,
    "a_lite0_s128": network_outputs,
    "a_d0_s200x136": network_and_detections,
    "a_train_d0": training,
    "b_losses": losses,
    "c_anchors": anchors,
    "d_input": pipeline,
    "d_input_boxes": pipeline_boxes,
}


def main(source):
    source = pathlib.Path(source)
    for name, reduced in REDUCED.items():
        kept = reduced(np.load(source / f"{name.removesuffix('_boxes')}.npz"))
        np.savez_compressed(HERE / f"{name}.npz", **kept)
    for name in ("d_raw_img1.npz", "a_d0_seg.npz", "ckpt_d0_tf1_partial/model.index"):
        (HERE / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, HERE / name)
    data = "ckpt_d0_tf1_partial/model.data-00000-of-00001"
    shutil.copyfile(source / data, HERE / data)
    write_records(source)
    maps = json.loads((source / "i_misc.json").read_text())["label_maps"]
    (HERE / "label_maps.json").write_text(json.dumps(maps, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
