"""The table of export formats, and options read from a writer's signature."""

import inspect

import pytest
from support import programs

from effdet_keras.export.registry import (
    FORMATS,
    check_options,
    format_of_file,
    format_to_write,
    writer_options,
)


@pytest.mark.parametrize("name", FORMATS)
def test_options_are_those_of_the_writer_in_its_order(name):
    parameters = inspect.signature(FORMATS[name].load_writer()).parameters.values()
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    options = writer_options(name)
    assert [option.name for option in options] == [p.name for p in keywords]
    assert [option.default for option in options] == [p.default for p in keywords]
    for option in options:
        assert option.help and option.summary and "\n" not in option.help, option
        if option.default is not None and option.type is not None:
            assert type(option.default) is option.type
        assert not option.choices or option.default in (None, *option.choices)


def test_types_and_choices_come_from_the_annotations():
    options = {option.name: option for option in writer_options("litert")}
    assert options["precision"].choices == ("float32", "float16", "dynamic", "int8")
    assert options["precision"].type is str
    assert options["max_detections"].type is int  # `int | None`
    assert options["score_threshold"].type is float
    assert options["per_class"].type is bool and options["per_class"].choices == ()
    assert options["calibration"].type is None  # images, or a dataset


def test_help_is_the_docstring_in_one_line():
    options = {option.name: option for option in writer_options("onnx")}
    assert options["opset"].summary == "version of the ONNX standard, 13 to 18"
    assert options["opset"].help.endswith("lower it, where a runtime asks for it.")


def test_reading_options_imports_neither_the_writer_nor_its_packages():
    code = (
        "import sys\n"
        "import effdet_keras.export.registry as registry\n"
        "before = set(sys.modules)\n"
        "for name in registry.FORMATS:\n"
        "    assert registry.writer_options(name)\n"
        "new = set(sys.modules) - before\n"
        "assert all(m.rpartition('.')[2] in registry.FORMATS for m in new), new\n"
    )
    programs.run_alone("-c", code)


def test_an_unknown_option_and_a_value_that_is_no_choice_are_told():
    with pytest.raises(TypeError, match=r"onnx .*opset.*Received: precision='int8'"):
        check_options("onnx", {"precision": "int8"})
    with pytest.raises(ValueError, match=r"`outputs` must be.*'raw'.*outputs='boxes'"):
        check_options("onnx", {"outputs": "boxes", "opset": 17})
    check_options("onnx", {"outputs": "raw", "batch_size": None})


def test_the_end_of_a_path_says_the_format():
    written = {"pets": "saved_model", "pets.ONNX": "onnx", "p.xml": "openvino"}
    for path, name in written.items():
        assert format_to_write(path, None).name == name
    assert format_to_write("pets.v1", "saved_model").name == "saved_model"


def test_a_file_without_an_ending_is_no_saved_model(tmp_path):
    assert format_of_file(tmp_path).name == "saved_model"
    (tmp_path / "pets").write_text("cat")
    with pytest.raises(ValueError, match=r"a folder \(SavedModel\).*pets"):
        format_of_file(tmp_path / "pets")
    with pytest.raises(FileNotFoundError, match=r"no exported model.*nowhere\.onnx"):
        format_of_file(tmp_path / "nowhere.onnx")
