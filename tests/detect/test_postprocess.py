"""From network outputs to detections: by hand, by definition, by reference."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal

from effdet_keras.box_ops import decode_boxes
from effdet_keras.detect import postprocess as module
from effdet_keras.detect.postprocess import Postprocess, non_max_suppression

SIZE = (64, 96)


def random_case(seed, images=3, num_anchors=60, num_classes=4):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-10, 60, (num_anchors, 2))
    anchors = np.concatenate([low, low + rng.uniform(8, 40, low.shape)], axis=-1)
    outputs = {
        "class_logits": rng.normal(-1, 2, (images, num_anchors, num_classes)),
        "box_deltas": rng.normal(0, 0.3, (images, num_anchors, 4)),
    }
    outputs = {key: value.astype("float32") for key, value in outputs.items()}
    return outputs, anchors.astype("float32")


def run(postprocess, outputs, anchors, size=SIZE, **options):
    outputs = {key: ops.convert_to_tensor(value) for key, value in outputs.items()}
    result = postprocess(outputs, anchors, size, **options)
    return {key: ops.convert_to_numpy(value) for key, value in result.items()}


def of_one_image(logits, anchors, size=SIZE, deltas=0.0, **options):
    """What is found with logits `[N, C]`; boxes are the anchors, without deltas."""
    outputs = {
        "class_logits": np.float32([logits]),
        "box_deltas": np.broadcast_to(np.float32(deltas), (1, len(anchors), 4)),
    }
    content = {k: options.pop(k) for k in ("content_sizes",) if k in options}
    found = run(Postprocess(**options), outputs, np.float32(anchors), size, **content)
    return {name: values[0] for name, values in found.items()}


def suppressed(boxes, scores, labels=None, **options):
    """`non_max_suppression` with NumPy in and out."""
    options = {"method": "gaussian", "iou_threshold": 0.5, "sigma": 0.5, **options}
    options = {"max_detections": 5, "score_threshold": 0.001, **options}
    labels = np.zeros_like(scores) if labels is None else labels
    arrays = np.float32(boxes), np.float32(scores), labels
    result = non_max_suppression(*map(ops.convert_to_tensor, arrays), **options)
    return tuple(map(ops.convert_to_numpy, result))


# --- by hand


@pytest.mark.parametrize("top_k", [5000, 0])
def test_unused_rows_are_zero_boxes_with_score_0_and_label_minus_1(top_k):
    outputs, anchors = random_case(seed=1)
    outputs["class_logits"][:] = -20
    outputs["class_logits"][1, 5, 2] = 3
    postprocess = Postprocess(max_detections=4, pre_nms_top_k=top_k)
    result = run(postprocess, outputs, anchors)
    assert {k: (str(v.dtype), v.shape) for k, v in result.items()} == {
        "boxes": ("float32", (3, 4, 4)),
        "scores": ("float32", (3, 4)),
        "labels": ("int32", (3, 4)),
        "num_detections": ("int32", (3,)),
    }
    np.testing.assert_array_equal(result["num_detections"], [0, 1, 0])
    labels = [[-1] * 4, [2, -1, -1, -1], [-1] * 4]
    np.testing.assert_array_equal(result["labels"], labels)
    assert result["boxes"][1, 0].any() and result["scores"][1, 0] > 0.9
    result["boxes"][1, 0] = result["scores"][1, 0] = 0
    assert not result["boxes"].any() and not result["scores"].any()


@pytest.mark.smoke
def test_box_is_decoded_and_clipped_to_height_and_width():
    given = [[2.0]], [[40, 70, 60, 90]], SIZE, [0.5, 0.5, np.log(2), 0]
    found = of_one_image(*given, max_detections=1)
    np.testing.assert_allclose(found["boxes"], [[40, 80, 64, 96]], rtol=1e-6)
    np.testing.assert_allclose(found["scores"], [1 / (1 + np.exp(-2))], rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "labels"),
    [
        ({"pre_nms_top_k": 5000}, [2, 0, -1]),
        ({"pre_nms_top_k": 0}, [2, -1, -1]),
        ({"per_class": False}, [2, -1, -1]),
    ],
)
def test_top_k_finds_two_classes_on_one_anchor_and_zero_only_the_best(option, labels):
    option |= {"method": "hard", "max_detections": 3, "score_threshold": 0.5}
    found = of_one_image([[1.0, -5.0, 2.0]], [[0, 0, 10, 10]], **option)
    np.testing.assert_array_equal(found["labels"], labels)


THREE = [[[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]]  # apart


@pytest.mark.parametrize("method", ["gaussian", "hard"])
def test_bad_numbers_take_no_place_and_harm_no_other_box(method):
    empty = [3, 3, 3, 3]
    boxes = [[[0, 0, 10, 10], empty, empty, [5, 5, 9, 9], [50, 50, 60, 60]]]
    scores = [[0.9, 0.8, 0.75, np.nan, 0.7]]
    indices, scores, count = suppressed(boxes, scores, method=method)
    np.testing.assert_array_equal(indices[0, :4], [0, 1, 2, 4])
    np.testing.assert_allclose(scores, [[0.9, 0.8, 0.75, 0.7, 0]], rtol=1e-6)
    assert count == [4]


# --- by definition


def iou(a, b):
    height = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    width = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    shared = height * width
    return shared / (areas - shared) if areas > shared else 0.0


def slow_one_class(boxes, scores, options):
    """One class of one image, from the definition: [(score, index)]."""
    scores = dict(enumerate(scores.astype("float64")))
    picked = []
    while scores and len(picked) < options["max_detections"]:
        best = max(scores, key=lambda i: (scores[i], -i))
        score = scores.pop(best)
        if not score > options["score_threshold"]:
            break
        picked.append((score, best))
        for i in list(scores):
            overlap = iou(boxes[i], boxes[best])
            if options["method"] == "gaussian":
                scores[i] *= np.exp(-(overlap**2) / options["sigma"])
            elif overlap > options["iou_threshold"]:
                del scores[i]
    return picked


def slow(boxes, scores, labels, options):
    """Class after class, then merged by score, as the reference does."""
    picked = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        found = slow_one_class(boxes[own], scores[own], options)
        picked += [(score, own[i]) for score, i in found]
    return sorted(picked, reverse=True)[: options["max_detections"]]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "gaussian", "sigma": 0.1, "score_threshold": 0.3},
        {"method": "hard", "iou_threshold": 0.5, "score_threshold": -np.inf},
        {"method": "hard", "iou_threshold": 1.0, "max_detections": 150},
    ],
    ids=str,
)
@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize("top_k", [0, 7, 200, 5000])
def test_equals_the_definition(options, per_class, top_k):
    outputs, anchors = random_case(seed=3)
    options = {"max_detections": 25, "score_threshold": -np.inf, **options}
    postprocess = Postprocess(per_class=per_class, pre_nms_top_k=top_k, **options)
    result = run(postprocess, outputs, anchors)
    num_classes = outputs["class_logits"].shape[-1]
    for image, logits in enumerate(outputs["class_logits"]):
        if top_k == 0:
            anchor_indices, labels = np.arange(len(logits)), logits.argmax(axis=-1)
        else:
            best = np.argsort(-logits.ravel(), kind="stable")[:top_k]
            anchor_indices, labels = best // num_classes, best % num_classes
        scores = 1 / (1 + np.exp(-logits[anchor_indices, labels]))
        deltas = outputs["box_deltas"][image, anchor_indices]
        boxes = decode_boxes(deltas, anchors[anchor_indices])
        own = labels if per_class else np.zeros_like(labels)
        picked = slow(boxes, scores, own, options)
        n = result["num_detections"][image]
        assert n == len(picked)
        index = [i for _, i in picked]
        np.testing.assert_allclose(
            result["scores"][image, :n], [s for s, _ in picked], rtol=1e-5
        )
        np.testing.assert_array_equal(result["labels"][image, :n], labels[index])
        np.testing.assert_allclose(
            result["boxes"][image, :n],
            np.clip(boxes[index], 0, [64, 96, 64, 96]),
            atol=1e-4,
        )


# --- by property


@pytest.mark.parametrize("top_k", [0, 100])
@pytest.mark.parametrize("method", ["gaussian", "hard"])
def test_compiled_equals_eager(method, top_k):
    outputs, anchors = random_case(seed=5)
    postprocess = Postprocess(max_detections=20, method=method, pre_nms_top_k=top_k)
    eager = run(postprocess, outputs, anchors)

    def function(class_logits, box_deltas):
        outputs = {"class_logits": class_logits, "box_deltas": box_deltas}
        result = postprocess(outputs, anchors, SIZE)
        return tuple(result[key] for key in sorted(result))

    compiled = compile_function(
        function, outputs["class_logits"], outputs["box_deltas"]
    )
    assert_equal(dict(zip(sorted(eager), compiled)), eager, rtol=1e-5, atol=1e-5)


def compile_function(function, *arrays):
    """Runs `function` compiled by the backend; the batch size is unknown to TF."""
    tensors = [ops.convert_to_tensor(x) for x in arrays]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in tensors]
        compiled = tf.function(function, input_signature=signature)
        compiled(*(x[:1] for x in tensors))
        result = compiled(*tensors)
        assert compiled.experimental_get_tracing_count() == 1
    elif keras.backend.backend() == "jax":
        import jax

        result = jax.jit(function)(*tensors)
    else:
        pytest.skip("nothing to compile with on this backend")
    return tuple(ops.convert_to_numpy(x) for x in result)


def test_survives_its_config_and_keras_serialization():
    postprocess = Postprocess(
        max_detections=7,
        score_threshold=0.2,
        iou_threshold=0.4,
        method="hard",
        sigma=0.3,
        pre_nms_top_k=0,
        per_class=False,
        clip=False,
        max_detections_per_class=3,
        drop_empty=True,
    )
    assert all(
        getattr(postprocess, name) != getattr(Postprocess(), name)
        for name in postprocess.get_config()
    )
    assert Postprocess.from_config(postprocess.get_config()) == postprocess
    data = json.loads(json.dumps(keras.saving.serialize_keras_object(postprocess)))
    assert keras.saving.deserialize_keras_object(data) == postprocess


@pytest.mark.parametrize("method", ["hard", "gaussian"])
def test_the_best_pairs_give_what_all_give(monkeypatch, method):
    outputs, anchors = random_case(seed=8, num_anchors=100)
    whole = Postprocess(method=method, score_threshold=1e-8, pre_nms_top_k=None)
    expected = run(whole, outputs, anchors)  # 400 pairs are few
    # 300 pairs hold all detections, 20 do not, and then all are looked at.
    for first in (300, 20):
        monkeypatch.setattr(module, "_FIRST_TOP_K", first)
        assert_equal(run(whole, outputs, anchors), expected, rtol=1e-5)
        arrays = whole(outputs, anchors, SIZE)  # NumPy finds the same
        assert_equal(arrays, expected, rtol=1e-4, atol=1e-4)


def test_what_lies_beside_the_image_makes_room_for_others():
    anchors = [[0, 0, 8, 8], [16, 0, 24, 8], [0, 4, 8, 12], [0, 20, 8, 28]]
    given = [[1.0], [3.0], [2.0], [0.0]], anchors, (32, 32)
    options = {"method": "hard", "max_detections": 2, "drop_empty": True}
    content = {"content_sizes": np.float32([[12, 32]])}  # the second anchor is below it
    found = of_one_image(*given, **options, **content)
    assert found["boxes"].tolist() == [[0, 4, 8, 12], [0, 0, 8, 8]]
    # Without the size of the image the input counts.
    assert of_one_image(*given, **options)["boxes"][0].tolist() == [16, 0, 24, 8]
    # Those that are left out count for the limit.
    options["max_detections_per_class"] = 2
    assert of_one_image(*given, **options, **content)["num_detections"] == 1


# --- by reference


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "gauss_s03_t02",
        "gauss_iou09",
        "gauss_t07",
        "none_method",
        "hard",
        "hard_03_02",
        "hard_max500",
        "hard_t08",
    ],
)
@pytest.mark.parametrize("kind", ["global_padded", "per_class"])
def test_suppression_equals_the_reference(golden, name, kind):
    arrays = golden("nms.npz")
    config = json.loads(str(arrays[f"tf/{name}/cfg"]))
    boxes, scores, labels = arrays["boxes"], arrays["scores"], arrays["classes"]
    options = {
        "method": config["method"] or "hard",
        "max_detections": config["max_output_size"],
        "score_threshold": config["score_thresh"],
        "iou_threshold": config["iou_thresh"] or 0.5,
        "sigma": config["sigma"] or 0.5,
    }
    if not options["score_threshold"]:  # 0 is "not set" there
        method = options["method"]
        options["score_threshold"] = Postprocess(method=method).lowest_score
    own = labels[None] if kind == "per_class" else None
    given = boxes[None], scores[None], own
    indices, found, count = suppressed(*given, **options)

    expected = {
        key: arrays[f"tf/{name}/{kind}/{key}"].reshape(shape)
        for key, shape in [("boxes", (-1, 4)), ("scores", -1), ("classes", -1)]
    }
    valid = int(arrays[f"tf/{name}/{kind}/valid"].item())
    assert count[0] == valid
    # Scores in order; the boxes and classes in order too, as no two of this
    # file's scores are closer than the rounding of the decay.
    n = slice(None, valid)
    np.testing.assert_allclose(found[0, n], expected["scores"][n], rtol=1e-5)
    image_scale = 2 if kind == "per_class" else 1  # as the arrays were made
    np.testing.assert_array_equal(
        boxes[indices[0, n]] * image_scale, expected["boxes"][n]
    )
    np.testing.assert_array_equal(
        labels[indices[0, n]] + 1, expected["classes"][n].astype("int32")
    )


def golden_outputs(arrays):
    """The golden network outputs, flattened over levels."""
    levels = [k for k in arrays.files if k.startswith("cls/") and k.count("/") == 1]

    def flat(head, last):
        parts = [arrays[f"{head}/{k[4:]}"] for k in sorted(levels)]
        return np.concatenate([x.reshape(len(x), -1, last) for x in parts], axis=1)

    return {"class_logits": flat("cls", 90), "box_deltas": flat("box", 4)}


def assert_same_set(boxes, scores, labels, expected):
    """Each expected detection is there; ties at the end of the list may differ."""
    unmatched = 0
    last = expected[1].min() + 1e-5
    for box, score, label in zip(*expected):
        near = (np.abs(scores - score) < 1e-5) & (labels == label)
        near &= (np.abs(boxes - box) < 1e-2).all(axis=-1)
        unmatched += not near.any() and score > last
    assert unmatched == 0


@pytest.mark.parametrize(
    "name", ["default", "topk5000", "hard", "hard_t03_s02", "gauss_s03"]
)
@pytest.mark.parametrize("kind", ["global", "per_class"])
def test_equals_the_reference(golden, name, kind):
    arrays = golden("a_d0_s200x136.npz")
    anchors = golden("c_anchors.npz")["anchors/d0_200x136_hw"]
    config = json.loads(str(arrays[f"nms_configs/{name}"]))
    postprocess = Postprocess(
        max_detections=config["max_output_size"],
        score_threshold=config["score_thresh"] or None,  # 0 is "not set" there
        iou_threshold=config["iou_thresh"] or 0.5,
        method=config["method"],
        sigma=config["sigma"] or 0.5,
        pre_nms_top_k=config["max_nms_inputs"],
        per_class=kind == "per_class",
        clip=kind == "global",
    )
    result = run(postprocess, golden_outputs(arrays), anchors, (200, 136))
    compare_with_golden(result, arrays, f"det/{name}/{kind}")


def test_equals_the_combined_suppression_of_the_reference(golden):
    arrays = golden("a_d0_s200x136.npz")
    anchors = golden("c_anchors.npz")["anchors/d0_200x136_hw"]
    postprocess = Postprocess(method="hard", pre_nms_top_k=90 * len(anchors))
    result = run(postprocess, golden_outputs(arrays), anchors, (200, 136))
    compare_with_golden(result, arrays, "det/default/combined")


def compare_with_golden(result, arrays, prefix):
    valid = arrays[f"{prefix}/valid_len"]
    np.testing.assert_array_equal(result["num_detections"], valid)
    for i, scale in enumerate(arrays["image_scales"]):
        n = slice(None, valid[i])
        expected = [arrays[f"{prefix}/{k}"][i, n] for k in ("boxes", "scores")]
        expected.append(arrays[f"{prefix}/classes"][i, n].astype("int32") - 1)
        np.testing.assert_allclose(result["scores"][i, n], expected[1], atol=1e-5)
        boxes = result["boxes"][i, n] * scale
        assert_same_set(boxes, result["scores"][i, n], result["labels"][i, n], expected)


# --- wrong arguments


def test_anchors_of_another_image_size_are_refused():
    outputs, anchors = random_case(seed=1)
    with pytest.raises(ValueError, match=r"image size.*anchors=\(59, 4\)"):
        run(Postprocess(), outputs, anchors[:-1])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"method": "soft"}, r"`method` must be one of .*'soft'"),
        ({"iou_threshold": 1.5}, r"`iou_threshold` must be a number from 0 to 1.*1.5"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Postprocess(**options)
