"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub.data.plan import FixedSizePlan
from voicehub.errors import DataError
from voicehub_codec_lm.codecs import AudioCodec, TokenCache, load_codec
from voicehub_codec_lm.config import CharactersTextConfig, CodecLMRunConfig
from voicehub_codec_lm.data import (
    CodecDataset,
    PromptedSplit,
    prompt_split,
)
from voicehub_codec_lm.model import CodecLM
from voicehub_codec_lm.text import CharacterPrompts, PretrainedPrompts, Prompts, load_prompts
from voicehub_data.batching import training_plan
from voicehub_data.splits import SplitRows, read_splits
from voicehub_data.text.spoken import spoken_texts


def build_experiment(config: CodecLMRunConfig) -> Experiment:
    """Read and check the data, encode what is not in the token cache, describe the model.

    No weights of the language model load.

    Raises:
        ConfigurationError: settings contradict each other, the codec or the checkpoint.
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
    """
    data = config.data
    codec = load_codec(config.model.codec)
    train, *evals = read_splits(data, sample_rate=codec.sample_rate)
    prompts = _prompts(config, train)
    splits = [prompt_split(split, prompts, data) for split in (train, *evals)]
    notes = splits[0].report.notes
    notes.append(
        f"prompts: {len(prompts)} tokens; speakers: {len(prompts.speakers) or 'one voice'}"
    )
    if not evals:
        notes.extend(config.evaluate_nothing())
    cache = TokenCache(data.token_cache, codec)
    before = len(cache)
    datasets = [
        CodecDataset(split.rows, split.prompts, cache.fill(split.rows), cache) for split in splits
    ]
    notes.append(
        f"codec: {codec.kind}, {codec.num_codebooks} codebooks of {codec.codebook_size}; "
        f"{len(cache) - before:,} clips encoded, the others were in {cache.directory}"
    )
    model = CodecLM.from_config(
        config.model, prompts, codec, model_type=config.model_type, seed=config.training.seed
    )
    return Experiment(
        model=model,
        train_dataset=datasets[0],
        eval_datasets={s.name: d for s, d in zip(splits[1:], datasets[1:], strict=True)},
        data_collator=model.network.collator(data.pack_steps),
        train_plan=training_plan(
            data.batches, config.training, datasets[0].planning_durations, datasets[0].ids
        ),
        eval_plans={
            split.name: FixedSizePlan(len(dataset), data.eval_batch_size, shuffle=False)
            for split, dataset in zip(splits[1:], datasets[1:], strict=True)
        },
        data_report=[split.report for split in splits],
        record=_record(splits, model, codec),
        next_command=_next_command(splits, prompts.speakers),
    )


# -- prompts ---------------------------------------------------------------------------------


def _prompts(config: CodecLMRunConfig, train: SplitRows) -> Prompts:
    if config.init_from is not None:
        return load_prompts(Path(config.init_from) / "prompts")
    text = config.model.text
    speakers = _speakers(config, train)
    if isinstance(text, CharactersTextConfig):
        texts = spoken_texts(train.rows, config.data.text_normalizer)
        return CharacterPrompts.build(texts, speakers, lower=text.lower)
    assert config.model.path is not None
    fetch = {
        "revision": config.model.revision,
        "local_files_only": config.model.local_files_only or Path(config.model.path).is_dir(),
    }
    return PretrainedPrompts.read(config.model.path, speakers, text.template, **fetch)


def _speakers(config: CodecLMRunConfig, train: SplitRows) -> tuple[str, ...]:
    named = {row.speaker for row in train.rows if row.speaker is not None}
    if config.model.speakers == "never" or (config.model.speakers == "auto" and len(named) < 2):
        return ()
    nameless = [row for row in train.rows if row.speaker is None]
    if nameless:
        raise DataError(
            f"{nameless[0].location} names no speaker, and {len(nameless) - 1} more do not: the "
            "prompt names speakers (model.speakers). Add the column 'speaker', or set "
            "model.speakers=never."
        )
    return tuple(sorted(named))


# -- the record and the end ----------------------------------------------------------------------


def _record(splits: Sequence[PromptedSplit], model: CodecLM, codec: AudioCodec) -> dict[str, Any]:
    return {
        "manifests": {split.name: split.digest for split in splits},
        "started_from": model.config.path,
        "codec": codec.identity(),
        "prompts": {"tokens": len(model.prompts), "sha256": model.prompts.fingerprint()},
    }


def _next_command(splits: Sequence[PromptedSplit], speakers: Sequence[str]) -> Any:
    rows = splits[1].rows if len(splits) > 1 else splits[0].rows

    def command(directory: Path) -> str:
        row = rows[0]
        words = ["voicehub", "synthesize", "--model", str(directory), "--text", row.text]
        if speakers and row.speaker is not None:
            words += ["--speaker", row.speaker]
        return shlex.join([*words, "--out", "speech.wav"])

    return command
