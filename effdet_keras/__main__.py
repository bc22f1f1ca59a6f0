"""`python -m effdet_keras`: the `effdet-keras` command."""

import sys

from effdet_keras.cli import console

if __name__ == "__main__":
    sys.exit(console())
