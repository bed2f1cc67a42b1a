"""How weights move: parameter groups, optimizers, schedules, finite checks."""
