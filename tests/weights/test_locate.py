"""From path, URL, folder, archive to one file of weights."""

import hashlib
import io
import shutil
import tarfile

import pytest
from support.weights import pack

from effdet_keras.weights.locate import located

DATA = "data-00000-of-00001"


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {path.name}")


def checkpoint(folder, name="model"):
    touch(folder, f"{name}.index", f"{name}.{DATA}", f"{name}.meta")


def note(folder, path):
    """TensorFlow's file of the newest checkpoint."""
    text = f'model_checkpoint_path: "{path}"\nall_model_checkpoint_paths: "x"\n'
    (folder / "checkpoint").write_text(text)


def published(folder, name="efficientdet-d0"):
    """A folder as google/automl publishes it."""
    checkpoint(folder / name)
    note(folder / name, "model")
    return folder / name


def find(source, **options):
    with located(source, verbose=0, **options) as path:
        return path


@pytest.mark.parametrize("name", ["d0.weights.h5", "d0.pth", "d0"])
def test_a_file_is_itself(tmp_path, name, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(tmp_path, name)
    paths = (tmp_path / name, str(tmp_path / name), f"~/{name}")
    for path in (*paths, (tmp_path / name).as_uri()):
        assert find(path) == tmp_path / name


@pytest.mark.parametrize("end", ["", ".index", f".{DATA}", ".meta"])
def test_a_checkpoint_by_any_of_its_names(tmp_path, end):
    checkpoint(tmp_path, "model.ckpt-7")
    assert find(tmp_path / f"model.ckpt-7{end}") == tmp_path / "model.ckpt-7"


@pytest.mark.parametrize("noted", ["new", "/other/machine/new", "C:\\\\runs\\\\new"])
def test_what_tensorflow_noted_is_looked_for_in_its_folder(tmp_path, noted):
    checkpoint(tmp_path, "old")
    checkpoint(tmp_path, "new")
    note(tmp_path, noted)
    assert find(tmp_path) == tmp_path / "new"
    assert find(tmp_path / "checkpoint") == tmp_path / "new"


@pytest.mark.parametrize(
    "names, found",
    [
        (["readme.md", "d0.tflite", ".hidden.h5", "d0.PTH", "logs/x", "b/y"], "d0.PTH"),
        (["a/readme.md", "a/b/d0.safetensors", ".hidden/d1.h5"], "a/b/d0.safetensors"),
        (["pytorch_model.bin", "model.safetensors"], "model.safetensors"),
        (["config.json", "pytorch_model.bin"], "pytorch_model.bin"),
        (["best.keras", "last.keras", "metrics.h5", "m.index"], "best.keras"),
        (["checkpoint", "only.index", f"only.{DATA}"], "only"),
    ],
)
def test_a_folder_means_its_only_weights_or_the_best_of_a_training(
    tmp_path, names, found
):
    touch(tmp_path, *names)
    assert find(tmp_path) == tmp_path / found


def test_several_weights_are_listed(tmp_path):
    touch(tmp_path, "d0.h5", "d1.pth")
    checkpoint(tmp_path, "ckpt-3")
    with pytest.raises(
        ValueError, match="several.*: ckpt-3, d0.h5, d1.pth. Give the path of one"
    ):
        find(tmp_path)
    touch(tmp_path, "both/d0.h5", "both/d1.h5")
    archive = pack(tmp_path / "both.tgz", tmp_path / "both")
    with pytest.raises(ValueError, match="The archive '.*both.tgz' contains several"):
        find(archive)


def test_what_holds_no_weights_or_is_not_there_is_told(tmp_path):
    touch(tmp_path, "a/d0.h5", "b/d1.h5", "notes.txt")
    with pytest.raises(ValueError, match="no weights.*It contains: a, b, notes.txt"):
        find(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"Did you mean 'notes.txt'"):
        find(tmp_path / "note.txt")
    with pytest.raises(FileNotFoundError, match=r"gone/d0.h5"):
        find(tmp_path / "gone" / "d0.h5")


def test_a_published_archive_is_unpacked_for_as_long_as_it_is_read(tmp_path):
    archive = pack(tmp_path / "d0.pth", published(tmp_path))  # known by its bytes
    with pytest.raises(ZeroDivisionError), located(archive) as path:
        assert path.name == "model"
        index = path.with_name("model.index")
        assert index.read_text() == "content of model.index"
        raise ZeroDivisionError
    assert not path.parent.exists()


def archive_of(path, name, type):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = type, "../d0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, io.BytesIO())
    return path


@pytest.mark.parametrize(
    "name, type",
    [("a/../../x", tarfile.REGTYPE), ("x", tarfile.SYMTYPE), ("x", tarfile.FIFOTYPE)],
)
def test_what_leads_out_of_an_archive_is_refused(tmp_path, name, type):
    archive = archive_of(tmp_path / "d0.tar.gz", name, type)
    with pytest.raises(ValueError, match="d0.tar.gz' cannot be unpacked.*x'"):
        find(archive)


def test_a_cut_archive_is_refused(tmp_path):
    archive = pack(tmp_path / "d0.tar.gz", published(tmp_path))
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(
        ValueError, match="cannot be unpacked.*Download or copy it again"
    ):
        find(archive)


def test_the_digest_of_a_local_file(tmp_path):
    touch(tmp_path, "d0.h5")
    digest = hashlib.sha256((tmp_path / "d0.h5").read_bytes()).hexdigest()
    assert find(tmp_path / "d0.h5", sha256=digest) == tmp_path / "d0.h5"
    with pytest.raises(ValueError, match="is not the expected one"):
        find(tmp_path / "d0.h5", sha256="0" * 64)


def test_the_reference_checkpoints_are_found(tmp_path, checkpoint_path):
    for folder, name in (("ckpt_d0_tf1", "model"), ("ckpt_d0_keras", "plain")):
        path = checkpoint_path(folder)
        assert find(path) == path / name
    copy = shutil.copytree(checkpoint_path("ckpt_d0_tf1"), tmp_path / "efficientdet-d0")
    with located(pack(tmp_path / "d0.tar.gz", copy)) as path:
        for end in (".index", f".{DATA}"):
            written = path.with_name(path.name + end).read_bytes()
            assert written == (copy / f"model{end}").read_bytes()
