"""Arrays into a model: all or an error, classes by name, and a report."""

import numpy as np
import pytest
from support.tiny import LITE0, tiny_model
from support.weights import values

from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.network_arrays import TF1, WeightSource, network_arrays

CLASS_LAYER = "class_net/class-predict"


def source_for(config, keep=lambda array: True, **fields):
    rng = np.random.default_rng(3)
    arrays = {
        array.name: rng.normal(size=array.shape).astype("float32")
        for array in network_arrays(config)
        if keep(array)
    }
    return WeightSource("some/file", "test arrays", TF1, arrays, **fields)


def five_classes(model):
    return model.config.replace(num_classes=5)


def test_every_weight_takes_its_array():
    model = tiny_model()
    source = source_for(model.config)
    report = assign_source(model, source)
    loaded = values(model)
    assert loaded.keys() == source.arrays.keys()
    for name, array in source.arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
    assert report.num_loaded == report.num_weights == len(loaded)
    assert (report.new, report.left_over) == ((), ())


@pytest.mark.parametrize("backbone", [LITE0, "efficientnetv2-b0"])
def test_a_backbone_is_no_detector(backbone):
    model = tiny_model(backbone=backbone)
    assign_source(model, source_for(model.config, lambda array: array.is_backbone))
    assert model.pretrained == "backbone"
    assign_source(model, source_for(model.config))
    assert model.pretrained == "detector"


def test_averages_start_again_from_what_was_loaded():
    model = tiny_model()
    model.compile()
    model.averages.swap_in()  # as an interrupted callback leaves them
    assign_source(model, source_for(model.config))
    for source, average in zip(model.averages.sources, model.averages.values):
        np.testing.assert_array_equal(source, average)


def test_other_classes_leave_the_last_layer_as_it_is():
    model = tiny_model()
    before, source = values(model), source_for(five_classes(model))
    report = assign_source(model, source)
    after = values(model)
    for name in after:
        expected = before if name.startswith(CLASS_LAYER) else source.arrays
        np.testing.assert_array_equal(after[name], expected[name])
    (new,) = report.new
    assert new.reason == "the file has 5 classes, and the model has 3"
    assert {name.rpartition("/")[0] for name in new.names} == {CLASS_LAYER}
    assert report.num_loaded == len(after) - 3
    assert "the file has 5 classes, and the model has 3" in str(report)
    assert model.pretrained == "detector of other classes"


def test_classes_are_carried_over_by_name():
    model = tiny_model()  # cat, dog, bird
    names = ("fox", "bird", "cow", "cat", "hen")
    source = source_for(five_classes(model), class_names=names)
    before = values(model)
    report = assign_source(model, source)
    after = values(model)
    for leaf in ("pointwise_kernel", "bias"):
        name = f"{CLASS_LAYER}/{leaf}"
        for anchor in range(9):
            for label, origin in ((0, 3), (2, 1)):  # cat, bird
                np.testing.assert_array_equal(
                    after[name][..., anchor * 3 + label],
                    source.arrays[name][..., anchor * 5 + origin],
                )
            np.testing.assert_array_equal(  # dog
                after[name][..., anchor * 3 + 1], before[name][..., anchor * 3 + 1]
            )
    name = f"{CLASS_LAYER}/depthwise_kernel"
    np.testing.assert_array_equal(after[name], source.arrays[name])
    assert report.new[0].carried == ("cat", "bird")
    assert "carried over by name: cat, bird" in str(report)
    assert model.pretrained == "detector of other classes"  # a dog is new


def test_the_same_classes_in_another_order_go_by_name():
    model = tiny_model()
    source = source_for(model.config, class_names=("bird", "cat", "dog"))
    report = assign_source(model, source)
    bias, theirs = (
        array[f"{CLASS_LAYER}/bias"].reshape(9, 3)
        for array in (values(model), source.arrays)
    )
    np.testing.assert_array_equal(bias, theirs[:, [1, 2, 0]])
    assert report.new[0].carried == ("cat", "dog", "bird")
    assert model.pretrained == "detector"


