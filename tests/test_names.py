"""Names are those of Keras, COCO, the papers and plain Python; invented ones stay out.

CONTRIBUTING.md says why. A name that is on this list by accident, because it is the
common term for something new, may leave it.
"""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "effdet_keras"

# Each with what to write in its place. Functions, classes, arguments and attributes.
NAMES = {
    "goes_on": "apply_update",
    "is_fine": "is_finite",
    "stays": "keep_statistics",
    "mends": "loss_scale_can_recover",
    "settled": "final_statistics",
    "for_optimizer": "transform_gradients",
    "joined": "concat_...: say of what",
    "parted": "split_...",
    "assign_parted": "assign_from_flat",
    "moved_statistics": "batch_norm_statistics",
    "rate_of_statistics": "one_minus_momentum",
    "give_statistics": "batch_statistics_hook",
    "left_out_steps_move_statistics": "skipped_steps_update_statistics",
    "is_given_batches": "receives_batches",
    "making_function": "function_build_scope",
    "watched": "wrap_train_function",
    "predicting": "wrap_predict_function",
    "data_of_fit": "distribute_fit_data",
    "of_parts": "a noun first",
    "of_fit": "a noun first",
    "of_step": "a noun first",
    "Place": "TrainingPosition",
    "PlaceKeeper": "PositionTracker",
    "FromPlaceOn": "SkipUntilPosition",
    "say_where": "print_resume_message",
    "passes_of": "find_image_readers",
    "others_in": "user_callbacks",
    "swaps": "ema_callbacks",
    "let_go": "close",
    "let_go_afterwards": "closing",
    "open_recipe": "requested_recipe",
    "chosen_by_fit": "auto_fields",
    "Facts": "TrainingFacts",
    "Choice": "AutoChoice",
    "adopt": "commit",
    "settle": "finish_load",
    "descend": "assign_sub_scaled",
    "half_square": "l2_loss",
    "at_places": "take_grid",
    "claims": "force_matched",
    "favorite": "best_anchor",
    "in_fractions": "normalized_coordinates",
    "divide_by": "normalizer",
    "taps": "feature_blocks",
    "KeptByFields": "FieldSerializable",
    "plain": "to_jsonable",
    "replacing": "atomic_write",
    "seal": "write_checksum",
    "new_folder": "atomic_folder",
    "HALF_WRITTEN": "TEMPORARY_NAME",
    "alone": "single_process",
    "OneProcess": "SingleProcess",
    "why_low": "diagnose_low_ap",
    "found_in": "detect_batch",
    "Prepared": "PreprocessedImage",
    "ahead": "prefetch_map",
    "pixels_of": "load_rgb",
    "undone": "unsupported",
    "theirs": "say whose: imported, ...",
    "configured": "build_configuration",
    "base_of": "base_configuration",
    "check_free": "check_empty",
    "OF_A_RUN": "RUN_FILES",
    "finished_outputs": "postprocess_outputs",
    "nothing_found": "empty_detections",
    "OfAnother": "MixWithOther",
    "Sometimes": "RandomApply",
    "tidy": "sanitize_boxes",
    "taught": "distillation_scope",
    "beside": "distillation_loss",
    "Noting": "RangeObserver",
    "stand_ins_within": "substituted_variables",
    "EpochLines": "EpochLogger",
    "Trackers": "LossMetrics",
    "Part": "one word for one thing: hook, run component, shard, weight group",
}

# Of messages, comments and docstrings.
PHRASES = {
    "learns small differences": "higher AP on classes that look alike",
    "statistics keep up with": "batch-norm momentum is ramped up during warm-up",
    "can have any gradient": "gradients of small batches are noisy",
    "as they are judged": "the measure of AP",
    "fault of the program": "internal error",
    "All is done": "Run is complete",
    "it says nothing": "(no output on stderr)",
    "nothing is written over it": "is not overwritten",
    "start new": "keep their initial values",
    "its bytes are not those": "checksum mismatch",
    "are now too good": "metrics are optimistic",
    "others took their place": "replaced by other images",
    "lost another process": "another worker died or is unreachable",
    "flags count more": "flags override the file",
    "what has no place here": "unsupported options",
}


def _names(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            # An old name that warns is there for one release.
            if "warn_of_old_name" not in ast.unparse(node):
                yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno


def invented(text):
    """`line: name -> what to write` of each name and phrase in a Python file."""
    found = [
        f"{line}: {name} -> {NAMES[name.lstrip('_')]}"
        for name, line in _names(ast.parse(text))
        if name.lstrip("_") in NAMES
    ]
    return found + [
        f"{i}: {phrase!r} -> {better!r}"
        for i, line in enumerate(text.splitlines(), 1)
        for phrase, better in PHRASES.items()
        if phrase in line
    ]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_a_file_has_no_invented_name(path):
    assert invented(path.read_text(encoding="utf-8")) == []


def test_an_invented_name_is_found():
    text = "def pixels_of(alone):\n    self._ahead = 1\n    print('All is done')\n"
    assert [line.partition(" ->")[0] for line in invented(text)] == [
        "1: pixels_of",
        "1: alone",
        "2: _ahead",
        "3: 'All is done'",
    ]
