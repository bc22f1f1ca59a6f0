"""The README's Python: its names exist and its lines run in their order."""

import ast
import pathlib
import re

import pytest

import effdet_keras as ek

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def python_blocks():
    return re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_every_public_name_is_there():
    for name in ek.__all__:
        if name not in ("callbacks", "data"):  # these import TensorFlow
            assert hasattr(ek, name)


@pytest.mark.tensorflow
def test_the_lines_run_on_small_images(tmp_path, monkeypatch):
    import tensorflow as tf

    from effdet_keras.data import write_shapes

    data = tmp_path / "DATA"
    write_shapes(data, num_train=4, num_valid=2, image_size=64)
    image = (data / "valid" / "00001.jpg").read_bytes()
    (tmp_path / "street.jpg").write_bytes(image)
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks()
    assert "model.fit" in code
    # Published weights are of the whole model: the notebook's test loads them.
    small = code.replace(
        '"efficientdet-d0", weights="coco"', '"efficientdet-d0", **SMALL'
    )
    small = small.replace(
        "batch_size=8, epochs=50", "batch_size=2, epochs=1, verbose=0"
    )
    assert (small.count("SMALL"), small.count("epochs=1, ")) == (2, 1)
    names = {
        "SMALL": {
            "image_size": 64,
            "max_level": 5,
            "fpn_num_filters": 8,
            "fpn_cell_repeats": 1,
            "head_repeats": 1,
        }
    }
    tf.config.run_functions_eagerly(True)  # two steps: tracing would take a minute
    try:
        exec(compile(ast.parse(small), "README.md", "exec"), names)
    finally:
        tf.config.run_functions_eagerly(False)
    assert (tmp_path / "found.png").exists()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
