"""Losses that several families need; each is an operator of torch with its own tests."""
