"""What an exported file says of its model: kept inside it, read before it runs."""

import dataclasses
import hashlib
import json

import numpy as np

from effdet_keras._version import __version__
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.model.config import EfficientDetConfig

DESCRIPTION_NAME = "effdet_keras.json"  # of the asset, the entry, the property
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Description:
    """The model behind an exported file.

    Args:
        postprocess: `Postprocess` of the file, or for "raw" outputs the one that
            the model had.

    Example:
        >>> config = EfficientDetConfig(num_classes=1)
        >>> text = Description(config, class_names=("cat",), outputs="raw").to_json()
        >>> Description.from_json(text, "cats.onnx").class_names
        ('cat',)
    """

    config: EfficientDetConfig
    class_names: tuple | None = None
    category_ids: tuple | None = None
    postprocess: Postprocess = dataclasses.field(default_factory=Postprocess)
    outputs: str = "detections"
    precision: str = "float32"
    batch_size: int | None = None
    score_settings: ScoreSettings | None = None
    seg_class_names: tuple | None = None
    weights: str | None = None

    def to_json(self):
        """The description as text, to be stored in the file."""
        settings = self.score_settings
        fields = {
            "format": _FORMAT,
            "effdet_keras": __version__,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "config": self.config.to_dict(),
            "postprocess": self.postprocess.get_config(),
            "score_settings": settings.to_dict() if settings is not None else None,
        }
        if self.seg_class_names is None:  # as files were before there were any
            del fields["seg_class_names"]
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text, path):
        """The description that `to_json` wrote."""
        try:
            fields = json.loads(text)
            version, written_by = fields.pop("format"), fields.pop("effdet_keras")
            settings = fields.get("score_settings")
            if version > _FORMAT:
                raise InvalidValueError(
                    f"a newer effdet_keras wrote it ({written_by}; this is "
                    f"{__version__}): upgrade to read it"
                )
            return cls(
                **{
                    **fields,
                    "config": EfficientDetConfig(**fields["config"]),
                    "postprocess": Postprocess(**fields["postprocess"]),
                    "class_names": _as_tuple(fields["class_names"]),
                    "category_ids": _as_tuple(fields["category_ids"]),
                    "score_settings": settings and ScoreSettings.from_dict(settings),
                    "seg_class_names": _as_tuple(fields.get("seg_class_names")),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidValueError(
                f"The description '{DESCRIPTION_NAME}' inside '{path}' cannot be read "
                f"({error}). Export the model again."
            ) from error


def describe(model, **fields):
    """The description of a model; see `Description` for the `fields`."""
    return Description(
        **{
            "config": model.config,
            "class_names": model.class_names,
            "category_ids": model.category_ids,
            "postprocess": model.postprocess,
            "score_settings": model.score_settings,
            "seg_class_names": model.seg_class_names,
            "weights": weights_digest(model),
            **fields,
        }
    )


def weights_digest(model):
    """Tells the weights of a model that detects from all others, in 16 characters."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:16]


def _as_tuple(values):
    return None if values is None else tuple(values)
