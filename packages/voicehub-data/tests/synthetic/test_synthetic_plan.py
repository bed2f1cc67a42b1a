"""What the corpus plan promises, without speaking a word."""

from __future__ import annotations

from collections import Counter

import pytest

from voicehub.errors import ConfigurationError
from voicehub_data.synthetic.grammar import vocabulary
from voicehub_data.synthetic.plan import SPLITS, plan_corpus
from voicehub_data.synthetic.voices import TRAINING_VOICES, UNSEEN_VOICES


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_evaluation_texts_and_voices_are_held_out(seed: int) -> None:
    plan = plan_corpus(minutes=20, seed=seed)
    texts = {split: {u.text for u in plan.of(split)} for split in SPLITS}
    assert not texts["train"] & (texts["eval_sentences"] | texts["eval_voices"])
    assert not texts["eval_sentences"] & texts["eval_voices"]
    speakers = {split: {u.voice.name for u in plan.of(split)} for split in SPLITS}
    unseen = {voice.name for voice in UNSEEN_VOICES}
    assert speakers["eval_voices"] == unseen
    assert not speakers["train"] & unseen
    assert speakers["eval_sentences"] <= speakers["train"]


def test_size_of_the_default_corpus() -> None:
    plan = plan_corpus()
    assert len(vocabulary()) >= 40
    assert len(TRAINING_VOICES) + len(UNSEEN_VOICES) >= 8
    assert len(UNSEEN_VOICES) == 2
    assert 15 * 60 <= sum(u.estimated_seconds for u in plan.utterances) <= 30 * 60
    words = Counter(word for u in plan.of("train") for word in u.text.split())
    assert set(words) == set(vocabulary())
    assert min(words.values()) >= 5


def test_no_variant_is_shared_by_seen_and_unseen_voices() -> None:
    def variant(espeak_name: str) -> str:
        return espeak_name.partition("+")[2]

    seen = {variant(voice.espeak_name) for voice in TRAINING_VOICES}
    assert not seen & {variant(voice.espeak_name) for voice in UNSEEN_VOICES}


def test_ids_are_unique_and_the_plan_depends_on_the_seed_alone() -> None:
    plan = plan_corpus(minutes=12, seed=3)
    assert len({u.id for u in plan.utterances}) == len(plan.utterances)
    assert plan_corpus(minutes=12, seed=3) == plan
    other = plan_corpus(minutes=12, seed=4)
    assert [u.text for u in other.utterances] != [u.text for u in plan.utterances]


@pytest.mark.parametrize("minutes", [0.0, -1.0, 1e6, float("nan")])
def test_impossible_lengths_are_refused(minutes: float) -> None:
    with pytest.raises(ConfigurationError, match="minutes"):
        plan_corpus(minutes=minutes)


def test_a_corpus_too_short_for_its_words_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="no training sentence holds"):
        plan_corpus(minutes=0.5)
