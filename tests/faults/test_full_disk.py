"""A disk that is full: told as such, nothing half written, the old file as it was."""

import errno
import os
import shutil
import subprocess

import numpy as np
import pytest
from support.kinds import slow_but
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras.data import write_shapes
from effdet_keras.extras.video import detect_frames
from effdet_keras.weights.archive import write_archive

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(os.name == "nt", reason="disks of POSIX"),
]
_DISK = 2**26  # bytes
_FILLER = ".filler"


class SmallDisk:
    """A disk of 64 MiB in memory."""

    def __init__(self, folder):
        self.folder = folder

    def leave(self, free):
        """Lets no more than so many bytes be written; None for all there is."""
        filler = self.folder / _FILLER
        filler.unlink(missing_ok=True)
        if free is not None:
            size = shutil.disk_usage(self.folder).free - free
            with open(filler, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount).returncode:
        pytest.skip("no disk can be mounted here")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes") / "shapes"
    write_shapes(folder, num_train=16, num_valid=1, image_size=64)
    return ek.data.load(folder, "train")


@pytest.fixture
def write(request, model, dataset):
    """A function of a folder that writes there what the parameter names."""
    name = request.param
    suffix = name.partition(".")[2]
    if suffix in ("tflite", "onnx", "xml") or name == "saved_model":
        return lambda folder: model.export(folder / name, verbose=0)
    if hasattr(ek.data, f"write_{name}"):
        return lambda folder: getattr(ek.data, f"write_{name}")(dataset, folder / name)
    return {
        "a.keras": lambda folder: write_archive(model, folder / name),
        "a.weights.h5": lambda folder: model.save_weights(folder / name),
        "a.safetensors": lambda folder: model.export_checkpoint(
            folder / name, "torch-effdet"
        ),
        "model.ckpt": lambda folder: model.export_checkpoint(
            folder / name, "automl-tf1"
        ),
        "hub": lambda folder: model.export_hub_module(folder / name),
        "report.html": lambda folder: ek.data.check(dataset).save(folder / name),
    }[name]


WRITERS = [
    "a.keras",
    "a.weights.h5",
    "a.safetensors",
    "model.ckpt",
    "hub",
    "report.html",
    "saved_model",
    "a.tflite",
    "a.onnx",
    "a.xml",
    "coco",
    "csv",
    "tfrecord",
    "voc",
    "yolo",
]
NEW_FOLDERS = {"hub", "coco", "csv", "tfrecord", "voc", "yolo"}  # never replaced
SECONDS = {"hub", "saved_model", "a.tflite", "a.onnx", "a.xml"}  # that one takes
SHORT = ("a.keras", "a.weights.h5", "a.safetensors", "report.html", "voc")


def contents(folder):
    """Bytes by relative path of all files but the one that fills the disk."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != _FILLER
    }


@pytest.mark.parametrize("ending", [".avi", ".mp4", ".mkv"])
def test_a_video_is_not_drawn_to_a_full_disk(disk, tmp_path, ending):
    cv2 = pytest.importorskip("cv2")
    source, out = tmp_path / "source.avi", disk.folder / f"out{ending}"
    writer = cv2.VideoWriter(
        str(source), cv2.VideoWriter_fourcc(*"MJPG"), 25.0, (256, 256)
    )
    random = np.random.default_rng(0)
    for _ in range(60):
        writer.write(random.integers(0, 256, (256, 256, 3), dtype="uint8"))
    writer.release()

    def see(frames):
        return [ek.Detections([], [], [], ("cat",), image=frame) for frame in frames]

    list(detect_frames(see, source, out))
    old = contents(disk.folder)
    (whole,) = map(len, old.values())
    for share in (0.0, 0.3, 0.9):
        disk.leave(int(whole * share))
        with pytest.raises(OSError) as caught:
            list(detect_frames(see, source, out, overwrite=True))
        disk.leave(None)
        assert caught.value.errno == errno.ENOSPC
        assert contents(disk.folder) == old


@pytest.mark.parametrize("write", slow_but(SHORT, WRITERS), indirect=True, ids=str)
def test_it_is_told_and_nothing_is_lost(write, disk, times, request):
    write(disk.folder)
    old = contents(disk.folder)
    whole = sum(map(len, old.values()))
    parts = times(2, 5 if request.node.callspec.params["write"] in SECONDS else 50)
    for part in range(parts):
        for folder in NEW_FOLDERS & set(os.listdir(disk.folder)):
            shutil.rmtree(disk.folder / folder)
            old = {}
        disk.leave(whole * part // parts)
        with pytest.raises(OSError) as caught:
            write(disk.folder)
        disk.leave(None)
        assert contents(disk.folder) == old
        assert caught.value.errno == errno.ENOSPC
        assert str(disk.folder) in str(caught.value)  # it says of which file
    write(disk.folder)
