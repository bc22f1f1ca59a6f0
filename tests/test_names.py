"""Names are those of Keras, COCO, the papers and plain Python; invented ones stay out.

CONTRIBUTING.md says why. A name that is on this list by accident, because it is the
common term for something new, may leave it.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "effdet_keras"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Each with what to write in its place. Functions, classes, arguments, attributes and
# names of modules; local variables are not looked at.
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
    "is_open": "is_auto, has_auto_fields",
    "going_on": "say what: survivors, remaining_runs",
    "chosen_by_fit": "auto_fields",
    "Facts": "TrainingFacts",
    "Choice": "AutoChoice",
    "adopt": "commit",
    "settle": "finish_load",
    "descend": "assign_sub_scaled",
    "half_square": "l2_loss",
    "at_places": "take_grid",
    "claims": "force_matched",
    "claimed": "force_matched",
    "favorite": "best_anchor",
    "in_fractions": "normalized_coordinates",
    "divide_by": "normalizer",
    "taps": "feature_blocks",
    "tapped_blocks": "feature_block_indices",
    "KeptByFields": "FieldSerializable",
    "plain": "to_jsonable",
    "replacing": "atomic_write",
    "replacing_together": "atomic_write_all",
    "seal": "write_checksum",
    "local_share": "per_process_batch_size",
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

# Functions, classes and constants are called by a noun or a verb, and not `of_...`.
# These are left; take away what you rename.

# Of messages, comments, docstrings and pages.
PHRASES = {
    "learns small differences": "higher AP on classes that look alike",
    "statistics keep up with": "batch-norm momentum is ramped up during warm-up",
    "can have any gradient": "gradients of small batches are noisy",
    "as they are judged": "the measure of AP",
    "fault of the program": "internal error",
    "All is done": "Run is complete",
    "it says nothing": "(no output on stderr)",
    "nothing is written over it": "is not overwritten",
    "starts new": "keeps its initial values",
    "has no place here, is": "is left out: this model has none",
    "The first takes longer": "compiling the training step",
    "threshold for each box": "an IoU threshold per object",
    "count more than the file": "override the file",
    "small differences between": "classes that look alike",
    "start new": "keep their initial values",
    "its bytes are not those": "checksum mismatch",
    "are now too good": "metrics are optimistic",
    "others took their place": "replaced by other images",
    "lost another process": "another worker died or is unreachable",
    "flags count more": "flags override the file",
    "what has no place here": "unsupported options",
}


def _names(tree):
    yield from _constants(tree)
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


def _constants(tree):
    """What is assigned to in a module or in the body of a class."""
    bodies = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for node in (statement for body in bodies for statement in body.body):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield name.id, name.lineno


def _of_names(tree):
    """Functions, classes and constants whose names begin with `of_`."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    functions = [(n.name, n.lineno) for n in ast.walk(tree) if isinstance(n, kinds)]
    for name, line in [*_constants(tree), *functions]:
        if name.lstrip("_").lower().startswith("of_"):
            yield name, line


def invented(text):
    """`line: name -> what to write` of each name and phrase in a Python file."""
    tree = ast.parse(text)
    found = [
        f"{line}: {name} -> {NAMES[name.lstrip('_')]}"
        for name, line in _names(tree)
        if name.lstrip("_") in NAMES
    ]
    found += [f"{line}: {name} -> a noun first" for name, line in _of_names(tree)]
    return found + invented_phrases(text)


def invented_phrases(text):
    """`line: phrase -> what to write` of each phrase in a text."""
    return [
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


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_has_no_invented_phrase(path):
    assert invented_phrases(path.read_text(encoding="utf-8")) == []


def test_an_invented_constant_is_found():
    text = "_OF_RUN, claims = 1, 2\nclass A:\n    OF_ALL = 3\n    def of_a(self): ...\n"
    assert [line.partition(" ->")[0] for line in invented(text)] == [
        "1: claims",
        "1: _OF_RUN",
        "3: OF_ALL",
        "4: of_a",
    ]
    local = "def count(of_batches):\n    of_images = claims = 1\n"
    assert invented(local) == []
