"""Keys of a compiled model's config in files: `train` writes them, `weights` reads."""

# The dtype policy of the model that was trained: the process' own, or the model's.
DTYPE_POLICY = "dtype_policy"
# The steps that the optimizer in the same file has done.
STEPS_DONE = "steps_done"
