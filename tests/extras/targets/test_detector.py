"""`detector.h`, compiled, finds what `Postprocess` finds in the same raw outputs."""

import shutil
import subprocess

import numpy as np
import pytest
from support.tiny import tiny_model

from effdet_keras.detect.detect import letterboxed
from effdet_keras.detect.postprocess import Postprocess, postprocess_outputs
from effdet_keras.extras.targets.detector import _string, write_detector
from effdet_keras.letterbox import boxes_in_image, scaled_size

COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no g++ here")

# Reads what a test wrote beside it, and prints a line for each detection.
PROGRAM = r"""
#include "detector.h"
#include <cstdio>
#include <cstdlib>

static std::vector<char> content(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::vector<char>(std::istreambuf_iterator<char>(file), {});
}

int main(int, char** arguments) {
  const int height = std::atoi(arguments[1]), width = std::atoi(arguments[2]);
  const auto rgb = content("image.rgb");
  for (bool planes : {true, false}) {
    const auto input = effdet::letterbox(
        reinterpret_cast<const unsigned char*>(rgb.data()), height, width, planes);
    std::ofstream(planes ? "planes.f32" : "pixels.f32", std::ios::binary).write(
        reinterpret_cast<const char*>(input.values.data()), input.values.size() * 4);
    if (planes) continue;
    const auto logits = content("class_logits.f32"), deltas = content("box_deltas.f32");
    const auto anchors = effdet::read_anchors("anchors.bin");
    for (const auto& one : effdet::detect(
             reinterpret_cast<const float*>(logits.data()),
             reinterpret_cast<const float*>(deltas.data()), anchors.data(), input)) {
      std::printf("%.9g %.9g %.9g %.9g %.9g %d %s\n", one.y_min, one.x_min, one.y_max,
                  one.x_max, one.score, one.label, effdet::kLabels[one.label]);
    }
  }
}
"""

CASES = {
    "default": ({}, {}),
    "hard across classes": (
        {"method": "hard", "per_class": False, "pre_nms_top_k": 40},
        {"box_scales": (10.0, 10.0, 5.0, 5.0), "resize_method": "asymmetric"},
    ),
    "one class for each anchor, few of each": (
        {"pre_nms_top_k": 0, "max_detections_per_class": 20, "drop_empty": True},
        {},
    ),
}


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_the_program_finds_what_the_model_finds(tmp_path, case):
    post, fields = CASES[case]
    postprocess = Postprocess(**post)
    model = tiny_model(class_names=('a "quoted" one', "dögg", "c"))
    config = model.config.replace(image_size=(64, 96), **fields)
    model = type(model)(config, class_names=model.class_names, postprocess=postprocess)
    rng, count = np.random.default_rng(0), len(model.anchors)
    image = rng.integers(0, 256, (50, 31, 3), "uint8")
    raw = {
        "class_logits": rng.normal(-1, 2, (1, count, 3)).astype("float32"),
        "box_deltas": rng.normal(0, 1, (1, count, 4)).astype("float32"),
    }
    write_detector(model, tmp_path)
    (tmp_path / "image.rgb").write_bytes(image.tobytes())
    for name, values in raw.items():
        (tmp_path / f"{name}.f32").write_bytes(values.tobytes())
    (tmp_path / "main.cpp").write_text(PROGRAM)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [COMPILER, *flags, "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = [tmp_path / "main", *map(str, image.shape[:2])]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    lines = [line.split(" ", 6) for line in done.stdout.decode().splitlines()]

    pixels, scale = letterboxed(config, image)
    planes = np.fromfile(tmp_path / "planes.f32", "float32").reshape(3, 64, 96)
    np.testing.assert_allclose(planes.transpose(1, 2, 0), pixels, atol=1e-3)
    found = np.fromfile(tmp_path / "pixels.f32", "float32").reshape(64, 96, 3)
    np.testing.assert_array_equal(found, planes.transpose(1, 2, 0))
    content = None  # `detect` gives it where it is asked for
    if postprocess.drop_empty:
        content = scaled_size(image.shape[:2], config.image_size)[None]
    expected = postprocess_outputs(raw, postprocess, model.anchors, config, content)
    rows = int(expected["num_detections"][0])
    assert len(lines) == rows > 10
    boxes = boxes_in_image(expected["boxes"][0, :rows], scale, image.shape[:2])
    numbers = np.array([line[:5] for line in lines], float)
    np.testing.assert_allclose(numbers[:, :4], boxes, atol=2e-3)
    np.testing.assert_allclose(numbers[:, 4], expected["scores"][0, :rows], atol=1e-5)
    labels = [int(line[5]) for line in lines]
    np.testing.assert_array_equal(labels, expected["labels"][0, :rows])
    assert [line[6] for line in lines] == [model.class_names[i] for i in labels]


@pytest.mark.smoke
def test_a_class_name_cannot_end_its_string():
    assert _string('a"\\\n??/') == r'"a\"\\\n?\?/"'
