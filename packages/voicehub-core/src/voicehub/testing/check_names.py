"""The checks of the kit, in the order they run, and what each shows."""

from __future__ import annotations

#: Name of each check to what it checks; ``voicehub.testing.checks`` has a function of each name.
DESCRIPTIONS = {
    "spec": "the spec loads without a tensor library",
    "gradients": "gradients reach every trainable parameter",
    "ownership": "every trainable parameter has exactly one owner",
    "update": "one update changes exactly what it should",
    "frozen": "frozen parts stay bit-identical, and in eval mode",
    "evaluation": "evaluation leaves weights and random state alone",
    "checkpoint": "a checkpoint resumes bit-exactly",
    "export": "the exported artifact reloads and gives equal outputs",
    "accumulation": "an update does not depend on how its batch was split",
    "two_processes": "two processes make the updates of one",
    "padding_mates": "an item's loss and gradient do not depend on its batch mates",
    "padding_garbage": "what stands in the padding does not matter",
    "lengths": "computed output lengths are the real ones",
    "sample_rate": "audio of another rate is refused or resampled",
    "workers": "batches do not depend on the number of workers",
    "learning": "training lowers the loss, and does not with shuffled targets",
}

CHECKS = tuple(DESCRIPTIONS)
