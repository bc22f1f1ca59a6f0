"""Follows objects from frame to frame, with the package `trackers`.

ByteTrack (Zhang et al., 2022, https://arxiv.org/abs/2110.06864) predicts where each
object is in the next frame, and gives it the detection that overlaps most with that;
detections with low scores only continue an object, and begin none.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

from effdet_keras._internal.optional_imports import supervision, trackers
from effdet_keras.detect.detections import Detections

# A score from which an object begins, and one from which it counts as sure: detections
# are shown from 0.3 on, where those of a detector of few images often are below 0.7.
_BEGINS, _SURE = 0.5, 0.5


class Follower:
    """Gives the objects of consecutive frames their numbers.

    Args:
        frame_rate: float, frames per second: an object that is not seen for a second
            is gone.
    """

    def __init__(self, frame_rate: float):
        self._tracker = trackers.ByteTrackTracker(
            frame_rate=frame_rate,
            track_activation_threshold=_BEGINS,
            high_conf_det_threshold=_SURE,
            # The first frame shows an object; the second, that it is one.
            minimum_consecutive_frames=1,
        )

    def __call__(self, found: Detections) -> Detections:
        """The detections of the next frame with `track_ids`, each from 1 on."""
        given = supervision.Detections(
            **dataclasses.replace(found, track_ids=None).to_supervision()
        )
        given.data["row"] = np.arange(len(found))
        with warnings.catch_warnings(action="ignore"):  # of its own next version
            tracked = self._tracker.update(given)
        track_ids = np.full(len(found), -1)
        if len(tracked):  # in an order of its own
            known = tracked.tracker_id >= 0
            track_ids[tracked.data["row"][known]] = tracked.tracker_id[known] + 1
        return dataclasses.replace(found, track_ids=track_ids)
