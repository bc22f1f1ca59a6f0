"""Objects that are followed from frame to frame."""

import sys

import numpy as np
import pytest

import effdet_keras as ek
from effdet_keras.extras import video
from effdet_keras.extras.video import detect_frames

FRAMES = 40


@pytest.fixture
def cv2():
    return pytest.importorskip("cv2")


@pytest.fixture
def clip(cv2, tmp_path):
    """A black video; what moves in it, `look` says."""
    path = tmp_path / "clip.avi"
    codec = cv2.VideoWriter_fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), codec, 25.0, (256, 160))
    for _ in range(FRAMES):
        writer.write(np.zeros((160, 256, 3), np.uint8))
    writer.release()
    return path


class Look:
    """Finds three objects, of which two cross; one is missed in a frame."""

    def __init__(self):
        self.number = 0
        self.random = np.random.default_rng(0)

    def __call__(self, frames):
        (frame,) = frames
        t, self.number = self.number, self.number + 1
        boxes = [
            [20, 5 * t, 50, 5 * t + 30],  # to the right
            [24, 200 - 5 * t, 54, 230 - 5 * t],  # to the left, over the first
            [100, 60 + 2 * t, 130, 90 + 2 * t],
        ]
        seen = [0, 1, 2] if t != 30 else [0, 2]
        order = self.random.permutation(seen)
        scores = 0.8 - self.random.uniform(0, 0.4, len(order))
        labels = [0] * len(order)
        boxes = np.array(boxes)[order]
        self.order = order
        return [ek.Detections(boxes, scores, labels, ("car",), image=frame)]


def test_three_objects_of_which_two_cross_have_three_numbers(clip):
    pytest.importorskip("trackers")
    look, seen = Look(), {0: set(), 1: set(), 2: set()}
    for found in detect_frames(look, clip, track=True):
        assert len(found.track_ids) == len(found) == len(look.order)
        for place, track_id in zip(look.order.tolist(), found.track_ids.tolist()):
            seen[place].add(track_id)
            # An object begins with a sure detection, and one more.
            assert track_id > 0 or found.image_id < 5
    numbers = [ids - {-1} for ids in seen.values()]
    assert list(map(len, numbers)) == [1, 1, 1]
    assert set.union(*numbers) == {1, 2, 3}


def test_a_second_video_begins_with_one_again(clip):
    pytest.importorskip("trackers")
    for _ in range(2):
        *_, last = detect_frames(Look(), clip, track=True)
        assert set(last.track_ids.tolist()) == {1, 2, 3}


def test_frames_without_objects_have_no_numbers(clip):
    pytest.importorskip("trackers")
    found = list(
        detect_frames(lambda frames: [Look()(frames)[0][:0]], clip, track=True)
    )
    assert [len(one.track_ids) for one in found] == [0] * FRAMES


def test_numbers_are_drawn_into_the_video(clip, tmp_path, monkeypatch):
    """With a follower of our own, so that it is tested without the package."""

    class Follower:
        def __init__(self, frame_rate):
            assert frame_rate == 25.0

        def __call__(self, found):
            return ek.Detections(
                found.boxes,
                found.scores,
                found.labels,
                found.class_names,
                image=found.image,
                track_ids=np.arange(1, len(found) + 1),
            )

    monkeypatch.setattr(video, "Follower", Follower)
    monkeypatch.setattr(video.trackers, "require", lambda what: None)
    drawn = []
    draw = ek.Detections.draw
    monkeypatch.setattr(
        ek.Detections, "draw", lambda found: drawn.append(found) or draw(found)
    )
    list(detect_frames(Look(), clip, tmp_path / "out.avi", track=True))
    assert len(drawn) == FRAMES and drawn[0].track_ids.tolist() == [1, 2, 3]


def test_without_the_package_the_error_says_what_to_install(clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackers", None)
    with pytest.raises(ImportError, match=r"effdet-keras\[track\]"):
        detect_frames(Look(), clip, track=True)
