"""Detection with what is there: a live model or an exported file."""
