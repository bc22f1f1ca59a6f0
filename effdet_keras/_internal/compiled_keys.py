"""Keys of a compiled model's config in files; `train` writes, `weights` reads them."""

# The dtype policy of the trained model: the process' own, or the model's.
DTYPE_POLICY = "dtype_policy"
# The number of steps that the optimizer in the same file has done.
STEPS_DONE = "steps_done"
