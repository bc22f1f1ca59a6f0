"""Images for people: boxes on images, what training sees, training curves."""

from effdet_keras.visualize.boxes import (
    class_color,
    draw_boxes,
    draw_class_map,
    side_by_side,
)
from effdet_keras.visualize.training import augmented, plot_history, require_matplotlib  # noqa: F401

__all__ = [
    "augmented",
    "class_color",
    "draw_boxes",
    "draw_class_map",
    "plot_history",
    "side_by_side",
]
