"""Encoded images to pixels inside a TensorFlow graph, as `images.read_image` does."""

from effdet_keras._internal.optional_imports import tensorflow as tf

_EXIF_HEAD = b"Exif\x00\x00"
_EXIF_REACH = 128 * 1024  # bytes; the entry is in one of the first segments
_ORIENTATION_TAG = 0x0112
_PNG_DEPTH, _PNG_COLOR = 24, 25  # places of these bytes in a PNG file


def decode_image(data):
    """Decodes one JPEG, PNG, GIF or BMP file.

    What is grey becomes RGB, alpha is dropped, 16 bits become 8, of an animation the
    first frame is taken, and an image that a camera stored lying is turned upright.

    Args:
        data: scalar string tensor, the bytes of the file.

    Returns:
        uint8 tensor `[H, W, 3]`.

    Example:
        >>> png = tf.io.encode_png(np.full((2, 3, 1), 7, "uint8"))
        >>> decode_image(png).shape
        TensorShape([2, 3, 3])
    """
    is_jpeg = tf.io.is_jpeg(data)
    pixels = tf.cond(is_jpeg, lambda: _decode_jpeg(data), lambda: _decode_other(data))
    pixels.set_shape([None, None, 3])
    return pixels


def decode_as_stored(data):
    """Decodes as the TF Object Detection API's exporter: nothing is turned upright.

    Args:
        data: as of `decode_image`.

    Returns:
        uint8 tensor `[H, W, 3]`.

    Example:
        >>> png = tf.io.encode_png(np.full((2, 3, 1), 7, "uint8"))
        >>> decode_as_stored(png).shape
        TensorShape([2, 3, 3])
    """
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, 3])


def _decode_jpeg(data):
    # The accurate transform is the one that Pillow takes.
    pixels = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    return _upright(pixels, exif_orientation(data))


def _decode_other(data):
    header = tf.cast(
        tf.io.decode_raw(tf.strings.substr(data, 0, 32), tf.uint8), "int32"
    )
    header = tf.pad(header, [[0, 32]])
    is_png = tf.strings.substr(data, 1, 3) == b"PNG"
    # Of 16 bits of colour both decoders take the upper eight; grey is rounded.
    is_deep_grey = is_png & (header[_PNG_DEPTH] == 16) & (header[_PNG_COLOR] == 0)
    return tf.cond(
        is_deep_grey,
        lambda: _decode_deep_grey(data),
        lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
    )


def _decode_deep_grey(data):
    grey = tf.cast(tf.io.decode_png(data, channels=3, dtype=tf.uint16), tf.int32)
    return tf.cast((grey + 128) // 257, tf.uint8)


def exif_orientation(data):
    """Reads how a camera was turned from the head of a JPEG file.

    Args:
        data: scalar string tensor, the bytes of the file.

    Returns:
        Scalar int32 tensor, 1 to 8 as in the EXIF standard (2.3, section 4.6.4 A);
        1, upright, where the file does not say.

    Example:
        >>> int(exif_orientation(tf.io.encode_jpeg(np.zeros((2, 3, 3), "uint8"))))
        1
    """
    head = tf.io.decode_raw(tf.strings.substr(data, 0, _EXIF_REACH), tf.uint8)
    head = tf.cast(head, tf.int32)
    count = tf.size(head)

    def byte(place):  # zero behind the end, whatever a damaged file points at
        inside = (place >= 0) & (place < count)
        value = tf.gather(head, tf.clip_by_value(place, 0, count - 1))
        return tf.where(inside, value, 0)

    start = tf.range(count)
    found = tf.reduce_all(
        [byte(start + i) == value for i, value in enumerate(_EXIF_HEAD)], axis=0
    )
    tiff = tf.cast(tf.argmax(found), tf.int32) + len(_EXIF_HEAD)
    is_little = byte(tiff) == ord("I")

    def number(place, length):
        value = tf.zeros_like(place)
        for i in range(length):
            value = value * 256 + byte(
                tf.where(is_little, place + length - 1 - i, place + i)
            )
        return value

    directory = tiff + number(tiff + 4, 4)
    entries = directory + 2 + 12 * tf.range(number(directory, 2))
    values = tf.where(number(entries, 2) == _ORIENTATION_TAG, number(entries + 8, 2), 0)
    value = tf.reduce_max(tf.concat([values, [0]], 0))
    is_known = tf.reduce_any(found) & (value >= 1) & (value <= 8)
    return tf.where(is_known, value, 1)


def _upright(pixels, orientation):
    """Turns what was stored lying: a transposition, then flips."""

    def among(*values):
        return tf.reduce_any(orientation == tf.constant(values))

    pixels = tf.cond(
        among(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels
    )
    pixels = tf.cond(among(2, 3, 6, 7), lambda: pixels[:, ::-1], lambda: pixels)
    return tf.cond(among(3, 4, 7, 8), lambda: pixels[::-1], lambda: pixels)
