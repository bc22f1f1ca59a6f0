"""A name map: arrays of a file under other names, for all or some of the weights."""

import h5py
import numpy as np
import pytest
from support.arrays import assert_equal
from support.tiny import LITE0, tiny_model
from support.torch_files import backbone_state, write_zip
from support.weights import values

import effdet_keras as ek
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.weights.kinds.torch_state_dict import TIMM
from effdet_keras.weights.name_map import NameMap
from effdet_keras.weights.network_arrays import network_arrays, tf1_name

KERNEL = "efficientnet-lite0/stem/conv2d/kernel"


@pytest.fixture(scope="module")
def trained():
    model = tiny_model(backbone=LITE0)
    random = np.random.default_rng(0)
    model.set_weights([random.uniform(0.1, 1, w.shape) for w in model.get_weights()])
    return model


def fresh():
    return tiny_model(backbone=LITE0)


def renamed(name):
    name = name.replace("efficientnet-lite0/", "trunk/", 1)
    name = name.replace("fpn_cells/", "neck/", 1)
    return name.replace("class_net/", "classes/", 1).replace("box_net/", "boxes/", 1)


MAP = {
    r"trunk/(.*)": r"efficientnet-lite0/\1",
    r"neck/(.*)": r"fpn_cells/\1",
    r"classes/(.*)": r"class_net/\1",
    r"boxes/(.*)": r"box_net/\1",
}


def write_h5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def write_checkpoint(path, arrays):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            n: tf.compat.v1.get_variable(n, initializer=a, use_resource=True)
            for n, a in arrays.items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(
            session, str(path), write_meta_graph=False, write_state=False
        )
    return path


def write_torch(path, arrays):
    axes = {a.name: a.torch_axes for a in network_arrays(fresh().config)}
    return write_zip(
        path,
        {
            renamed(name): array if axes[name] is None else array.transpose(axes[name])
            for name, array in arrays.items()
        },
    )


@pytest.mark.parametrize(
    "name", ["a.h5", pytest.param("ckpt", marks=pytest.mark.tensorflow), "a.pth"]
)
def test_every_array_of_a_file_of_other_names(trained, tmp_path, name):
    arrays, path = values(trained), tmp_path / name
    if name == "a.pth":
        write_torch(path, arrays)
    else:
        write = write_h5 if name == "a.h5" else write_checkpoint
        write(path, {renamed(name): array for name, array in arrays.items()})
    model = fresh()
    with pytest.raises(ValueError, match="contains .*another network"):
        model.load_pretrained(path, verbose=0)
    report = model.load_pretrained(path, name_map=MAP, verbose=0)
    assert_equal(values(model), arrays)
    assert report.num_loaded == len(arrays) == len(report.mapped)
    assert dict(report.mapped)["trunk/stem/conv2d/kernel"] == KERNEL
    assert f"{len(arrays)} of them by `name_map`" in str(report)
    first, second = report.mapped[0]
    assert f"    {first} -> {second}\n" in str(report)
    assert report.left_over == ()


def test_some_arrays_and_the_rest_stays(trained, tmp_path):
    arrays = values(trained)
    path = write_h5(
        tmp_path / "a.h5", {"my kernel [1": arrays[KERNEL], "b": np.ones(3)}
    )
    model, before = fresh(), values(fresh())
    with pytest.raises(ValueError, match="do not fit.*skip_mismatch"):
        model.load_pretrained(path, name_map={"my kernel [1": KERNEL}, verbose=0)
    assert not np.array_equal(values(model)[KERNEL], arrays[KERNEL])
    before = values(model)
    report = model.load_pretrained(
        path, name_map={"my kernel [1": KERNEL}, skip_mismatch=True, verbose=0
    )
    assert report.mapped == (("my kernel [1", KERNEL),)
    assert report.num_loaded == 1
    assert "b" in report.others
    assert_equal(values(model), {**before, KERNEL: arrays[KERNEL]})


def test_a_part_of_a_known_file_goes_elsewhere(trained, tmp_path):
    """The weights of one box layer start from those of another."""
    path = tmp_path / "a.weights.h5"
    trained.save_weights(path)
    first = "box_net/box-0-bn-3/gamma"
    other = "box_net/box-0-bn-4/gamma"
    own = "layers/prediction_head/bns/batch_normalization/vars/0"
    model = fresh()
    report = model.load_pretrained(path, name_map={own: other}, skip_mismatch=True)
    assert report.mapped == ((own, other),)
    arrays = values(trained)
    assert np.array_equal(values(model)[other], arrays[first])
    # What the map took away from its own weight is not loaded there.
    assert [new.names for new in report.new] == [(first,)]


