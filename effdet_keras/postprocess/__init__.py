"""Detections from network outputs."""

from effdet_keras.postprocess.finished_outputs import finished_outputs
from effdet_keras.postprocess.nms import non_max_suppression
from effdet_keras.postprocess.postprocess import Postprocess

__all__ = ["Postprocess", "finished_outputs", "non_max_suppression"]
