"""Tracks objects from frame to frame, with the package `trackers`.

ByteTrack (Zhang et al., 2022, https://arxiv.org/abs/2110.06864) predicts the position
of each object in the next frame, and assigns to it the detection with the highest
overlap. Detections with low scores can only continue a track, but not begin one.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

from effdet_keras._internal.optional_imports import supervision, trackers
from effdet_keras.detect.detections import Detections

# The score from which a track begins, and the score from which a detection is sure.
# Detections are shown from 0.3 on, and a detector trained on few images often has
# scores below 0.7.
_BEGINS, _SURE = 0.5, 0.5


class Follower:
    """Assigns track ids to the objects in consecutive frames.

    Args:
        frame_rate: float, frames per second. A track ends when its object has not been
            detected for one second.
    """

    def __init__(self, frame_rate: float):
        self._tracker = trackers.ByteTrackTracker(
            frame_rate=frame_rate,
            track_activation_threshold=_BEGINS,
            high_conf_det_threshold=_SURE,
            # An object shows in its first frame, and its second frame confirms it.
            minimum_consecutive_frames=1,
        )

    def __call__(self, found: Detections) -> Detections:
        """Returns the detections of the next frame with `track_ids`, from 1 on."""
        given = supervision.Detections(
            **dataclasses.replace(found, track_ids=None).to_supervision()
        )
        given.data["row"] = np.arange(len(found))
        with warnings.catch_warnings(action="ignore"):  # about its next version
            tracked = self._tracker.update(given)
        track_ids = np.full(len(found), -1)
        if len(tracked):  # the tracker changes the order
            known = tracked.tracker_id >= 0
            track_ids[tracked.data["row"][known]] = tracked.tracker_id[known] + 1
        return dataclasses.replace(found, track_ids=track_ids)
