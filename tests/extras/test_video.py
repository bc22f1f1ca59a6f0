"""Videos frame by frame: what is read, what is drawn, and what is told."""

import sys
import types

import numpy as np
import pytest

import effdet_keras as ek
from effdet_keras.extras.video import detect_frames

RED, BLUE = (220, 10, 10), (10, 10, 220)
FRAMES = 5


@pytest.fixture
def cv2():
    return pytest.importorskip("cv2")


@pytest.fixture
def clip(cv2, tmp_path):
    """Five frames of 96 x 64: red, and a blue column that goes right."""
    path = tmp_path / "clip.avi"
    codec = cv2.VideoWriter_fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), codec, 12.0, (96, 64))
    for number in range(FRAMES):
        frame = np.full((64, 96, 3), RED, "uint8")
        frame[:, 16 * number : 16 * number + 16] = BLUE
        writer.write(frame[..., ::-1])
    writer.release()
    return path


def look(frames):
    """Finds the blue column of each frame."""
    found = []
    for frame in frames:
        blue = np.flatnonzero(frame.astype(int)[32, :, 2] > 120)
        boxes = [[0, blue.min(), 64, blue.max() + 1]]
        found.append(ek.Detections(boxes, [0.9], [0], ("column",), image=frame))
    return found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.smoke
def test_frames_come_in_order_and_in_rgb(clip):
    found = list(detect_frames(look, clip))
    assert [detections.image_id for detections in found] == list(range(FRAMES))
    for number, detections in enumerate(found):
        assert abs(detections.boxes[0, 1] - 16 * number) <= 2
        assert detections.image.shape == (64, 96, 3)
        corner = detections.image[5, 8 if number else 40].astype(int)
        assert np.abs(corner - RED).max() < 30


@pytest.mark.parametrize("ending", [".avi", ".mp4"])
def test_the_drawn_video_has_every_frame_at_the_same_rate(cv2, clip, tmp_path, ending):
    out = tmp_path / "new" / f"drawn{ending}"
    drawn = [found.draw() for found in detect_frames(look, clip, out)]
    assert names(out.parent) == [out.name]
    capture = cv2.VideoCapture(str(out))
    assert capture.get(cv2.CAP_PROP_FPS) == 12
    for image in drawn:
        is_read, frame = capture.read()
        assert is_read and frame.shape == image.shape
        difference = np.abs(frame[..., ::-1].astype(int) - image)
        assert difference.mean() < 12  # lossy; blue for red would be 100
    assert not capture.read()[0]


def test_a_video_that_is_not_finished_is_not_written(clip, tmp_path):
    out = tmp_path / "drawn.avi"
    out.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="drawn.avi' already exists"):
        detect_frames(look, clip, out)
    frames = detect_frames(look, clip, out, overwrite=True)
    next(frames)
    frames.close()
    assert out.read_bytes() == b"mine"

    def broken(frames):
        raise FloatingPointError

    with pytest.raises(FloatingPointError):
        list(detect_frames(broken, clip, out, overwrite=True))
    assert out.read_bytes() == b"mine"
    assert names(tmp_path) == ["clip.avi", "drawn.avi"]
    assert len(list(detect_frames(look, clip, out, overwrite=True))) == FRAMES
    assert out.stat().st_size > 1000


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_camera_that_is_closed_leaves_its_video(
    cv2, clip, tmp_path, monkeypatch, interrupted
):
    opened, capture = cv2.VideoCapture, cv2.VideoCapture(str(clip))
    cameras = {0: capture}
    monkeypatch.setattr(
        cv2, "VideoCapture", lambda source: cameras.get(source) or opened(source)
    )
    out = tmp_path / "camera.avi"
    seen = []

    def look_twice(frames):
        if interrupted and len(seen) == 2:
            raise KeyboardInterrupt
        seen.extend(frames)
        return look(frames)

    frames = detect_frames(look_twice, 0, out)
    count = 0
    for _ in frames:
        count += 1
        if count == 2 and not interrupted:
            frames.close()
            break
    assert count == 2
    monkeypatch.undo()
    assert len(list(detect_frames(look, out))) == 2


