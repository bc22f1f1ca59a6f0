"""The tables of export formats, targets and their options."""

import inspect

import pytest

from effdet_keras.errors import InvalidTypeError
from effdet_keras.export.registry import (
    FORMATS,
    OPTIONS,
    TARGETS,
    format_of_file,
    format_to_write,
    target_to_write,
)


@pytest.mark.parametrize(
    "owner", [*FORMATS.values(), *TARGETS.values()], ids=lambda o: o.name
)
def test_a_writer_takes_the_options_of_the_table(owner):
    parameters = inspect.signature(owner.load_writer()).parameters
    keywords = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    assert set(keywords) == set(owner.options) or takes_more
    assert set(keywords) <= set(owner.options)
    for name, choices in owner.options.items():
        kind, help = OPTIONS[name]
        default = keywords[name].default if name in keywords else None
        assert help and "\n" not in help
        assert not choices or default in (None, *choices)
        assert None in (kind, default) or type(default) is kind


def test_an_unknown_option_and_a_value_that_is_no_choice_are_told():
    with pytest.raises(TypeError, match=r"onnx .*outputs.*Received: precision='int8'"):
        format_to_write("a.onnx", None, {"precision": "int8"})
    with pytest.raises(ValueError, match=r"`outputs` must be.*'raw'.*outputs='boxes'"):
        format_to_write("a.onnx", None, {"outputs": "boxes"})
    format_to_write("a.onnx", None, {"outputs": "raw", "batch_size": None})


def test_the_end_of_a_path_says_the_format():
    written = {"pets": "saved_model", "pets.ONNX": "onnx", "p.xml": "openvino"}
    for path, name in written.items():
        assert format_to_write(path, None, {}).name == name
    assert format_to_write("pets.v1", "saved_model", {}).name == "saved_model"


def test_a_file_without_an_ending_is_no_saved_model(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    assert format_of_file(tmp_path).name == "saved_model"
    (tmp_path / "pets").write_text("cat")
    with pytest.raises(ValueError, match=r"a folder, or a file that ends.*pets"):
        format_of_file(tmp_path / "pets")
    with pytest.raises(FileNotFoundError, match=r"no exported model.*nowhere\.onnx"):
        format_of_file(tmp_path / "nowhere.onnx")


def test_frigates_float_files_need_no_tensorflow():
    target = TARGETS["frigate"]
    needs = {
        d: target.needs_tensorflow({"detector": d}) for d in target.options["detector"]
    }
    assert needs == {"edgetpu": True, "cpu": True, "openvino": False, "onnx": False}
    assert target.needs_tensorflow({})
    assert target.without_tensorflow() == (
        " This target also works without TensorFlow, with `detector='openvino'` or "
        "'onnx'."
    )
    assert FORMATS["saved_model"].needs_tensorflow({})
    assert not FORMATS["onnx"].needs_tensorflow({})
    assert TARGETS["coral"].without_tensorflow() == ""


def test_a_target_without_options_says_so(tmp_path):
    with pytest.raises(InvalidTypeError, match="'executorch'` has no options"):
        target_to_write(tmp_path / "pets", "executorch", None, {"precision": "int8"})
