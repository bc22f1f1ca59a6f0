"""Made-up photos, and clips of a camera that moves over them: frames look alike."""

import numpy as np
from PIL import Image


def photo(seed, width=240, height=180):
    """A photo of soft spots of color, an image of Pillow."""
    shape = max(height // 40, 4), max(width // 40, 4), 3
    spots = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(spots).resize((width, height), Image.Resampling.BICUBIC)


def write_clip(folder, name, seed, num_frames=30, step=2, classes=(0,)):
    """Writes a clip as YOLO data: crops of a photo, each `step` pixels further.

    Each frame has one box of each of the classes. Returns the paths of the images.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = 120, 90
    image = photo(seed, width=size[0] + step * num_frames)
    paths = []
    for i in range(num_frames):
        path = folder / f"{name}_{i:03d}.jpg"
        left = step * i
        image.crop((left, 40, left + size[0], 40 + size[1])).save(path, quality=90)
        rows = [f"{label} 0.5 0.5 0.25 0.25\n" for label in classes]
        path.with_suffix(".txt").write_text("".join(rows))
        paths.append(path)
    return paths


def write_photo(path, seed, classes=(0,)):
    """Writes a photo like no other, with one box of each of the classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(seed, 120, 90).save(path, quality=90)
    rows = [f"{label} 0.5 0.5 0.25 0.25\n" for label in classes]
    path.with_suffix(".txt").write_text("".join(rows))
    return path