def test_what_cannot_be_read_is_told_at_once(cv2, tmp_path, monkeypatch):
    text = tmp_path / "notes.mp4"
    text.write_text("no video" * 100)
    for source, error, message in (
        (text, OSError, r"cannot open .*notes\.mp4"),
        (tmp_path / "nowhere.mp4", FileNotFoundError, "nowhere"),
        (77, OSError, "cannot open 77"),
    ):
        with pytest.raises(error, match=message):
            detect_frames(look, source)
    empty = types.SimpleNamespace(
        isOpened=lambda: True, read=lambda: (False, None), release=lambda: None
    )
    monkeypatch.setattr(cv2, "VideoCapture", lambda source: empty)
    with pytest.raises(ValueError, match="video with frames"):
        list(detect_frames(look, text))
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"effdet-keras\[video\]"):
        detect_frames(look, tmp_path / "clip.avi")


@pytest.mark.tensorflow
def test_the_predictor_detects_in_videos(clip):
    from support.tiny import lively_model

    model = lively_model()
    found = list(ek.Predictor(model).detect_video(clip, score_threshold=0.2))
    expected = model.detect([one.image for one in found], 0.2, batch_size=1, verbose=0)
    assert len(found) == FRAMES
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one.boxes, other.boxes)


def write_noise(cv2, path, count=40):
    """Frames that hardly compress, so that a part of the file is a part of them."""
    codec = cv2.VideoWriter_fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
    writer = cv2.VideoWriter(str(path), codec, 25.0, (96, 64))
    random = np.random.default_rng(0)
    for _ in range(count):
        writer.write(random.integers(0, 256, (64, 96, 3), dtype="uint8"))
    writer.release()
    return path


def see_nothing(frames):
    return [ek.Detections([], [], [], ("column",), image=frame) for frame in frames]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("ending", [".avi", ".mkv"])
def test_a_cut_video_is_an_error_after_what_it_has(cv2, tmp_path, ending, share):
    path = write_noise(cv2, tmp_path / f"cut{ending}")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    found = []
    with pytest.raises(ValueError, match=f"cut{ending}' ends early.*of its 40 frames"):
        found.extend(detect_frames(see_nothing, path))  # keeps what came before
    out = tmp_path / "out.avi"
    with pytest.raises(ValueError, match="ends early"):
        list(detect_frames(see_nothing, path, out))
    assert names(tmp_path) == [path.name]


# Of `.mkv` and `.webm`, what is lost before the end looks like a rate that changes.
@pytest.mark.parametrize("ending", [".avi", ".mp4", ".mov"])
def test_a_damaged_video_is_an_error(cv2, tmp_path, ending):
    path = write_noise(cv2, tmp_path / f"bad{ending}")
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = bytes(third)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="ends early"):
        list(detect_frames(see_nothing, path))


@pytest.mark.parametrize("ending", [".avi", ".mkv", ".mp4", ".mov"])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_whole_video_is_read_and_written_to_its_end(cv2, tmp_path, ending, count):
    path = write_noise(cv2, tmp_path / f"whole{ending}", count)
    out = tmp_path / f"out{ending}"
    assert len(list(detect_frames(see_nothing, path, out))) == count
    assert len(list(detect_frames(see_nothing, out))) == count


def test_a_video_that_lost_frames_while_it_was_written_is_an_error(
    cv2, tmp_path, monkeypatch
):
    """As on a disk whose quota is used up: OpenCV drops frames without a word."""
    path = write_noise(cv2, tmp_path / "whole.avi")
    real, written = cv2.VideoWriter(), []

    def write(frame):
        written.append(frame)
        if len(written) < 20:
            real.write(frame)

    losing = types.SimpleNamespace(
        open=real.open, isOpened=real.isOpened, release=real.release, write=write
    )
    monkeypatch.setattr(cv2, "VideoWriter", lambda: losing)
    with pytest.raises(OSError, match="wrote 40 frames, but the video has only 19"):
        list(detect_frames(see_nothing, path, tmp_path / "out.avi"))
    assert names(tmp_path) == ["whole.avi"]
