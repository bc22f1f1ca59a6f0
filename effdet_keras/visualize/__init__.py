"""Images for people: boxes on images, what training sees, training curves."""

from effdet_keras.visualize.boxes import class_color, draw_boxes
from effdet_keras.visualize.class_map import draw_class_map
from effdet_keras.visualize.history import plot_history, require_matplotlib  # noqa: F401
from effdet_keras.visualize.panels import side_by_side
from effdet_keras.visualize.training_images import augmented

__all__ = [
    "augmented",
    "class_color",
    "draw_boxes",
    "draw_class_map",
    "plot_history",
    "side_by_side",
]
