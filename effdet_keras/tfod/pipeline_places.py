"""The fields of a `pipeline.config` that have no place in a run, and why.

docs/migrating_from_tfod.md has the same for people. A field is found here by the end of
its path, or by the end of the path of a message that it is in; the longest counts.
"""

from __future__ import annotations

# Here they make no difference: nothing is told.
SILENT = (
    *("depth_multiplier", "min_depth", "pad_to_multiple", "use_explicit_padding"),
    *("feature_extractor.use_depthwise", "num_layers"),
    "replace_preprocessor_with_placeholder",
    *("conv_hyperparams.regularize_depthwise", "conv_hyperparams.op"),
    *("batch_norm.center", "batch_norm.scale"),
    *("batch_norm.train", "use_matmul_gather"),
    "similarity_calculator.iou_similarity",
    *("min_num_negative_samples", "desired_negative_sampling_ratio"),
    *("encode_background_as_zeros", "inplace_batchnorm_update"),
    *("return_raw_detections_during_predict", "use_static_shapes"),
    "use_native_resize_op",
    *("sync_replicas", "replicas_to_aggregate", "startup_delay_steps"),
    *("max_number_of_boxes", "unpad_groundtruth_tensors", "anchorwise_output"),
    *("batch_queue_capacity", "num_batch_queue_threads", "prefetch_queue_capacity"),
    *("fine_tune_checkpoint_version", "retain_original_images"),
    "normalize_coordinates",
    *("keypoint_flip_permutation", "keypoint_rot_permutation"),
    "dropout_keep_probability",
    *("num_visualizations", "min_score_threshold", "max_num_boxes_to_visualize"),
    *("skip_scores", "skip_labels", "visualize_groundtruth_boxes"),
    *("groundtruth_box_visualization_color", "visualization_export_dir"),
    *("keep_image_id_for_visualization_export", "export_path", "ignore_groundtruth"),
    *("save_graph", "eval_master", "include_metrics_per_category"),
    *("summarize_gradients", "keypoint_edge"),
    *("retain_original_image_additional_channels", "eval_input_reader.label_map_path"),
    *("shuffle", "shuffle_buffer_size", "filenames_shuffle_buffer_size"),
    *("eval_input_reader.num_epochs", "train_input_reader.num_epochs"),
    *("num_readers", "num_parallel_batches", "num_prefetch_batches"),
    *("read_block_length", "queue_capacity", "min_after_dequeue", "prefetch_size"),
    *("num_parallel_map_calls", "use_display_name", "include_source_id"),
    *("train_input_reader.name", "eval_input_reader.name", "mask_type"),
    *("num_keypoints", "keypoint_type_weight"),
)