def test_a_backbone_leaves_the_rest_as_it_is():
    model = tiny_model()
    source = source_for(model.config, lambda array: array.is_backbone)
    source.arrays["efficientnet-lite0/head/conv2d/kernel"] = np.zeros(3)
    before, report = values(model), assign_source(model, source)
    for name, value in values(model).items():
        expected = source.arrays if name.startswith("efficientnet") else before
        np.testing.assert_array_equal(value, expected[name])
    assert report.new[0].reason == "the file contains only a backbone"
    assert report.left_over == ("efficientnet-lite0/head/conv2d/kernel",)


# As in the Object Detection API, whose heads keep their initial values.
@pytest.mark.parametrize(
    "checkpoint_type, left",
    [
        ("classification", ("fpn_cells", "class_net", "box_net")),
        ("detection", ("class_net", "box_net")),
        ("full", ()),
    ],
)
def test_a_type_of_checkpoint_leaves_the_rest_as_it_is(checkpoint_type, left):
    model, options = tiny_model(), {"checkpoint_type": checkpoint_type}
    source, before = source_for(model.config), values(model)
    report = assign_source(model, source, **options)
    for name, value in values(model).items():
        expected = before if name.startswith(left) else source.arrays
        np.testing.assert_array_equal(value, expected[name])
    assert {n.split("/")[0] for new in report.new for n in new.names} == set(left)
    bare = source_for(model.config, lambda array: array.is_backbone)
    if checkpoint_type != "classification":  # which asks for no more
        with pytest.raises(ValueError, match="weights? (is|are) missing"):
            assign_source(model, bare, **options)
    report = assign_source(model, bare, **options, skip_mismatch=True)
    assert report.num_loaded == len(bare.arrays)
    with pytest.raises(ValueError, match=r"'classification'.*'fine_tune'"):
        assign_source(model, source, checkpoint_type="fine_tune")


@pytest.mark.parametrize(
    "config, arrays, options, message",
    [
        (
            "tiny",
            {"box_net/box-0/bias": np.zeros(7)},
            {},
            r"\(7,\) for '.*box-0/bias'.*\(8,\)",
        ),
        ("5 classes", {}, {"checkpoint_type": "full"}, "another shape.*class-predict/"),
        ("efficientdet-lite1", {}, {}, "efficientdet-lite1, 90 classes.*Make that"),
        (
            None,
            {"resnet/conv1": np.zeros(3)},
            {},
            "the file contains resnet/conv1.*weights are missing",
        ),
    ],
)
def test_what_does_not_fit_is_named(config, arrays, options, message):
    model = tiny_model()
    configs = {"tiny": model.config, "5 classes": five_classes(model)}
    if config == "efficientdet-lite1":
        configs[config] = EfficientDetConfig.from_name(config)
    arrays = {**(source_for(configs[config]).arrays if config else {}), **arrays}
    source = WeightSource("some/file", "test arrays", TF1, arrays)
    with pytest.raises(ValueError, match=message):
        assign_source(model, source, **options)


def test_shared_class_names_in_a_head_of_another_width_are_an_error_in_words():
    """NumPy's error of a reshape named neither the file nor the cure."""
    model = tiny_model(class_names=["b", "c", "d"])
    wider = model.config.replace(fpn_num_filters=2 * model.config.fpn_num_filters)
    source = source_for(wider, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="some/file.*another shape"):
        assign_source(model, source)
    before = values(model)[f"{CLASS_LAYER}/bias"]
    report = assign_source(model, source, skip_mismatch=True)
    np.testing.assert_array_equal(values(model)[f"{CLASS_LAYER}/bias"], before)
    assert report.num_loaded > 0


def test_a_missing_array_is_an_error_that_changes_nothing():
    model = tiny_model()
    lost = "fpn_cells/cell_0/fnode1/op_after_combine4/bn/gamma"
    source = source_for(model.config, lambda array: array.name != lost)
    before = values(model)
    with pytest.raises(
        ValueError, match=rf"(?s)some/file.* 1 weight is missing.*{lost}.*skip"
    ):
        assign_source(model, source)
    for name, value in values(model).items():
        np.testing.assert_array_equal(value, before[name])
    report = assign_source(model, source, skip_mismatch=True)
    assert report.new[0].names == (lost,)
    assert report.num_loaded == len(before) - 1
    np.testing.assert_array_equal(values(model)[lost], before[lost])
    source.arrays[lost] = np.zeros(7, "float32")
    report = assign_source(model, source, skip_mismatch=True)
    assert report.new[0].names == (lost,)
