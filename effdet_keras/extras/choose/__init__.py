"""The best model, size and precision within limits of time and size of the file."""