def test_averages_and_archives(trained, tmp_path):
    path = tmp_path / "a.keras"
    trained.save(path)
    kernel = "layers/efficient_net/stem/conv/vars/0"
    model = fresh()
    report = model.load_pretrained(path, name_map={kernel: KERNEL}, verbose=0)
    assert report.mapped == ((kernel, KERNEL),)
    assert_equal(values(model), values(trained))


def test_a_weight_may_have_the_name_of_its_path(trained, tmp_path):
    weight = next(w for w in trained.weights if "depthwise_conv2d/kernel" in w.path)
    assert tf1_name(weight) != weight.path
    path = write_h5(tmp_path / "a.h5", {"w": np.ones(weight.shape)})
    model = fresh()
    report = model.load_pretrained(
        path, name_map={"w": weight.path}, skip_mismatch=True, verbose=0
    )
    assert report.mapped == (("w", tf1_name(weight)),)


def test_torch_arrays_keep_the_order_of_axes_of_their_file(tmp_path):
    config = fresh().config
    state = backbone_state(TIMM, config)
    kernel = np.random.default_rng(0).normal(size=(32, 3, 3, 3)).astype("float32")
    state["new.stem"] = kernel
    del state["conv_stem.weight"]
    path = write_zip(tmp_path / "lite0.pth", state)
    model = fresh()
    names = {"new.stem": KERNEL}
    model.load_pretrained(path, name_map=names, skip_mismatch=True, verbose=0)
    np.testing.assert_array_equal(values(model)[KERNEL], kernel.transpose(2, 3, 1, 0))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"kernal": KERNEL}, "'kernal', which matches no.*Did you mean 'kernel'"),
        ({"kernel": KERNEL, "x.*": "b"}, r"'x\.\*', which matches no array.*2 arrays"),
        (
            {"kernel[": KERNEL},
            r"no array.*not a valid regular expression either \(unterminated",
        ),
        (
            {"kernel": "stem/conv2d/kernel"},
            "lite0` has no weight of this name. Did you",
        ),
        ({"kernel": KERNEL, "other": KERNEL}, "'kernel' and 'other' .*the same weight"),
        ({"(kernel)": r"\2"}, "cannot be built from the groups"),
        ({"other": KERNEL}, r"another shape in the file, such as \(3,\)"),
    ],
)
def test_what_is_wrong_with_a_map_is_told_and_nothing_changes(tmp_path, names, message):
    shape = (3, 3, 3, 32)
    path = write_h5(tmp_path / "a.h5", {"kernel": np.ones(shape), "other": np.ones(3)})
    model = fresh()
    before = values(model)
    with pytest.raises(ValueError, match=message):
        model.load_pretrained(path, name_map=names, verbose=0)
    assert_equal(values(model), before)


@pytest.mark.parametrize("names", [["a"], {"a": 3}, {3: "a"}])
def test_a_map_is_a_dict_of_strings(names):
    with pytest.raises(TypeError, match="`name_map` must be a dict from"):
        fresh().load_pretrained("nowhere.h5", name_map=names)


def test_exact_names_come_before_expressions():
    names = NameMap({"a.*": "x/0", "ab": "y/0"})
    assert names.targets(["ab", "ac"], "a.h5") == {"ab": "y/0", "ac": "x/0"}


def test_a_run_that_has_no_file_is_refused():
    with pytest.raises(ValueError, match="`name_map` names arrays of a file"):
        RunConfiguration(name_map={"a": "b"})


@pytest.mark.tensorflow
def test_a_run_starts_from_renamed_arrays(trained, shapes, tmp_path, monkeypatch):
    from effdet_keras.runs import components

    arrays = values(trained)
    arrays = {n: a for n, a in arrays.items() if n.startswith("efficientnet-")}
    path = write_h5(tmp_path / "a.h5", {renamed(n): a for n, a in arrays.items()})
    configuration = RunConfiguration(
        model="efficientdet-lite0",
        weights=str(path),
        checkpoint_type="classification",
        name_map={"trunk/(.*)": r"efficientnet-lite0/\1"},
        image_size=64,
    )
    options = {"verbose": 0}
    train = ek.data.load(shapes, "train")
    model = components._build_from_preset(configuration, train, options)
    loaded = values(model)
    assert_equal({name: loaded[name] for name in arrays}, arrays)
