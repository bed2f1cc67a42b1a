"""Sentences of the synthetic corpus: strings of digits and short commands of a household.

A small grammar instead of a list, so that sentences can be held out by the hundred while each
word of theirs still occurs in training.
"""

from __future__ import annotations

import random
import re

_RULES: dict[str, tuple[str, ...]] = {
    "digit": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "number": ("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "side": ("front", "back", "left", "right"),
    "opening": ("door", "window", "gate"),
    "room": ("kitchen", "bedroom", "garden", "hall"),
    "appliance": ("light", "heater", "radio", "fan"),
    "clock": ("timer", "alarm"),
    "unit": ("seconds", "minutes", "hours"),
    "person": ("mother", "father", "doctor", "teacher"),
    "when": ("now", "today", "tomorrow", "tonight"),
    "medium": ("song", "message", "story"),
    "order": ("first", "next", "last"),
    "way": ("up", "down", "left", "right"),
    "vessel": ("cups", "bottles", "glasses"),
    "drink": ("water", "coffee", "milk", "juice"),
    "colour": ("red", "green", "blue", "yellow"),
}

_DIGIT_TEMPLATES: tuple[str, ...] = (
    "{digit} {digit} {digit}",
    "{digit} {digit} {digit} {digit}",
    "{digit} {digit} {digit} {digit} {digit}",
    "{digit} {digit} {digit} {digit} {digit} {digit}",
    "dial {digit} {digit} {digit} {digit}",
)

_COMMAND_TEMPLATES: tuple[str, ...] = (
    "open the {side} {opening} {when}",
    "close the {side} {opening} {when}",
    "lock the {room} {opening} {when}",
    "turn on the {room} {appliance}",
    "turn off the {colour} {appliance} in {number} {unit}",
    "set the {clock} to {number} {unit}",
    "play the {order} {medium} {when}",
    "stop the {clock} in {number} {unit}",
    "move {way} {number} steps {when}",
    "look {way} and turn {way} {when}",
    "call my {person} {when}",
    "send the {order} {medium} to my {person}",
    "bring {number} {vessel} of {drink}",
    "put the {drink} in the {colour} {vessel}",
)

DIGIT_SHARE = 0.3
"""Share of the sentences that are strings of digits; the rest are commands."""

_SLOT = re.compile(r"\{(\w+)\}")


class SentenceSource:
    """Draws sentences in which every template, and every word of a slot, comes up equally often.

    Each list of choices is a deck that is dealt out and shuffled again, since independent draws
    leave some words of a small corpus unheard.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._decks: dict[str, list[str]] = {}

    def draw(self) -> str:
        """One lower-case sentence of three to eight words, without punctuation."""
        if self._generator.random() < DIGIT_SHARE:
            template = self._deal("digit templates", _DIGIT_TEMPLATES)
        else:
            template = self._deal("command templates", _COMMAND_TEMPLATES)
        return _SLOT.sub(lambda slot: self._deal(slot[1], _RULES[slot[1]]), template)

    def _deal(self, name: str, choices: tuple[str, ...]) -> str:
        deck = self._decks.setdefault(name, [])
        if not deck:
            deck.extend(choices)
            self._generator.shuffle(deck)
        return deck.pop()


def vocabulary() -> tuple[str, ...]:
    """Every word that a sentence can hold, sorted."""
    words: set[str] = set()
    for template in (*_DIGIT_TEMPLATES, *_COMMAND_TEMPLATES):
        words.update(_SLOT.sub(" ", template).split())
        for slot in _SLOT.findall(template):
            words.update(_RULES[slot])
    return tuple(sorted(words))
