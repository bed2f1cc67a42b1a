"""Sections of the model: encoder, decoder, prompts, generation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from voicehub.trainer.section import Section

#: How weights are stored. What trains must be stored in float32.
Dtype = Literal["float32", "bfloat16", "float16"]


class EncoderConfig(Section):
    """The speech encoder.

    Attributes:
        path: a checkpoint of transformers (Whisper, Granite Speech 5, wav2vec 2.0, HuBERT, WavLM,
            W2V-BERT, Parakeet), by local directory or Hub id, or a recogniser that VoiceHub has
            trained (its directory or run).
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        dtype: how its weights are stored.
        top_layers: where the encoder trains, its last so many layers alone; None trains all.
        exact_padding: utterances of unequal length run apart in encoders whose outputs depend on
            the padding (group normalisation over time).
        learning_rate, weight_decay: of its trained layers; None takes those of ``training``.
    """

    path: str
    revision: str | None = None
    local_files_only: bool = False
    dtype: Dtype = "float32"
    top_layers: int | None = Field(default=None, ge=1)
    exact_padding: bool = True
    learning_rate: float | None = Field(default=None, ge=0)
    weight_decay: float | None = Field(default=None, ge=0)


class LoraConfig(Section):
    """Low-rank adapters of the decoder, in float32.

    Attributes:
        rank, alpha, dropout: as in peft.
        target_modules: ``all-linear``, or suffixes of module names. The output layer has none.
    """

    rank: int = Field(default=64, gt=0)
    alpha: float = Field(default=64, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | list[str] = "all-linear"


class DecoderConfig(Section):
    """The language model.

    Attributes:
        path: any causal language model of transformers, by local directory or Hub id.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        dtype: how its weights are stored.
        attention: kernel of its attention; ``auto`` is torch's where the model can use it,
            ``flash_attention_2`` needs the package flash-attn.
        chat_template: a Jinja template, or a file that holds one, for a tokenizer without.
        lora: adapters; the recipe ``lora`` has them by default.
    """

    path: str
    revision: str | None = None
    local_files_only: bool = False
    dtype: Dtype = "float32"
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    chat_template: str | None = None
    lora: LoraConfig | None = None


class PromptConfig(Section):
    """What the user's turn asks, behind the audio.

    Attributes:
        plain: for transcripts without punctuation.
        punctuated: for transcripts that have it.
        system: the system's turn; empty for none.
        default: which of the two transcription uses; ``auto`` takes ``punctuated`` where any of
            the training data was.
    """

    plain: str = "Transcribe the speech to text"
    punctuated: str = "Transcribe the speech with proper punctuation and capitalization"
    system: str = ""
    default: Literal["auto", "plain", "punctuated"] = "auto"


class GenerationConfig(Section):
    """Limits of transcription.

    Attributes:
        max_new_tokens: of one recording.
        tokens_per_second: at most so many a second of audio, and 16.
        max_repeats: a phrase of up to eight tokens that was said so often in a row ends the text.
        repetition_penalty, no_repeat_ngram_size: as in transformers.
        max_seconds: longer recordings are cut at quiet places into pieces of at most so much.
    """

    max_new_tokens: int = Field(default=256, ge=1)
    tokens_per_second: float = Field(default=25.0, gt=0)
    max_repeats: int = Field(default=6, ge=2)
    repetition_penalty: float = Field(default=1.0, ge=1)
    no_repeat_ngram_size: int = Field(default=0, ge=0)
    max_seconds: float = Field(default=28.0, gt=0.5)
