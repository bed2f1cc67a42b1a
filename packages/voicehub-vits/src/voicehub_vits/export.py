"""Directories that plain transformers loads and speaks with."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.processors import progress_bars
from voicehub_vits.network.weight_norm import remove_weight_norm

if TYPE_CHECKING:
    from voicehub_vits.model import VitsTTS

VOICES_FILE = "voices.json"


def export_transformers(wrapper: VitsTTS, directory: Path) -> None:
    """Write weights, config and tokenizer to ``directory``.

    It then loads with ``VitsModel.from_pretrained`` and ``pipeline("text-to-speech")``, without
    VoiceHub. The model is not changed: the decoder's weight norm is removed in a copy, and the
    sums of speaker and language embeddings become the rows of its speaker table, which
    ``voices.json`` lists.

    Raises:
        ConfigurationError: languages cannot be folded into the speaker table.
        CheckpointError: the directory cannot be written.
    """
    model = copy.deepcopy(wrapper.model).cpu()
    remove_weight_norm(model.decoder)
    rows = fold_languages(wrapper, model)
    config = copy.deepcopy(wrapper.vits_config)
    config.num_speakers = model.config.num_speakers
    model.config = config
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with progress_bars(shown=False):
            model.save_pretrained(directory)
            wrapper.front_end.save(directory)
        if rows:
            _write_voices(directory / VOICES_FILE, rows)
    except OSError as error:
        raise CheckpointError(f"Cannot write the export to {directory}: {error}") from error


def fold_languages(wrapper: VitsTTS, model: Any) -> list[dict[str, Any]]:
    """Replace speaker and language tables by one table over the pairs that training has seen.

    Returns:
        What each row of the table stands for; empty where the model has one voice.

    Raises:
        ConfigurationError: it is not known which pairs there are.
    """
    voices = wrapper.voices
    speakers = getattr(model, "embed_speaker", None)
    if not voices.languages:
        names = voices.speakers if speakers is not None else ()
        return [{"speaker_id": row, "speaker": name} for row, name in enumerate(names)]
    if not voices.pairs:
        raise ConfigurationError(
            f"The model has {len(voices.languages)} languages, but not which speaker speaks which: "
            "VitsModel knows a speaker table alone, so the pairs must be known to fold them into "
            "it. Train with a manifest that names speaker and language, or save without a native "
            "export."
        )
    with torch.no_grad():
        made = []
        for speaker, language in voices.pairs:
            row = model.embed_language.weight[language]
            made.append(row if speakers is None else speakers.weight[speaker] + row)
        # VitsModel reads its table only where it has two rows.
        table = torch.stack(made if len(made) > 1 else made * 2)
    del model.embed_language
    model.embed_speaker = nn.Embedding.from_pretrained(table, freeze=False)
    model.config.num_speakers = len(table)
    return [
        {
            "speaker_id": row,
            "speaker": voices.speakers[speaker] if voices.speakers else None,
            "language": voices.languages[language],
        }
        for row, (speaker, language) in enumerate(voices.pairs)
    ]


def _write_voices(path: Path, rows: list[dict[str, Any]]) -> None:
    import json

    text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
