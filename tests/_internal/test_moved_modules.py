"""Import paths of before work, and say where the names are now."""

import importlib

import pytest

from effdet_keras.network.anchors import generate_anchors
from effdet_keras.network.bifpn import BiFPN
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.network.mbconv import MBConv


@pytest.mark.parametrize(
    "value",
    [generate_anchors, BiFPN, EfficientDetConfig, MBConv],
    ids=lambda value: value.__name__,
)
def test_an_old_path_has_the_same_object_and_names_the_new_one(value):
    new = value.__module__
    old = importlib.import_module(new.replace(".network.", ".model."))
    with pytest.warns(DeprecationWarning, match=f"`{new}` now"):
        assert getattr(old, value.__name__) is value
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = old.nothing_of_this_name
