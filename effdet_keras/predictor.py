"""`Predictor`: detects with a Keras model, an archive or an exported file."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.detect.detect import (
    Images,
    Progress,
    ScoreRule,
    ScoreThreshold,
    check_batch_size,
    detect,
    image_sources,
)
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import check_choice, first_line, require
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.export.network import evaluated
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.runtime import ExportedDetector, open_runtime
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.checkpoint_files import BEST_FILE, is_archive

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


# Several views may agree on a detection that has a low score in one view.
_AUGMENTED_MIN_SCORE = 0.05


class Predictor:
    """Detects with a model in memory, an archive or an exported file, all alike.

    `Predictor.load` opens a file. `Predictor(model)` takes a model in memory. Boxes are
    in pixels of the image, clipped to it. Several threads may use one predictor.

    Args:
        detector: `EfficientDet` or `ExportedDetector`.
        runtime: "openvino", "onnx" or "litert", the runtime in which an `EfficientDet`
            computes; None for Keras. The model is converted once, here, with its
            current weights. "auto" is OpenVINO or ONNX Runtime, the first that is
            installed. If its results differ from the model's, Keras is used, with a
            warning.
        num_threads: int, the number of threads of the runtime. None lets the runtime
            choose.
        precision: "float32"; or "bfloat16" for OpenVINO on a processor that supports
            it, which is faster, with results close but not equal to float32.

    Attributes:
        detector: the model or the exported file.

    Raises:
        ValueError: If `runtime` is unknown, or is given for an exported file ("auto" is
            allowed); if `num_threads` or `precision` is given without a `runtime`; or
            if the results of the given runtime differ from the model's.
        ImportError: If the runtime is not installed.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> predictor = Predictor(model)
        >>> predictor.class_names, predictor.config.image_size
        (('cat',), (64, 64))
        >>> len(predictor.detect(np.zeros((48, 100, 3), "uint8"), score_threshold=0.9))
        0
    """

    def __init__(
        self,
        detector: EfficientDet | ExportedDetector,
        *,
        runtime: Literal["auto", "openvino", "onnx", "litert"] | None = None,
        num_threads: int | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        check_whole_number("num_threads", num_threads, "[1, inf)", others=(None,))
        if runtime == "auto" and precision == "float32":
            detector = in_fastest_runtime(detector, num_threads)
        elif runtime is not None:
            is_live = not isinstance(detector, ExportedDetector)
            require(is_live, "`runtime` is for models in Keras", runtime=runtime)
            detector = in_runtime(detector, runtime, num_threads, precision)
        else:
            rule = "`num_threads` and `precision` need a `runtime`: give that too"
            given = {"num_threads": num_threads, "precision": precision}
            require(num_threads is None and precision == "float32", rule, **given)
        self.detector = detector

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        num_threads: int | None = None,
        *,
        runtime: Literal["auto", "openvino", "onnx", "litert"] | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> Predictor:
        """Opens a file or folder that contains a model.

        Args:
            path: path of a `.keras` file, of a folder of `CheckpointArchive`, or of a
                run; or of an export of `EfficientDet.export`: a folder (SavedModel),
                `.tflite`, `.onnx` or `.xml` (OpenVINO). It may also be an address, such
                as `s3://bucket/run`.
            num_threads, runtime, precision: see `Predictor`. An exported file has its
                own runtime.

        Returns:
            `Predictor`.

        Raises:
            FileNotFoundError: If there is nothing at `path`.
            ValueError: If the file is of no known kind, or damaged; or if `num_threads`
                is given for a `.keras` file that runs in Keras.
            ImportError: If the runtime is not installed.
        """
        check_whole_number("num_threads", num_threads, "[1, inf)", others=(None,))
        if is_remote(path):
            path = _copied(path)
        path = local_path(path, "The path of a model")
        if not is_archive(path):
            with dropping_unreadable_copy(path):
                opened = open_runtime(path, num_threads, precision)
            return cls(ExportedDetector(opened), runtime=runtime)
        keras.require(f"Opening '{path}'")
        from effdet_keras.weights.archive import load_archive

        model = load_archive(path)
        options = {"num_threads": num_threads, "precision": precision}
        return cls(model, runtime=runtime, **options)

    @property
    def config(self) -> EfficientDetConfig:
        """The configuration of the model."""
        return self.detector.config

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each label, or None if the model has no names."""
        return self.detector.class_names

    @property
    def category_ids(self) -> tuple[int, ...] | None:
        """The category id of each label. With None, label `i` has the id `i + 1`."""
        return self.detector.category_ids

    @property
    def seg_class_names(self) -> tuple[str, ...] | None:
        """The name of each pixel class, or None if the model has no names."""
        return self.detector.seg_class_names

    @property
    def score_settings(self) -> ScoreSettings | None:
        """The thresholds and temperature stored with the model, or None."""
        return self.detector.score_settings

    def detect(
        self,
        images: Images,
        score_threshold: ScoreThreshold = 0.3,
        *,
        batch_size: int = 8,
        verbose: int | str = "auto",
        tiles: int | Sequence[int] | bool | None = None,
        tile_overlap: float = 0.2,
        augment: Sequence[float] | bool | None = None,
        calibrated: bool = False,
        classes: Sequence[str | int] | None = None,
    ) -> Detections | list[Detections]:
        """Finds objects in images of any size.

        Args:
            images, score_threshold, verbose, calibrated, classes: see
                `EfficientDet.detect`.
            batch_size: int, the number of images per batch. An export with a fixed
                batch size uses that instead.
            tiles: for images much larger than the network's input, the size of tiles to
                cut them into: the side in pixels, `(height, width)`, or True for the
                network's input size; see `detect_tiled`.
            tile_overlap: float in [0, 1), the smallest fraction of a side by which
                tiles overlap.
            augment: scales, such as `(0.75, 1.0)`, at which to detect in the image and
                its mirror image. True is `(1.0,)`; see `detect_augmented`.

        Returns:
            `Detections` for one image, otherwise a list of them.

        Raises:
            FileNotFoundError, ValueError, TypeError: If an image does not exist or is
                not an image, or an argument is out of its range.
            RuntimeError: If the model lacks the requested thresholds or temperature.
        """
        if not (_is_given(tiles) or _is_given(augment)):
            return detect(
                self.detector,
                images,
                score_threshold=score_threshold,
                batch_size=self._batch_size(batch_size),
                verbose=verbose,
                calibrated=calibrated,
                classes=classes,
            )
        rule = ScoreRule(self.detector, score_threshold, calibrated, classes)
        detect_images = self._detect_function(
            rule, batch_size, tiles, tile_overlap, augment
        )
        sources, is_single = image_sources(images)
        shows_progress = not is_single if verbose == "auto" else bool(verbose)
        progress = Progress(len(sources), "images")
        found = []
        for source in sources:
            found += detect_images([source])
            if shows_progress:
                progress.update(len(found))
        return found[0] if is_single else found

    def detect_video(
        self,
        source: int | str | os.PathLike[str],
        out: str | os.PathLike[str] | None = None,
        score_threshold: ScoreThreshold = 0.3,
        *,
        overwrite: bool = False,
        tiles: int | Sequence[int] | bool | None = None,
        tile_overlap: float = 0.2,
        augment: Sequence[float] | bool | None = None,
        calibrated: bool = False,
        classes: Sequence[str | int] | None = None,
        track: bool = False,
    ) -> Iterator[Detections]:
        """Finds objects in a video or a camera stream, frame by frame.

        It needs OpenCV: `pip install "effdet-keras[video]"`.

        Args:
            source: path of a video; number of a camera, 0 for the first; or address of
                a stream, such as "rtsp://...".
            out: path of a video to write with the boxes drawn, `.mp4`, `.avi`, `.mov`
                or `.mkv`. The file appears when the iterator ends or is closed.
            score_threshold, tiles, tile_overlap, augment, calibrated, classes: see
                `detect`.
            overwrite: bool, whether an existing file at `out` may be replaced.
            track: bool, whether to track objects from frame to frame. Each object gets
                a number, in `track_ids`, which is drawn instead of its score. Tracking
                needs `pip install "effdet-keras[track]"`.

        Returns:
            Iterator of `Detections`, one per frame, as the frames arrive. `image` is
            the frame, uint8 `[H, W, 3]`, RGB. `image_id` is its number, from 0.

        Raises:
            FileNotFoundError, OSError, ValueError: If the video or camera cannot be
                read, or `out` cannot be written. For a truncated or damaged video, the
                error comes after the frames that can be decoded.
            FileExistsError: If `out` exists, and `overwrite` is False.
            ImportError: If OpenCV is not installed; or, with `track`, the package that
                tracking needs.
        """
        rule = ScoreRule(self.detector, score_threshold, calibrated, classes)
        detect_images = self._detect_function(rule, 1, tiles, tile_overlap, augment)
        from effdet_keras.extras.video import detect_frames

        return detect_frames(detect_images, source, out, overwrite, track=track)

    def evaluate(
        self,
        dataset: Any,
        *,
        batch_size: int = 8,
        verbose: bool = True,
        losses: bool = False,
    ) -> dict[str, float]:
        """Computes the COCO metrics on a dataset, as `COCOEvaluation` does.

        Args:
            dataset: `effdet_keras.data.DetectionDataset`, or your own batches, as
                `COCOEvaluation` takes them.
            batch_size: int, the number of images per batch; see `detect`.
            verbose: bool, whether to show progress and the table of metrics.
            losses: bool, whether to compute also the losses of a compiled model, as
                `model.evaluate` returns them.

        Returns:
            Dict of floats by name: `AP`, `AP50`, ..., `AP/<class>`. A metric is -1 if
            the dataset has nothing to measure.

        Raises:
            ValueError: If the classes of model and dataset differ, or losses of an
                exported file are requested.
        """
        keras.require("Evaluating")
        check_batch_size(batch_size)
        from effdet_keras.detect.evaluate import evaluate

        options = {"batch_size": self._batch_size(batch_size), "verbose": verbose}
        return evaluate(self.detector, dataset, losses=losses, **options)

    def predict_on_batch(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Detects in a batch of images of the network's input size.

        With this method, a predictor can be used as a detector, like a model.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255.

        Returns:
            Dict of arrays, as `Postprocess` returns it.
        """
        outputs = self.detector.predict_on_batch(images)
        return {name: np.asarray(value) for name, value in outputs.items()}

    def _detect_function(self, rule, batch_size, tiles, tile_overlap, augment):
        """Returns a function that detects in a list of images with these options."""
        check_number("tile_overlap", tile_overlap, "[0, 1)")
        if _is_given(tiles) and tiles is not True:
            form = {"form": "number or sequence", "others": (None, True, False)}
            check_whole_number("tiles", tiles, "[1, inf)", count=2, **form)
        is_augmented = _is_given(augment)
        lowest = min(rule.lowest, _AUGMENTED_MIN_SCORE) if is_augmented else rule.lowest
        options = {"batch_size": self._batch_size(batch_size), "verbose": 0}
        once = functools.partial(
            detect, self.detector, score_threshold=lowest, **options
        )
        detect_images = once
        if _is_given(tiles):
            size = self.config.image_size if tiles is True else tiles
            from effdet_keras.extras.tiles import detect_tiled as tiled

            def detect_images(images):
                options = {"tile_size": size, "overlap": tile_overlap}
                return [tiled(once, image, **options) for image in images]

        if is_augmented:
            from effdet_keras.extras.fusion import detect_augmented, scales_of

            detect_images = functools.partial(
                detect_augmented,
                detect_images,
                scales=scales_of(augment),
                pad_rgb=self.config.padding_rgb,
            )
        return lambda images: [rule.applied_to(one) for one in detect_images(images)]

    def _batch_size(self, batch_size):
        """Returns the fixed batch size of an exported file, or else `batch_size`.

        A larger number would only cost time for filling up batches.
        """
        if not isinstance(self.detector, ExportedDetector):
            return batch_size
        return self.detector.runtime.description.batch_size or batch_size


def _copied(address):
    """Copies the model at an address to this machine, and returns the path of the file.

    For a folder of a training, it is the best checkpoint.
    """
    folder = path_of(address)
    if not folder.is_dir():
        return local_copy(folder)
    keras.require(f"Opening '{address}'")
    from effdet_keras.weights.archive import checkpoint_file

    return checkpoint_file(folder, BEST_FILE)


def _is_given(option):
    """Returns whether `tiles` or `augment` is switched on."""
    return option is not None and option is not False


# --- A model in memory in the runtime of an export, without a permanent file.

RUNTIMES = ("openvino", "onnx", "litert")
_FASTEST = RUNTIMES[:2]  # on CPUs of servers and laptops


def in_fastest_runtime(detector, num_threads=None):
    """Returns a model in the fastest installed runtime.

    If no runtime is installed, or the conversion fails or gives other results, the
    model is returned unchanged; after a failure with a warning.
    """
    runtimes = {name: FORMATS[name].load_runtime() for name in _FASTEST}
    installed = [n for n, one in runtimes.items() if one.package.is_installed()]
    is_exported = isinstance(detector, ExportedDetector)
    if is_exported or not installed:
        return detector
    try:
        return in_runtime(detector, installed[0], num_threads)
    except Exception as error:  # a converter raises almost anything
        title = FORMATS[installed[0]].title
        warnings.warn(f"Keras is used, not {title}: {first_line(error)}", stacklevel=3)
        return detector


def in_runtime(
    model: EfficientDet,
    runtime: str,
    num_threads: int | None = None,
    precision: str = "float32",
) -> ExportedDetector:
    """Converts the network of a model for a runtime, opens it there and checks it."""
    check_choice("runtime", runtime, RUNTIMES, ", 'auto' in float32, or None for Keras")
    chosen = FORMATS[runtime]
    chosen.load_runtime().package.require(f"Running a model in {chosen.title}")
    from effdet_keras.export.check import check_export

    # LiteRT supports only a fixed batch size.
    fixed = {"batch_size": 1} if runtime == "litert" else {}
    # Some systems cannot delete an open file. Then the folder is left behind.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder) / f"model{chosen.ending}"
        with evaluated(model) as ready:
            chosen.load_writer()(ready, path, outputs="raw", **fixed)
            opened = open_runtime(path, num_threads, precision)
            shape = (*model.config.image_size, 3)
            noise = np.random.default_rng(0).integers(0, 256, shape)
            if precision == "float32":
                check_export(ready, opened, [noise], format=runtime)
            return ExportedDetector(opened, digest_of_arrays(ready.weights))


def digest_of_arrays(arrays: Iterable[Any]) -> str:
    """Returns a digest that distinguishes the weights of models."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
