"""Reading image files: every mode, EXIF turns, broken files."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFile

from effdet_keras.images import list_images, read_image, read_image_size

RAMP = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10  # [4, 6], wider than high


def save(tmp_path, image, name="image.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_grey_images_of_any_mode_read_alike(tmp_path, mode):
    if mode == "I;16":
        image = Image.fromarray(RAMP.astype(np.uint16) * 257)
        assert image.mode == "I;16"
    else:
        image = Image.fromarray(RAMP).convert(mode)
    expected = np.asarray(image.convert("L")) if mode == "1" else RAMP
    result = read_image(save(tmp_path, image))
    assert result.dtype == np.uint8 and result.shape == (4, 6, 3)
    np.testing.assert_array_equal(result, np.repeat(expected[..., None], 3, axis=2))


@pytest.mark.parametrize(
    ("highest", "dtype", "mode"),
    [
        (1.0, "float32", "F"),
        (255.0, "float32", "F"),
        (65535.0, "float32", "F"),
        (65535, "int32", "I"),
    ],
)
def test_grey_in_floating_point_and_32_bits_is_scaled(tmp_path, highest, dtype, mode):
    image = Image.fromarray((RAMP / 255 * highest).astype(dtype))
    assert image.mode == mode
    result = read_image(save(tmp_path, image, "image.tif"))
    np.testing.assert_array_equal(result, np.repeat(RAMP[..., None], 3, axis=2))


def test_cmyk_jpeg_becomes_rgb(tmp_path):
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # red
    result = read_image(save(tmp_path, image, "image.jpg", quality=95))
    assert abs(result[4, 4].astype(int) - [255, 0, 0]).max() < 10


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4028235e38, -9999.0])
def test_pixels_without_a_value_do_not_make_a_float_image_black(tmp_path, value):
    values = (RAMP / 255).astype("float32")
    values[0, 0] = value
    result = read_image(save(tmp_path, Image.fromarray(values), "image.tif"))
    expected = RAMP.copy()
    expected[0, 0] = 0
    np.testing.assert_array_equal(result[..., 0], expected)


def exif_image(tmp_path, orientation, name="image.png"):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(tmp_path, Image.fromarray(RAMP), name, exif=exif)


@pytest.mark.parametrize(
    "orientation, turn",
    [
        (1, lambda x: x),
        (2, lambda x: x[:, ::-1]),
        (3, lambda x: x[::-1, ::-1]),
        (4, lambda x: x[::-1]),
        (5, np.transpose),
        (6, lambda x: np.rot90(x, -1)),
        (7, lambda x: np.transpose(x[::-1, ::-1])),
        (8, np.rot90),
    ],
)
@pytest.mark.parametrize("name", ["image.png", "image.tif"])
def test_exif_turns_are_undone(tmp_path, orientation, turn, name):
    path = exif_image(tmp_path, orientation, name)
    result = read_image(path)
    np.testing.assert_array_equal(result[..., 0], turn(RAMP))
    assert read_image_size(path) == result.shape[:2]


@pytest.mark.parametrize(
    ("size", "orientation", "expected"),
    [
        *((size, 6, np.rot90(RAMP, -1)) for size in (None, (6, 4), (5, 5))),
        ((4, 6), 6, RAMP),
        ((4, 6), 3, RAMP[::-1, ::-1]),  # fits both ways: upright
    ],
)
@pytest.mark.parametrize("name", ["image.png", "image.tif"])
def test_annotated_size_decides_about_the_exif_turn(
    tmp_path, size, orientation, expected, name
):
    found = read_image(exif_image(tmp_path, orientation, name), size=size)
    np.testing.assert_array_equal(found[..., 0], expected)


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_turned_tiff_can_be_read_as_it_is_stored(tmp_path, orientation):
    path = exif_image(tmp_path, orientation, "image.tif")
    assert read_image_size(path) == RAMP.T.shape
    found = read_image(path, size=RAMP.shape)
    np.testing.assert_array_equal(found[..., 0], RAMP)


@pytest.mark.parametrize("read", [read_image, read_image_size])
def test_missing_and_broken_files_are_named(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="absent"):
        read(tmp_path / "absent.jpg")
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"Pillow can.*text\.jpg"):
        read(tmp_path / "text.jpg")


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png"])
def test_file_cut_short_is_named(tmp_path, name):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = save(tmp_path, Image.fromarray(noise), name)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ValueError, match=name):
        read_image(path)


def test_list_images_leaves_out_what_is_no_image(tmp_path):
    for name in ("c.webp", "a.JPG", ".hidden.jpg", "notes.txt", "b.tiff"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [p.name for p in list_images(str(tmp_path))] == ["a.JPG", "b.tiff", "c.webp"]


def test_list_images_lists_links_to_nowhere(tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "b.jpg").symlink_to("gone.jpg")
    (tmp_path / "folder").mkdir()
    (tmp_path / "c.jpg").symlink_to("folder")
    assert [p.name for p in list_images(tmp_path)] == ["a.jpg", "b.jpg"]


def test_list_images_of_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"no image"):
        list_images(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere"):
        list_images(tmp_path / "nowhere")


def _png(orientation, *, at_the_end):
    """A PNG file with EXIF data in front of its pixels or behind them."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.new("RGB", (8, 4)).save(buffer, "PNG", exif=exif)
    data, chunks, place = buffer.getvalue(), [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big") + 12
        chunks.append(data[place : place + length])
        place += length
    if at_the_end:
        chunks.sort(key=lambda chunk: (chunk[4:8] == b"IEND", chunk[4:8] == b"eXIf"))
    return data[:8] + b"".join(chunks)


@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize("orientation, size", [(1, (4, 8)), (6, (8, 4))])
def test_size_of_a_png_with_exif_data_anywhere(tmp_path, at_the_end, orientation, size):
    data = _png(orientation, at_the_end=at_the_end)
    assert (data.index(b"eXIf") > data.index(b"IDAT")) == at_the_end
    (tmp_path / "a.png").write_bytes(data)
    assert read_image_size(tmp_path / "a.png") == size


def test_the_size_of_a_png_is_read_without_its_pixels(tmp_path, monkeypatch):
    Image.new("RGB", (8, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    assert read_image_size(tmp_path / "a.png") == (4, 8)
