"""A tiny dataset for runs."""

import pytest

from effdet_keras.data import write_shapes


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with four images to train on and two to validate on."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=4, num_valid=2, image_size=64)
    return folder
