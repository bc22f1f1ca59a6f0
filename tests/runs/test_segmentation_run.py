"""A run of a model with both heads: masks of the data, numbers, report."""

import json

import pytest
from support.tiny import BOTH_HEADS
from support.tiny_run import MODEL_CONFIG, tiny_run

import effdet_keras as ek
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.parts import choose_splits

HEADS = {**MODEL_CONFIG, "heads": list(BOTH_HEADS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    ek.data.write_shapes(folder, num_train=8, num_valid=4, image_size=64)
    return folder


def test_masks_are_read_where_the_model_has_the_head(folder):
    splits = choose_splits(RunConfiguration(data=str(folder), model_config=HEADS))
    names = ("background", "circle", "square", "triangle")
    assert splits.train.seg_class_names == splits.validation.seg_class_names == names
    plain = choose_splits(RunConfiguration(data=str(folder)))
    assert plain.train.seg_class_names is None


def test_formats_without_masks_say_what_to_do(folder, tmp_path):
    dataset = ek.data.load(folder, "valid")
    ek.data.write_voc({"train": dataset}, tmp_path / "voc")
    with pytest.raises(ValueError, match="Of Pascal VOC only boxes.*with_masks"):
        ek.data.load_splits(tmp_path / "voc", masks=True)


def test_a_run_of_segmentation_alone_is_refused():
    with pytest.raises(ValueError, match="A run is judged by what it detects"):
        RunConfiguration(model_config={"heads": ["segmentation"]})


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_run_has_mean_iou_in_its_numbers_and_report(folder, tmp_path):
    fields = {**tiny_run(epochs=1), "model_config": HEADS}
    tuned = ek.fine_tune(str(folder), out=tmp_path / "run", **fields)
    numbers = json.loads((tmp_path / "run" / "numbers.json").read_text())
    assert 0 <= numbers["mIoU"] <= 1 and "AP" in numbers
    assert tuned.model.config.seg_num_classes == 4
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Classes of pixels" in page and "triangle" in page
    assert page.count("Mask of") >= 4
