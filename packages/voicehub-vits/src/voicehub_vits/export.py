"""Directories that plain transformers loads and speaks with."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.processors import progress_bars
from voicehub_vits.network import weight_norm

if TYPE_CHECKING:
    from voicehub_vits.model import VitsTTS

VOICES_FILE = "voices.json"


def export_transformers(wrapper: VitsTTS, directory: Path) -> None:
    """Write weights, config and tokenizer to ``directory``.

    It then loads with ``VitsModel.from_pretrained`` and ``pipeline("text-to-speech")``, without
    VoiceHub. The model is not changed: what is written has plain weights in the decoder, and the
    sums of speaker and language embeddings become the rows of its speaker table, which
    ``voices.json`` lists.

    Raises:
        ConfigurationError: languages cannot be folded into the speaker table.
        CheckpointError: the directory cannot be written.
    """
    from transformers import VitsModel

    state, rows = fold_languages(wrapper, weight_norm.plain_state(wrapper.model))
    config = copy.deepcopy(wrapper.vits_config)
    table = state.get("embed_speaker.weight")
    config.num_speakers = 1 if table is None else len(table)
    with torch.random.fork_rng(devices=()):
        model = VitsModel(config)
    model.load_state_dict(state)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with progress_bars(shown=False):
            model.save_pretrained(directory)
            wrapper.front_end.save(directory)
        if rows:
            _write_voices(directory / VOICES_FILE, rows)
    except OSError as error:
        raise CheckpointError(f"Cannot write the export to {directory}: {error}") from error


def fold_languages(
    wrapper: VitsTTS, state: dict[str, Tensor]
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Replace speaker and language tables by one table over the pairs that training has seen.

    Args:
        wrapper: whose voices are meant.
        state: of its model.

    Returns:
        The state, and what each row of its speaker table stands for; no rows where the model has
        one voice.

    Raises:
        ConfigurationError: it is not known which pairs there are.
    """
    voices = wrapper.voices
    speakers = state.get("embed_speaker.weight")
    if not voices.languages:
        names = voices.speakers if speakers is not None else ()
        return state, [{"speaker_id": row, "speaker": name} for row, name in enumerate(names)]
    if not voices.pairs:
        raise ConfigurationError(
            f"The model has {len(voices.languages)} languages, but not which speaker speaks which: "
            "VitsModel knows a speaker table alone, so the pairs must be known to fold them into "
            "it. Train with a manifest that names speaker and language, or save without a native "
            "export."
        )
    languages = state.pop("embed_language.weight")
    made = [
        languages[language] if speakers is None else speakers[speaker] + languages[language]
        for speaker, language in voices.pairs
    ]
    # VitsModel reads its table only where it has two rows.
    state["embed_speaker.weight"] = torch.stack(made if len(made) > 1 else made * 2)
    return state, [
        {
            "speaker_id": row,
            "speaker": voices.speakers[speaker] if voices.speakers else None,
            "language": voices.languages[language],
        }
        for row, (speaker, language) in enumerate(voices.pairs)
    ]


def _write_voices(path: Path, rows: list[dict[str, Any]]) -> None:
    text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
