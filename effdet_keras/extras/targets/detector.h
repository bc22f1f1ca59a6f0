// What stands before and behind the network of /*NAME*/, for C++11 and later, without
// other libraries. Written by effdet_keras, with the settings of the model.
//
//   effdet::Input input = effdet::letterbox(rgb, height, width);
//   ... run the network on input.values ...
//   std::vector<effdet::Detection> found =
//       effdet::detect(class_logits, box_deltas, anchors, input, threshold);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace effdet {

/*SETTINGS*/

// An image as the network takes it: `values` are RGB pixels 0-255, [3, kHeight, kWidth],
// or [kHeight, kWidth, 3] where `letterbox` was asked for it.
struct Input {
  std::vector<float> values;
  float scale_y, scale_x;  // from pixels of the input to pixels of the image
  int height, width;       // of the image
  int rows, columns;       // of the input that are the image, the others are padding
};

// In pixels of the image; `label` is a place in kLabels.
struct Detection {
  float y_min, x_min, y_max, x_max, score;
  int label;
};

// The file anchors.bin: float32 [kNumAnchors, 4], y_min, x_min, y_max, x_max in pixels of
// the input. Empty where it cannot be read.
inline std::vector<float> read_anchors(const std::string& path) {
  std::vector<float> anchors(static_cast<std::size_t>(kNumAnchors) * 4);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(anchors.data()), anchors.size() * sizeof(float));
  if (!file) anchors.clear();
  return anchors;
}

// Appends the map of one level, [channels, height, width], to an output: of files that
// have an output for each level, from the lowest level to the highest.
inline void add_level(const float* planes, int channels, int height, int width,
                      std::vector<float>& output) {
  const std::size_t plane = static_cast<std::size_t>(height) * width;
  for (std::size_t place = 0; place < plane; ++place) {
    for (int channel = 0; channel < channels; ++channel) {
      output.push_back(planes[channel * plane + place]);
    }
  }
}

// Scales an image [height, width, 3], RGB, to fit the input, top left, and pads the rest.
inline Input letterbox(const unsigned char* rgb, int height, int width,
                       bool planes = true) {
  const float scale = std::min(kHeight / static_cast<float>(height),
                               kWidth / static_cast<float>(width));
  const float half = kHalfPixel ? 0.5f : 0.0f;
  auto scaled = [&](int size) {
    float length = size * scale;
    return std::max(1, static_cast<int>(kHalfPixel ? std::floor(length)
                                                   : std::nearbyint(length)));
  };
  const int rows = scaled(height), columns = scaled(width);
  Input input;
  input.height = height;
  input.width = width;
  input.rows = rows;
  input.columns = columns;
  input.scale_y = kHalfPixel ? 1 / scale : height / static_cast<float>(rows);
  input.scale_x = kHalfPixel ? 1 / scale : width / static_cast<float>(columns);
  input.values.resize(static_cast<std::size_t>(3) * kHeight * kWidth);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const bool is_image = y < rows && x < columns;
      const float row = (y + half) * (height / static_cast<float>(rows)) - half;
      const float column = (x + half) * (width / static_cast<float>(columns)) - half;
      const float top = std::floor(row), left = std::floor(column);
      auto pixel = [&](float at_y, float at_x, int channel) {
        const int i = std::min(std::max(static_cast<int>(at_y), 0), height - 1);
        const int j = std::min(std::max(static_cast<int>(at_x), 0), width - 1);
        return static_cast<float>(
            rgb[(static_cast<std::size_t>(i) * width + j) * 3 + channel]);
      };
      for (int channel = 0; channel < 3; ++channel) {
        float value = kPadding[channel];
        if (is_image) {
          const float right = column - left, down = row - top;
          const float upper = pixel(top, left, channel) * (1 - right) +
                              pixel(top, left + 1, channel) * right;
          const float lower = pixel(top + 1, left, channel) * (1 - right) +
                              pixel(top + 1, left + 1, channel) * right;
          value = upper * (1 - down) + lower * down;
        }
        const std::size_t place = static_cast<std::size_t>(y) * kWidth + x;
        const std::size_t plane = static_cast<std::size_t>(kHeight) * kWidth;
        input.values[planes ? channel * plane + place : place * 3 + channel] = value;
      }
    }
  }
  return input;
}

