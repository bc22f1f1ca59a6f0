"""How much more images would gain: trainings on parts of a dataset, and a power law."""
