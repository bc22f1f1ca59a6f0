"""Sharing: a model as a repository of the Hugging Face Hub."""
