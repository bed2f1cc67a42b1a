"""Encoders of transformers without a head: what each is made of, and loading one.

Importing this module loads neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_hf.checkpoint_config import read_config_dict
from voicehub_hf.loading import checkpoint_source, override_settings, refuse_pickles
from voicehub_hf.pretrained_weights import load_weights, require_nothing_drawn
from voicehub_hf.processors import progress_bars


@dataclass(frozen=True, slots=True)
class SpeechEncoder:
    """One encoder class of transformers.

    Attributes:
        model_type: ``model_type`` of its ``config.json``.
        architecture: class name of the encoder.
        stored_in: class that reads it out of checkpoints which hold more, and the attribute that
            holds it there; None where ``architecture`` reads them itself.
        feature_extractor_class: class name.
        input_kind: ``waveform``: samples go in; ``frames``: (batch, frames, bins);
            ``bins``: (batch, bins, frames), always as many frames as it was trained with.
        layers: path of the list of layers.
        final_norm: path of a normalisation behind the last layer.
        front_end: paths of what turns the input into the first hidden states.
        lora_targets: suffixes of the query and value projections.
    """

    model_type: str
    architecture: str
    stored_in: tuple[str, str] | None
    feature_extractor_class: str
    input_kind: Literal["waveform", "frames", "bins"]
    layers: str
    final_norm: str | None
    front_end: tuple[str, ...]
    lora_targets: tuple[str, ...]

    @property
    def input_name(self) -> str:
        """Keyword of ``forward`` that takes the batch."""
        return "input_values" if self.input_kind == "waveform" else "input_features"


def _waveform(model_type: str, stem: str) -> SpeechEncoder:
    return SpeechEncoder(
        model_type=model_type,
        architecture=f"{stem}Model",
        stored_in=None,
        feature_extractor_class="Wav2Vec2FeatureExtractor",
        input_kind="waveform",
        layers="encoder.layers",
        final_norm="encoder.layer_norm",
        front_end=("feature_extractor",),
        lora_targets=("q_proj", "v_proj"),
    )


#: By the ``model_type`` of transformers.
SPEECH_ENCODERS: dict[str, SpeechEncoder] = {
    encoder.model_type: encoder
    for encoder in (
        _waveform("wav2vec2", "Wav2Vec2"),
        _waveform("hubert", "Hubert"),
        _waveform("wavlm", "WavLM"),
        SpeechEncoder(
            model_type="whisper",
            architecture="WhisperEncoder",
            stored_in=("WhisperForAudioClassification", "encoder"),
            feature_extractor_class="WhisperFeatureExtractor",
            input_kind="bins",
            layers="layers",
            final_norm="layer_norm",
            front_end=("conv1", "conv2"),
            lora_targets=("q_proj", "v_proj"),
        ),
        SpeechEncoder(
            model_type="wav2vec2-bert",
            architecture="Wav2Vec2BertModel",
            stored_in=None,
            feature_extractor_class="SeamlessM4TFeatureExtractor",
            input_kind="frames",
            layers="encoder.layers",
            final_norm=None,
            front_end=("feature_projection",),
            lora_targets=("linear_q", "linear_v"),
        ),
        SpeechEncoder(
            model_type="parakeet_ctc",
            architecture="ParakeetEncoder",
            stored_in=("ParakeetForCTC", "encoder"),
            feature_extractor_class="ParakeetFeatureExtractor",
            input_kind="frames",
            layers="layers",
            final_norm=None,
            front_end=("subsampling",),
            lora_targets=("q_proj", "v_proj"),
        ),
        SpeechEncoder(
            model_type="granite_speech5_ctc",
            architecture="GraniteSpeech5Encoder",
            stored_in=("GraniteSpeech5ForCTC", "encoder"),
            feature_extractor_class="GraniteSpeech5FeatureExtractor",
            input_kind="frames",
            layers="layers",
            final_norm=None,
            front_end=("input_linear",),
            lora_targets=("q_proj", "v_proj"),
        ),
    )
}


class EncoderParts(NamedTuple):
    """What a checkpoint says of its encoder besides the weights.

    Attributes:
        config: of transformers; holds the commit of a Hub checkpoint as ``_commit_hash``.
        feature_extractor: of the checkpoint.
        encoder: the table entry of its type.
    """

    config: Any
    feature_extractor: Any
    encoder: SpeechEncoder


def speech_encoder(model_type: str) -> SpeechEncoder:
    """Return the table entry of a ``model_type`` of transformers.

    Raises:
        ConfigurationError: there is none; the message names those there are.
    """
    if model_type not in SPEECH_ENCODERS:
        raise ConfigurationError(
            f"'{model_type}' is no speech encoder that VoiceHub trains. Known: "
            f"{', '.join(SPEECH_ENCODERS)}.{did_you_mean(model_type, SPEECH_ENCODERS)}"
        )
    return SPEECH_ENCODERS[model_type]


def read_encoder_parts(
    directory_or_id: str | Path,
    *,
    model_type: str,
    revision: str | None = None,
    local_files_only: bool | None = None,
) -> EncoderParts:
    """Read configuration and feature extractor; no weights are read or fetched.

    Args:
        directory_or_id: a local directory, or the id of a repository on the Hugging Face Hub.
        model_type: the type that is expected.
        revision: branch, tag or commit of a Hub id.
        local_files_only: touch no network. By default true for a local directory only.

    Raises:
        ConfigurationError: the checkpoint is of another type.
        CheckpointError: nothing is there.
    """
    import transformers

    source, local = checkpoint_source(directory_or_id, local_files_only)
    fetch: dict[str, Any] = {"revision": revision, "local_files_only": local}
    encoder = speech_encoder(model_type)
    config = _config(source, fetch, encoder)
    extractor_class = getattr(transformers, encoder.feature_extractor_class)
    try:
        extractor = extractor_class.from_pretrained(source, **fetch)
    except OSError as error:
        raise CheckpointError(f"{source} has no feature extractor: {error}") from error
    return EncoderParts(config, extractor, encoder)


def load_speech_encoder(
    directory_or_id: str | Path,
    *,
    model_type: str,
    revision: str | None = None,
    local_files_only: bool | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    dtype: Any = None,
    final_norm: bool = True,
) -> Any:
    """Load the encoder of a checkpoint, in evaluation mode, on the CPU.

    Arguments as for :func:`read_encoder_parts`, and:

    Args:
        config_overrides: settings of the config to replace, such as dropout rates.
        dtype: data type of the weights; float32 by default, which training needs.
        final_norm: False: the encoder ends below its top layer, and nothing normalises there; see
            :func:`voicehub_hf.truncation.drop_top_layers`.

    Raises:
        ConfigurationError: another type, or the config has no setting of that name.
        CheckpointError: nothing is there, or the weights are not in safetensors files.
        CheckpointMismatchError: weights of the encoder are missing or have other shapes.
    """
    import torch

    source, local = checkpoint_source(directory_or_id, local_files_only)
    fetch: dict[str, Any] = {"revision": revision, "local_files_only": local}
    encoder = speech_encoder(model_type)
    config = _config(source, fetch, encoder)
    if Path(source).is_dir():
        refuse_pickles(Path(source))
    override_settings(source, config, config_overrides or {})
    with torch.random.fork_rng(devices=()), progress_bars(shown=not local):
        model, missing = _weights(source, config, encoder, fetch, dtype or torch.float32)
    # The learned mask vector is part of some checkpoints alone, and takes part in nothing here.
    strangers = [name for name in missing if not name.endswith("masked_spec_embed")]
    if not final_norm:
        from voicehub_hf.truncation import remove_final_norm

        remove_final_norm(model, encoder)
        strangers = [name for name in strangers if not name.startswith(f"{encoder.final_norm}.")]
    require_nothing_drawn(source, encoder.architecture, strangers)
    if encoder.model_type == "whisper":
        # Fixed sinusoids; loading loses the mark that they do not train.
        model.embed_positions.requires_grad_(False)
    return model.eval()


def _config(source: str, fetch: dict[str, Any], encoder: SpeechEncoder) -> Any:
    from transformers import AutoConfig

    model_type = read_config_dict(source, **fetch).get("model_type")
    if model_type != encoder.model_type:
        raise ConfigurationError(
            f"{source} holds a model of type '{model_type}', but '{encoder.model_type}' was asked "
            "for; the encoders of one are not those of another."
        )
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **fetch)
    # Parts behind the last hidden state, which is where an encoder ends here.
    for part in ("add_adapter", "use_intermediate_ffn_before_adapter"):
        if getattr(config, part, False):
            setattr(config, part, False)
    return config


def _weights(
    source: str, config: Any, encoder: SpeechEncoder, fetch: dict[str, Any], dtype: Any
) -> tuple[Any, set[str]]:
    import transformers
    from transformers.models.whisper import modeling_whisper

    alone = encoder.architecture in (getattr(config, "architectures", None) or ())
    name, attribute = encoder.architecture, ""
    if encoder.stored_in is not None and not alone:
        name, attribute = encoder.stored_in
    model_class = getattr(transformers, name, None) or getattr(modeling_whisper, name)
    model, drawn = load_weights(model_class, source, config, dtype=dtype, **fetch)
    if attribute:
        drawn = {key for key in drawn if key.startswith(f"{attribute}.")}
        model = getattr(model, attribute)
    return model, drawn
