"""Who says what: a pure function of the seed and the amount asked for.

The plan is made before anything is spoken, so that it can be tested without a synthesiser and
so that the synthesiser is only ever given a fixed list of utterances in a fixed order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voicehub.errors import ConfigurationError
from voicehub_data.synthetic.grammar import SentenceSource, vocabulary
from voicehub_data.synthetic.voices import TRAINING_VOICES, UNSEEN_VOICES, Voice

SPLITS: tuple[str, ...] = ("train", "eval_sentences", "eval_voices")
EVALUATION_SHARE = 0.125
"""Length of each evaluation split as a share of the training audio."""

_SECONDS_PER_CHARACTER = 0.0535  # measured over these voices at 170 words per minute
_SECONDS_AROUND = 0.2
_LONGEST_MINUTES = 240.0


@dataclass(frozen=True)
class Utterance:
    """One sentence by one voice.

    Attributes:
        id: unique in the corpus, also the stem of the audio file.
        split: one of ``SPLITS``.
        text: lower-case words.
        voice: who speaks; ``rate`` and ``pitch`` are that voice's, moved a little.
        rate: words per minute.
        pitch: 0 to 100.
        gain_db: level, in decibels at or under 0.
    """

    id: str
    split: str
    text: str
    voice: Voice
    rate: int
    pitch: int
    gain_db: float

    @property
    def estimated_seconds(self) -> float:
        """Expected length; the plan needs it before the sentence has been spoken."""
        return _SECONDS_AROUND + _SECONDS_PER_CHARACTER * len(self.text) * 170.0 / self.rate


@dataclass(frozen=True)
class CorpusPlan:
    """All utterances of a corpus in the order in which they are spoken."""

    seed: int
    minutes: float
    utterances: tuple[Utterance, ...]

    def of(self, split: str) -> tuple[Utterance, ...]:
        """The utterances of one split."""
        return tuple(u for u in self.utterances if u.split == split)


def plan_corpus(*, minutes: float = 20.0, seed: int = 0) -> CorpusPlan:
    """Draw the sentences and voices of a corpus.

    Args:
        minutes: of training audio, about; each evaluation split adds an eighth of it.
        seed: of every draw.

    Returns:
        The plan. No text of an evaluation split occurs in training, every word of an evaluation
        text does, and the voices of ``eval_voices`` occur nowhere else.

    Raises:
        ConfigurationError: ``minutes`` is outside (0, 240] or too short to hold every word.
    """
    if not 0.0 < minutes <= _LONGEST_MINUTES:
        raise ConfigurationError(
            f"minutes={minutes!r} is not possible: give more than 0 and at most "
            f"{_LONGEST_MINUTES:g} minutes of training audio"
        )
    seconds = minutes * 60.0
    held_out: set[str] = set()
    evaluation: list[Utterance] = []
    for split, voices in (("eval_sentences", TRAINING_VOICES), ("eval_voices", UNSEEN_VOICES)):
        drawn = _draw(split, seed, voices, seconds * EVALUATION_SHARE, refused=held_out, once=True)
        evaluation.extend(drawn)
        held_out.update(utterance.text for utterance in drawn)
    train = _draw("train", seed, TRAINING_VOICES, seconds, refused=held_out, once=False)
    _require_known_words(train, evaluation, minutes)
    return CorpusPlan(seed, minutes, (*train, *evaluation))


def _draw(
    split: str,
    seed: int,
    voices: Sequence[Voice],
    seconds: float,
    *,
    refused: set[str],
    once: bool,
) -> list[Utterance]:
    """Utterances of ``split`` until their estimated lengths reach ``seconds``."""
    generator = random.Random(f"voicehub synthetic corpus, {split}, {seed}")
    turns = _turns(voices, generator)
    sentences = SentenceSource(generator)
    taken: set[str] = set()
    utterances: list[Utterance] = []
    total = 0.0
    while total < seconds:
        text = sentences.draw()
        if text in refused or (once and text in taken):
            continue
        taken.add(text)
        voice = next(turns)
        utterance = Utterance(
            id=f"{split}-{len(utterances):05d}-{voice.name}",
            split=split,
            text=text,
            voice=voice,
            rate=round(voice.rate * generator.uniform(0.92, 1.08)),
            pitch=max(0, min(100, voice.pitch + generator.randint(-5, 5))),
            gain_db=round(generator.uniform(-9.0, -1.0), 2),
        )
        utterances.append(utterance)
        total += utterance.estimated_seconds
    return utterances


def _turns(voices: Sequence[Voice], generator: random.Random) -> Iterator[Voice]:
    """Each voice equally often, in an order shuffled anew for every round."""
    while True:
        order = list(voices)
        generator.shuffle(order)
        yield from order


def _require_known_words(
    train: Sequence[Utterance], evaluation: Sequence[Utterance], minutes: float
) -> None:
    known = {word for utterance in train for word in utterance.text.split()}
    used = {word for utterance in evaluation for word in utterance.text.split()}
    missing = sorted((used | set(vocabulary())) - known)
    if missing:
        raise ConfigurationError(
            f"minutes={minutes:g} is too short: no training sentence holds "
            f"{', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}. "
            "Ask for more minutes."
        )
