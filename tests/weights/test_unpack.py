"""Archives: whole ones come out whole, others end in an error, none leads out."""

import gzip
import io
import pathlib
import shutil
import tarfile
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effdet_keras.weights import locate as module
from effdet_keras.weights.locate import is_tar_archive, unpack

FILES = {
    "efficientdet-d0/checkpoint": b'model_checkpoint_path: "model"\n',
    "efficientdet-d0/model.index": bytes(range(256)) * 3,
    "efficientdet-d0/model.data-00000-of-00001": bytes(range(255, -1, -1)) * 9,
}
TYPES = {
    "a symbolic link": tarfile.SYMTYPE,
    "a hard link": tarfile.LNKTYPE,
    "a character device": tarfile.CHRTYPE,
    "a block device": tarfile.BLKTYPE,
    "a pipe": tarfile.FIFOTYPE,
    "a sparse file": tarfile.GNUTYPE_SPARSE,
    "a type of its own": b"Z",
}
OUTSIDE = ["../x", "/x", "a/../../x", ".."]


def member(name, type=tarfile.REGTYPE, linkname="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = type, linkname, size
    return info


def tar(files, extra=(), format=tarfile.PAX_FORMAT):
    """The bytes of an archive of `files` and of `extra` members without content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for name, content in files.items():
            archive.addfile(member(name, size=len(content)), io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return stream.getvalue()


TAR = tar(FILES)
TAR_GZ = gzip.compress(TAR, mtime=0)


def unpacked(data, folder):
    """What `unpack` writes of an archive, and nothing may be beside its folder."""
    folder = pathlib.Path(folder)
    path, out = folder / "weights.tar.gz", folder / "out"
    path.write_bytes(data)
    out.mkdir()
    try:
        unpack(path, out)
    finally:
        assert {p.name for p in folder.iterdir()} == {path.name, out.name}
        assert not any(p.is_symlink() for p in out.rglob("*"))
    files = [p for p in out.rglob("*") if p.is_file()]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in files}


@pytest.mark.parametrize("data", [TAR, TAR_GZ], ids=["tar", "gzip"])
@pytest.mark.parametrize("extra", [(), [member("empty/", tarfile.DIRTYPE)]])
def test_files_come_out_as_they_went_in(tmp_path, data, extra):
    assert unpacked(data, tmp_path) == FILES


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_odd_ones_stay_within_the_folder(tmp_path, format):
    long = "/".join(["folder"] * 14) + "/mod\u00e8le"
    files = {"./a": b"1", "b/./c": b"2", "..d": b"3", "e..": b"4", long: b"x"}
    expected = {"a": b"1", "b/c": b"2", "..d": b"3", "e..": b"4", long: b"x"}
    assert unpacked(tar(files, format=format), tmp_path) == expected


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="not unpacked: .*elsewhere.*by hand"):
        unpacked(tar({name: b"evil"}), tmp_path)


@pytest.mark.parametrize("type", TYPES.values(), ids=TYPES)
def test_what_is_no_plain_file_is_refused(tmp_path, type):
    archive = tar({}, [member("x", type, linkname="../weights.tar.gz")])
    with pytest.raises(ValueError, match="'x' is no plain file"):
        unpacked(archive, tmp_path)


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    size = sum(map(len, FILES.values()))

    def usage_of(free):
        return lambda _: shutil._ntuple_diskusage(free, 0, free)

    monkeypatch.setattr(module.shutil, "disk_usage", usage_of(size))
    with pytest.raises(ValueError, match="not unpacked: it holds 3 files.*this disk"):
        unpacked(TAR, tmp_path)
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(module.shutil, "disk_usage", usage_of(2 * size))
    with pytest.raises(ValueError, match="what follows its files"):
        unpacked(gzip.compress(TAR + bytes(20_000)), tmp_path)
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(module, "_MAX_MEMBERS", 2)
    with pytest.raises(ValueError, match="it holds 3 files"):
        unpacked(TAR, tmp_path)


def flipped(data, place):
    data = bytearray(data)
    data[place] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data, reason",
    [
        (flipped(TAR_GZ, -8), "CRC"),
        # `tarfile` would take a wrong header for the end.
        (flipped(TAR, TAR.index(b"efficientdet-d0/model.data")), "header is wrong"),
        (gzip.compress(b"an error page"), ""),
        (
            member("x", tarfile.XHDTYPE, size=1 << 26).tobuf() + bytes(1 << 26),
            "header of 67108864",
        ),
    ],
    ids=["checksum", "header", "page", "memory"],
)
def test_damage_is_told_with_its_cure(tmp_path, data, reason):
    match = f"damaged or truncated.*{reason}.*Fetch or copy it again"
    with pytest.raises(ValueError, match=match):
        unpacked(data, tmp_path)


def test_what_is_no_archive(tmp_path):
    for head in (b"", b"<!DOCTYPE html>" * 99, b"PK\x03\x04" + bytes(600)):
        (tmp_path / "x").write_bytes(head)
        assert not is_tar_archive(tmp_path / "x")


def unpacked_or_refused(data):
    """The files of an archive, or None where there is an error about it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return unpacked(data, folder)
        except (ValueError, OSError):
            return None


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([TAR, TAR_GZ]), st.floats(0, 1, exclude_max=True))
def test_an_archive_cut_anywhere_is_an_error_or_lacks_nothing(archive, share):
    files = unpacked_or_refused(archive[: int(share * len(archive))])
    # A tar file may be cut in the zeros after its end.
    assert files is None or (files == FILES and archive is TAR)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_flipped_bits_are_an_error_or_do_no_harm(data):
    archive = data.draw(st.sampled_from([TAR, TAR_GZ]))
    spoiled = bytearray(archive)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(archive) - 1))
        spoiled[place] ^= data.draw(st.integers(1, 255))
    files = unpacked_or_refused(bytes(spoiled))
    # gzip has a checksum.
    assert archive is TAR or files in (None, FILES)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=1500))
def test_any_bytes_end_in_files_or_an_error(noise):
    for magic in (b"\x1f\x8b\x08", bytes(257) + b"ustar"):
        unpacked_or_refused(magic + noise)


NAMES = st.one_of(
    st.sampled_from([*OUTSIDE, ".", "", "a", "a/b", "a/../b", "\0", "x\0y", "/"]),
    st.text(max_size=30),
    st.lists(st.sampled_from(["..", ".", "a", "", "b"]), max_size=6).map("/".join),
)
MEMBERS = st.builds(
    member,
    name=NAMES,
    type=st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, *TYPES.values()]),
    linkname=NAMES,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MEMBERS, max_size=4), st.sampled_from([0, 1, 2]))
def test_no_archive_writes_outside_its_folder(members, format):
    """`unpacked` looks at what is beside the folder, and for links in it."""
    try:
        archive = tar({}, members, format)
    except (ValueError, OverflowError):
        return  # `tarfile` cannot write it
    if unpacked_or_refused(archive) is not None:
        assert all(info.type in (tarfile.REGTYPE, tarfile.DIRTYPE) for info in members)
