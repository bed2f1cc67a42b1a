"""Persistent changes of the model graph between its set-up and its optimizers."""
