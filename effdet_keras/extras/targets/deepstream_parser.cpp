// Gives DeepStream's nvinfer the detections of EfficientNMS_TRT, whose classes are
// int32. Written by effdet_keras; config_infer.txt names the function.
//
//   includes=/opt/nvidia/deepstream/deepstream/sources/includes
//   g++ -shared -fPIC -std=c++14 -I"$includes" -I/usr/local/cuda/include
//       deepstream_parser.cpp -o libeffdet_parser.so     (one line)
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "nvdsinfer_custom_impl.h"

extern "C" bool NvDsInferParseEffdet(
    std::vector<NvDsInferLayerInfo> const& outputLayersInfo,
    NvDsInferNetworkInfo const& networkInfo,
    NvDsInferParseDetectionParams const& detectionParams,
    std::vector<NvDsInferObjectDetectionInfo>& objectList) {
  auto buffer = [&](const char* name) -> const void* {
    for (const NvDsInferLayerInfo& layer : outputLayersInfo) {
      if (std::strcmp(layer.layerName, name) == 0) return layer.buffer;
    }
    return nullptr;
  };
  auto count = static_cast<const std::int32_t*>(buffer("num_detections"));
  auto boxes = static_cast<const float*>(buffer("detection_boxes"));
  auto scores = static_cast<const float*>(buffer("detection_scores"));
  auto classes = static_cast<const std::int32_t*>(buffer("detection_classes"));
  if (!count || !boxes || !scores || !classes) return false;
  const float width = static_cast<float>(networkInfo.width);
  const float height = static_cast<float>(networkInfo.height);
  for (std::int32_t i = 0; i < *count; ++i) {
    const auto label = static_cast<std::uint32_t>(classes[i]);
    if (label >= detectionParams.numClassesConfigured ||
        scores[i] < detectionParams.perClassPreclusterThreshold[label]) {
      continue;
    }
    const float* box = boxes + 4 * i;  // x_min, y_min, x_max, y_max in pixels
    const float left = std::min(std::max(box[0], 0.0f), width);
    const float top = std::min(std::max(box[1], 0.0f), height);
    const float right = std::min(std::max(box[2], 0.0f), width);
    const float bottom = std::min(std::max(box[3], 0.0f), height);
    if (right <= left || bottom <= top) continue;
    NvDsInferObjectDetectionInfo object = {};
    object.classId = label;
    object.left = left;
    object.top = top;
    object.width = right - left;
    object.height = bottom - top;
    object.detectionConfidence = scores[i];
    objectList.push_back(object);
  }
  return true;
}

CHECK_CUSTOM_PARSE_FUNC_PROTOTYPE(NvDsInferParseEffdet);
