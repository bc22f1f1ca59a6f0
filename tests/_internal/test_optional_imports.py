import sys

import pytest

from effdet_keras._internal.lazy_names import started_as_command
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.hub.module import tensorflow_hub


def test_a_module_is_imported_when_it_is_first_used(tmp_path, monkeypatch):
    (tmp_path / "some_lazy_module.py").write_text("VALUE = 3")
    monkeypatch.syspath_prepend(tmp_path)
    module = OptionalModule("some_lazy_module", install="lazy")
    assert module.is_installed()
    assert "some_lazy_module" not in sys.modules
    assert module.VALUE == 3
    monkeypatch.delitem(sys.modules, "some_lazy_module")


def test_a_missing_package_is_named_with_the_cure():
    module = OptionalModule("no_such_module", install="effdet-keras[video]")
    assert not module.is_installed()
    with pytest.raises(ImportError) as caught:
        module.require("Reading videos")
    assert str(caught.value) == (
        'Reading videos needs no_such_module: pip install "effdet-keras[video]"'
    )


def test_a_cure_of_several_packages_names_each(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_hub", None)
    with pytest.raises(ImportError, match='install "tensorflow-hub" "tf-keras" "se'):
        tensorflow_hub.require("A TF-Hub module")


@pytest.mark.parametrize(
    "argv, orig_argv, expected",
    [
        (["/usr/bin/effdet-keras", "--help"], [], True),
        # While Python looks for the module of `-m`, the first item is that.
        (["-m"], ["python", "-m", "effdet_keras", "--help"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["train.py"], [], False),
        ([], [], False),
    ],
)
def test_it_is_known_whether_python_was_started_as_the_command(
    argv, orig_argv, expected, monkeypatch
):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert started_as_command() == expected
