"""Drawing: what is on the images, and what stays off them."""

import sys
import types

import numpy as np
import pytest
from PIL import Image

from effdet_keras import visualize

GREY = np.full((120, 160, 3), 120, "uint8")


def is_color(pixel, label):
    return tuple(pixel.tolist()) == visualize.class_color(label)


def filled(part, label):
    """The share of pixels in the color of a class."""
    return (part == visualize.class_color(label)).all(axis=-1).mean()


@pytest.mark.smoke
def test_a_box_is_drawn_on_its_border_pixels_in_the_color_of_its_class():
    drawn = visualize.draw_boxes(GREY, [[40, 30, 100, 130]])
    for y, x in [(40, 30), (40, 129), (99, 30), (99, 129), (70, 30), (99, 80)]:
        assert is_color(drawn[y, x], 0), (y, x)
    for y, x in [(39, 30), (40, 29), (100, 129), (99, 130), (70, 80)]:
        assert (drawn[y, x] == 120).all(), (y, x)
    image = GREY.copy()
    drawn = visualize.draw_boxes(image, [[40, 30, 100, 130]], [3], [0.5])
    assert is_color(drawn[99, 129], 3)
    np.testing.assert_array_equal(image, GREY)  # the image given stays as it is


def test_names_and_scores_are_written_above_the_box():
    name = {"labels": [0], "class_names": ["elephant"]}
    given = [{}, {"labels": [0]}, name, {**name, "scores": [0.5]}]
    drawn = [visualize.draw_boxes(GREY, [[40, 30, 100, 130]], **x) for x in given]
    changed = [(image[:40] != 120).any(axis=-1).sum() for image in drawn]
    assert changed[0] == 0 and (np.diff(changed) > 0).all()
    # A name that is missing is its number.
    few, none = (
        visualize.draw_boxes(GREY, [[40, 30, 100, 130]], [2], class_names=names)
        for names in ("ab", None)
    )
    np.testing.assert_array_equal(few, none)


@pytest.mark.parametrize(
    ("box", "tag"),
    [
        ([0, 0, 100, 130], (slice(2, 14), slice(2, 10))),  # into the box
        ([60, 150, 100, 160], (slice(45, 60), slice(120, None))),  # to the left
    ],
)
def test_a_name_without_room_moves(box, tag):
    drawn = visualize.draw_boxes(GREY, [box], [1], class_names=["a", "elephant"])
    assert filled(drawn[tag], 1) > 0.5


def test_a_box_partly_outside_is_cut_at_the_border():
    drawn = visualize.draw_boxes(GREY, [[-50, -50, 400, 60]])
    assert is_color(drawn[119, 30], 0) and is_color(drawn[0, 59], 0)
    # What lies outside, padding, and what is no number is not drawn.
    boxes = [[9, 9, 50, 50], [200, 10, 230, 30], [10, -40, 30, -2], [np.nan] * 4]
    drawn = visualize.draw_boxes(GREY, boxes, [-1, 0, 0, 0], [0, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(drawn, GREY)


def test_a_tiny_image_is_enlarged_by_a_whole_factor_with_its_boxes():
    image = np.zeros((20, 30, 3), "uint8")
    drawn = visualize.draw_boxes(image, [[5, 10, 15, 20]], min_side=100)
    assert drawn.shape == (80, 120, 3)
    assert is_color(drawn[20, 40], 0) and is_color(drawn[59, 79], 0)
    assert visualize.draw_boxes(image, [], min_side=30).shape == (20, 30, 3)


@pytest.mark.parametrize("size", [(1, 1), (7, 300), (300, 7), (900, 1200)])
def test_any_size_of_image_can_be_drawn_on(size):
    image = np.full((*size, 3), 120, "uint8")
    box = [[0, 0, size[0], size[1]]]
    drawn = visualize.draw_boxes(image, box, [0], [0.5], ["a long class name"])
    assert drawn.shape == (*size, 3) and (drawn != 120).any()


def test_side_by_side_joins_under_titles():
    left, right = np.full((100, 50, 3), 10, "uint8"), np.full((50, 50), 20, "uint8")
    canvas = visualize.side_by_side(left, right, titles=None)
    assert canvas.shape == (100, 50 + 4 + 50, 3)
    assert (canvas[:, :50] == 10).all() and (canvas[:50, 54:] == 20).all()
    assert (canvas[:, 50:54] == 255).all() and (canvas[50:, 54:] == 255).all()
    titled = visualize.side_by_side(left, right)
    bar = titled[: len(titled) - 100]
    np.testing.assert_array_equal(titled[len(bar) :], canvas)
    assert (bar[:, :50] < 128).any() and (bar[:, 54:] < 128).any()


# --- curves

HISTORY = {
    "loss": [3.0, 2.0, 1.5, 1.2],
    "val_loss": [3.1, 2.2, 1.9, 1.8],
    "class_loss": [2.0, 1.0, 0.9, 0.8],
    "box_loss": [0.02, 0.01, 0.01, 0.01],
    "learning_rate": [0.01, 0.08, 0.04, 0.0],
    "AP": [0.1, 0.3],
    "AP50": [np.nan, 0.4, np.nan, 0.5],
    "gradient_norm": [1, 1, 1, 1],
}


def curves(figure):
    return {
        line.get_label().split(" ")[0]: line.get_xydata().tolist()
        for axes in figure.axes
        for line in axes.get_lines()
    }


def test_curves_lie_at_their_epochs_also_in_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    history = types.SimpleNamespace(history=HISTORY)  # as `fit` returns it
    figure = visualize.plot_history(history, tmp_path / "curves.png")
    assert Image.open(tmp_path / "curves.png").format == "PNG"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Loss", "Loss terms", "Average precision", "Learning rate"]
    drawn = curves(figure)
    assert set(drawn) == set(HISTORY) - {"gradient_norm"}
    assert drawn["loss"] == [[1, 3.0], [2, 2.0], [3, 1.5], [4, 1.2]]
    assert drawn["AP"] == [[2, 0.1], [4, 0.3]]  # evaluated in every second epoch
    assert drawn["AP50"] == [[2, 0.4], [4, 0.5]]


def test_a_term_that_is_switched_off_has_no_curve():
    pytest.importorskip("matplotlib")
    history = {"class_loss": [np.inf, 1.0], "reg_l2_loss": [0.0, 0.0]}
    (axes,) = visualize.plot_history(history).axes
    assert len(axes.get_lines()) == 1 and axes.get_yscale() == "log"


def test_what_cannot_be_drawn_is_told(monkeypatch):
    with pytest.raises(ValueError, match="no curve.*'accuracy'"):
        visualize.plot_history({"accuracy": [1.0]})
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install .effdet-keras\[plot\]"):
        visualize.plot_history(HISTORY)
    assert visualize.draw_boxes(GREY, [[1, 1, 9, 9]]).shape == GREY.shape
