"""`export(names="tfod")`: outputs equal to those of the exporter of that API."""

import numpy as np
import pytest
from support.odapi import odapi_path

from effdet_keras.model.efficientdet import EfficientDet

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
tf = pytest.importorskip("tensorflow")


def test_all_outputs_of_all_input_types(tmp_path):
    expected = np.load(odapi_path("d0_256/exported.npz"))
    model = EfficientDet.from_pipeline_config(
        odapi_path("d0_256/pipeline.config"), weights=odapi_path("d0_256"), verbose=0
    )
    path = tmp_path / "saved_model"
    model.export(path, names="tfod", input_type="tf_example", verbose=0)
    loaded = tf.saved_model.load(str(path))
    pixels = expected["picture"][None]
    inputs = {
        "image_tensor": pixels,
        "float_image_tensor": pixels.astype("float32"),
        "encoded_image_string_tensor": [expected["png"].tobytes()],
        "tf_example": [expected["tf_example"].tobytes()],
    }
    inputs["serving_default"] = inputs["tf_example"]
    for name, value in inputs.items():
        found = loaded.signatures[name](input_tensor=tf.constant(value))
        assert len(found) == 8
        golden = "tf_example" if name == "serving_default" else name
        for output, values in found.items():
            assert values.dtype == tf.float32
            key = f"{golden}/{output}"
            if output == "raw_detection_scores":
                values, key = values.numpy()[:, expected["rows"]], f"{key}_rows"
            if key in expected:
                np.testing.assert_allclose(values, expected[key], atol=1e-5)
