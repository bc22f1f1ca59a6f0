"""Selects the images to label next, with a detector's boxes for the labelling tool."""
