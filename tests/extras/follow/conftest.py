"""A tiny dataset to evaluate on."""

import pytest

from effdet_keras.data import write_shapes


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with four images to evaluate on, new for each file of tests."""
    folder = tmp_path_factory.mktemp("data")
    write_shapes(folder, num_train=2, num_valid=4, image_size=64)
    return folder
