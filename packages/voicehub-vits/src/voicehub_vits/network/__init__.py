"""The training forward over the modules of transformers' ``VitsModel``."""
