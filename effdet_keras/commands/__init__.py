"""The subcommands of `effdet-keras`.

Each command is a file with its flags (`add_parser`) and what it does with them (`run`).
Importing these files is quick: only `run` imports Keras, TensorFlow and the work
itself, which is in the files beside them.
"""