# Path: the value with which it does what is done here (None: there is none), and why
# there is no place for others.
NO_PLACE = {
    "num_classes": (None, "the classes are those of the dataset"),
    "resize_method": ("BILINEAR", "always bilinear"),
    "convert_to_grayscale": ("false", "the network has three channels"),
    "conv_hyperparams.initializer": (
        None,
        "weights are initialised as in google/automl",
    ),
    "conv_hyperparams.group_norm": (None, "batch norm only"),
    "conv_hyperparams.force_use_bias": ("true", "BiFPN and heads have biases"),
    "kernel_size": ("3", "always 3"),
    "box_code_size": ("4", "always 4"),
    "class_prediction_bias_init": ("-4.6", "always -4.595: a probability of 0.01"),
    "use_dropout": ("false", "see `survival_prob`"),
    "share_prediction_tower": ("false", "class and box heads are two"),
    "apply_conv_hyperparams_pointwise": (
        "false",
        "the heads' pointwise kernels do not decay",
    ),
    "apply_conv_hyperparams_to_heads": (
        "false",
        "the heads' last layers do not decay",
    ),
    "similarity_calculator": (None, "always IoU"),
    "hard_example_miner": (None, "the focal loss takes all anchors"),
    "random_example_sampler": (None, "the focal loss takes all anchors"),
    "equalization_loss": (None, "not here"),
    "expected_loss_weights": ("NONE", "the focal loss takes all anchors"),
    "add_background_class": ("false", "there is no background class"),
    "explicit_background_class": ("false", "there is no background class"),
    "use_confidences_as_targets": ("false", "not here"),
    "implicit_example_weight": ("1", "not here"),
    "mask_head_config": (None, "boxes only"),
    "score_converter": ("SIGMOID", "always sigmoid"),
    "logit_scale": ("1", "not here"),
    "calibration_config": (None, "not here"),
    "change_coordinate_frame": ("true", "boxes are relative to the image"),
    "max_classes_per_detection": ("1", "see `pre_nms_top_k` of `postprocess`"),
    "merge_multiple_label_boxes": ("false", "give the box once with each label"),
    "use_multiclass_scores": ("false", "not here"),
    "load_all_detection_checkpoint_vars": (
        "false",
        "see `skip_mismatch` of `load_pretrained`",
    ),
    "keep_checkpoint_every_n_hours": (
        None,
        "the best and the last checkpoint are kept; more with `keep_every_hours`",
    ),
    "use_bfloat16": (
        "false",
        "only on TPUs there; half precision is `precision`, `mixed_bfloat16`",
    ),
    "min_learning_rate": ("0", "not here"),
    "eval_config.metrics_set": (
        "coco_detection_metrics",
        "a run has COCO's numbers; `effdet-keras eval` has Pascal VOC's",
    ),
    "eval_config.batch_size": (None, "evaluation has batches of `batch_size`"),
    "eval_config.num_examples": (None, "all images of the split are evaluated on"),
    "eval_config.max_evals": (None, "see `evaluate_every`"),
    "eval_config.eval_interval_secs": (None, "`evaluate_every` counts epochs"),
    "eval_config.eval_instance_masks": ("false", "boxes only"),
    "eval_config.recall_lower_bound": ("0", "the whole curve"),
    "eval_config.recall_upper_bound": ("1", "the whole curve"),
    "tf_record_input_reader": (None, "the data is that which is given: DATA"),
    "external_input_reader": (None, "the data is that which is given: DATA"),
    "train_input_reader.sample_1_of_n_examples": ("1", "all images are trained on"),
    "eval_input_reader.sample_1_of_n_examples": ("1", "all images are evaluated on"),
    "load_instance_masks": ("false", "boxes only"),
    "num_additional_channels": ("0", "the network has three channels"),
    "input_type": ("TF_EXAMPLE", "the data is that which is given: DATA"),
    "load_multiclass_scores": ("false", "not here"),
    "load_context_features": ("false", "not here"),
    "load_dense_pose": ("false", "boxes only"),
    "expand_labels_hierarchy": ("false", "not here"),
}

# Those of them that change no training and no detection: told, and no more.
NOTED = {
    *("num_classes", "conv_hyperparams.initializer"),
    *("conv_hyperparams.force_use_bias", "load_all_detection_checkpoint_vars"),
    *("keep_checkpoint_every_n_hours", "use_bfloat16"),
    *("eval_config.metrics_set", "eval_config.batch_size", "eval_config.num_examples"),
    *("eval_config.max_evals", "eval_config.eval_interval_secs"),
    *("eval_config.eval_instance_masks", "eval_config.recall_lower_bound"),
    *("eval_config.recall_upper_bound", "eval_input_reader.sample_1_of_n_examples"),
    *("tf_record_input_reader", "external_input_reader", "input_type"),
    *("load_instance_masks", "load_dense_pose"),
}

# Those that change what a trained model detects.
OF_DETECTION = {
    *("resize_method", "convert_to_grayscale", "num_additional_channels"),
    *("conv_hyperparams.group_norm", "kernel_size", "box_code_size"),
    *("share_prediction_tower", "explicit_background_class", "mask_head_config"),
    *("score_converter", "logit_scale", "calibration_config"),
    *("max_classes_per_detection", "change_coordinate_frame"),
}


def place_of(path: str) -> str | None:
    """The entry of `SILENT` or `NO_PLACE` that a field falls under; None without one.

    Example:
        >>> place_of("model.ssd.feature_extractor.conv_hyperparams.initializer.x.mean")
        'conv_hyperparams.initializer'
        >>> place_of("model.ssd.nonsense") is None
        True
    """
    found = [n for n in (*SILENT, *NO_PLACE) if f".{n}." in f".{path}."]
    return max(found, key=len, default=None)


def is_as_here(value: str, same: str | None) -> bool:
    """Whether a value is the one with which a field does what is done here.

    Example:
        >>> is_as_here("-4.60", "-4.6"), is_as_here("true", "false")
        (True, False)
    """
    if same is None:
        return False
    try:
        return float(value) == float(same)
    except ValueError:
        return value.lower() == same.lower()
