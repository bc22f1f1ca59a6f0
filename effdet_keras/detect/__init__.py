"""Detection in images and datasets, with any detector."""