// Raw outputs [kNumAnchors, kNumClasses] and [kNumAnchors, 4] to detections, best first:
// the best pairs of anchor and class, decoded, suppressed as the model does it, clipped.
inline std::vector<Detection> detect(const float* class_logits, const float* box_deltas,
                                     const float* anchors, const Input& input,
                                     float threshold = kScoreThreshold) {
  struct Candidate {
    float box[4], area, logit, score;
    int anchor, label;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const float lowest = threshold <= 0 ? -infinity
                       : threshold >= 1
                           ? infinity
                           : std::log(threshold / (1 - threshold)) - 1e-3f;
  std::vector<Candidate> candidates;
  for (int n = 0; n < kNumAnchors; ++n) {
    const float* logits = class_logits + static_cast<std::size_t>(n) * kNumClasses;
    const int best =
        static_cast<int>(std::max_element(logits, logits + kNumClasses) - logits);
    for (int c = 0; c < kNumClasses; ++c) {
      if (!(logits[c] >= lowest) || (kTopPairs == 0 && c != best)) continue;
      Candidate candidate = {};
      candidate.logit = logits[c];
      candidate.anchor = n;
      candidate.label = c;
      candidates.push_back(candidate);
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  if (kTopPairs > 0 && candidates.size() > kTopPairs) candidates.resize(kTopPairs);
  for (Candidate& one : candidates) {
    const float* anchor = anchors + static_cast<std::size_t>(one.anchor) * 4;
    const float* deltas = box_deltas + static_cast<std::size_t>(one.anchor) * 4;
    for (int axis = 0; axis < 2; ++axis) {
      const float side = std::max(anchor[axis + 2] - anchor[axis], kMinSide);
      const float center = anchor[axis] + (anchor[axis + 2] - anchor[axis]) / 2;
      const float middle = deltas[axis] / kBoxScales[axis] * side + center;
      const float growth =
          std::min(deltas[axis + 2] / kBoxScales[axis + 2], kMaxLogSide);
      const float length = std::exp(growth) * side;
      one.box[axis] = middle - length / 2;
      one.box[axis + 2] = middle + length / 2;
    }
    one.area = std::max(one.box[2] - one.box[0], 0.0f) *
               std::max(one.box[3] - one.box[1], 0.0f);
    one.score = 1 / (1 + std::exp(-one.logit));
  }
  const int window[] = {kDropEmpty ? input.rows : kHeight,
                        kDropEmpty ? input.columns : kWidth};
  std::vector<Detection> found;
  std::vector<int> count(kNumClasses, 0);
  while (found.size() < kMaxDetections) {
    Candidate* taken = nullptr;
    for (Candidate& one : candidates) {
      const bool is_better = taken == nullptr || one.score > taken->score;
      if (one.score > threshold && is_better) taken = &one;
    }
    if (taken == nullptr) break;
    const Candidate best = *taken;
    taken->score = -infinity;
    float box[4];  // in pixels of the image
    bool is_empty = false;
    for (int axis = 0; axis < 2; ++axis) {
      const float limit = static_cast<float>(axis == 0 ? input.height : input.width);
      const float scale = axis == 0 ? input.scale_y : input.scale_x;
      for (int side = axis; side < 4; side += 2) {
        box[side] = std::min(std::max(best.box[side], 0.0f),
                             static_cast<float>(window[axis]));
      }
      is_empty |= box[axis] >= box[axis + 2];
      for (int side = axis; side < 4; side += 2) {
        box[side] = std::min(box[side] * scale, limit);
      }
    }
    if (!(kDropEmpty && is_empty)) {
      found.push_back({box[0], box[1], box[2], box[3], best.score, best.label});
    }
    const int group = kPerClass ? best.label : 0;
    const bool is_full = ++count[group] >= kMaxPerClass;
    for (Candidate& one : candidates) {
      if (kPerClass && one.label != best.label) continue;
      const float height = std::min(one.box[2], best.box[2]) -
                           std::max(one.box[0], best.box[0]);
      const float width = std::min(one.box[3], best.box[3]) -
                          std::max(one.box[1], best.box[1]);
      const float shared = std::max(height, 0.0f) * std::max(width, 0.0f);
      const float iou = shared / std::max(one.area + best.area - shared, kMinArea);
      if (kSoft) one.score *= std::exp(iou * iou * (-1 / kSigma));
      if (is_full || (!kSoft && iou > kIouThreshold)) one.score = -infinity;
    }
  }
  return found;
}

}  // namespace effdet
