"""The CTC classes of transformers that VoiceHub trains, and where their parts are.

Importing this module loads neither torch nor transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_hf.lengths import hidden_lengths, minimum_input_length, output_lengths

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "CTC_ENCODERS",
    "CTCEncoder",
    "base_encoder",
    "ctc_encoder",
    "ctc_head",
    "hidden_lengths",
    "minimum_input_length",
    "output_lengths",
    "padding_sensitive",
    "uses_batch_statistics",
]


@dataclass(frozen=True, slots=True)
class CTCEncoder:
    """One CTC class of transformers.

    Attributes:
        model_type: ``model_type`` of its ``config.json``.
        architecture: Class name in transformers.
        processor_kind: ``waveform`` (samples go in) or ``log-mel`` (feature frames go in).
        sample_rate: Hz that published checkpoints of this type use. The rate of a checkpoint is
            its processor's; see :func:`voicehub_hf.features.processor_sample_rate`.
        input_name: Keyword of ``forward`` that takes the batch.
        processor_class, feature_extractor_class: Class names in transformers.
        base_name: Attribute of the CTC model that holds the encoder.
        head_name: Attribute of the CTC model that holds the output layer.
        feature_module: Path, from the encoder, of the module that turns input into the first
            hidden states; masks over hidden states are applied to its output.
        front_end: Paths, from the encoder, that "freeze the feature encoder" means.
        lora_targets: Suffixes of the query and value projections.
        pretrained_architectures: Class names of checkpoints without a CTC head that the encoder
            weights may come from.
    """

    model_type: str
    architecture: str
    processor_kind: Literal["waveform", "log-mel"]
    sample_rate: int
    input_name: Literal["input_values", "input_features"]
    processor_class: str
    feature_extractor_class: str
    base_name: str
    head_name: str
    feature_module: str
    front_end: tuple[str, ...]
    lora_targets: tuple[str, ...]
    pretrained_architectures: tuple[str, ...]

    @property
    def tokenizer_class(self) -> str:
        """Class of the tokenizers that this package builds for the encoder."""
        return "ParakeetTokenizer" if self.model_type == "parakeet_ctc" else "Wav2Vec2CTCTokenizer"


def _waveform(model_type: str, stem: str, *pretrained: str) -> CTCEncoder:
    return CTCEncoder(
        model_type=model_type,
        architecture=f"{stem}ForCTC",
        processor_kind="waveform",
        sample_rate=16000,
        input_name="input_values",
        processor_class="Wav2Vec2Processor",
        feature_extractor_class="Wav2Vec2FeatureExtractor",
        base_name=model_type,
        head_name="lm_head",
        feature_module="feature_projection",
        front_end=("feature_extractor",),
        lora_targets=("q_proj", "v_proj"),
        pretrained_architectures=(f"{stem}Model", *pretrained),
    )


#: By the ``model_type`` of transformers.
CTC_ENCODERS: dict[str, CTCEncoder] = {
    encoder.model_type: encoder
    for encoder in (
        _waveform("wav2vec2", "Wav2Vec2", "Wav2Vec2ForPreTraining"),
        _waveform("hubert", "Hubert"),
        _waveform("wavlm", "WavLM"),
        CTCEncoder(
            model_type="wav2vec2-bert",
            architecture="Wav2Vec2BertForCTC",
            processor_kind="log-mel",
            sample_rate=16000,
            input_name="input_features",
            processor_class="Wav2Vec2BertProcessor",
            feature_extractor_class="SeamlessM4TFeatureExtractor",
            base_name="wav2vec2_bert",
            head_name="lm_head",
            feature_module="feature_projection",
            front_end=("feature_projection",),
            lora_targets=("linear_q", "linear_v"),
            pretrained_architectures=("Wav2Vec2BertModel",),
        ),
        CTCEncoder(
            model_type="parakeet_ctc",
            architecture="ParakeetForCTC",
            processor_kind="log-mel",
            sample_rate=16000,
            input_name="input_features",
            processor_class="ParakeetProcessor",
            feature_extractor_class="ParakeetFeatureExtractor",
            base_name="encoder",
            head_name="ctc_head",
            feature_module="subsampling",
            front_end=("subsampling",),
            lora_targets=("q_proj", "v_proj"),
            pretrained_architectures=(),
        ),
    )
}


def ctc_encoder(source: Any) -> CTCEncoder:
    """Return the table entry of a model type, class name, config or model.

    Args:
        source: A ``model_type`` of transformers (``wav2vec2-bert``), a class name
            (``Wav2Vec2BertForCTC``), a VoiceHub model type (``ctc-wav2vec2-bert``), a config, or
            a model, also one wrapped by peft.

    Raises:
        ConfigurationError: It is none of the five; the message names them.
    """
    name = source
    if not isinstance(source, str):
        name = getattr(getattr(source, "config", source), "model_type", type(source).__name__)
    wanted = str(name).removeprefix("ctc-")
    for encoder in CTC_ENCODERS.values():
        aliases = (encoder.model_type, encoder.architecture, encoder.model_type.split("_")[0])
        if wanted in aliases:
            return encoder
    raise ConfigurationError(
        f"'{name}' is not a CTC model that VoiceHub trains. Known: {', '.join(CTC_ENCODERS)}."
        + did_you_mean(wanted, CTC_ENCODERS)
    )


def unwrapped(model: nn.Module) -> Any:
    """Return the transformers model inside a peft wrapper, or the model itself."""
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def base_encoder(model: nn.Module) -> Any:
    """Return the module below the CTC head (``model.wav2vec2``, ``model.encoder``, ...)."""
    return getattr(unwrapped(model), ctc_encoder(model).base_name)


def ctc_head(model: nn.Module) -> Any:
    """Return the output layer (``model.lm_head``, ``model.ctc_head``)."""
    return getattr(unwrapped(model), ctc_encoder(model).head_name)


def padding_sensitive(config: Any) -> bool:
    """Whether an utterance's outputs change with the padding behind it, in evaluation too.

    True for group normalisation over time (``feat_extract_norm="group"``: the base sizes of
    wav2vec2, HuBERT and WavLM), whose statistics include the padding, and for the subsampling
    convolutions after an encoder (``add_adapter``), which read hidden states of padded frames.
    Such models need batches of utterances of equal length, or one utterance at a time.
    """
    group_norm = getattr(config, "feat_extract_norm", None) == "group"
    return group_norm or bool(getattr(config, "add_adapter", False))


def uses_batch_statistics(config: Any) -> bool:
    """Whether the model normalises over the batch while it trains (Parakeet's BatchNorm).

    Then an utterance's training loss depends on its batch mates and their padding, whatever the
    batch plan; evaluation uses running statistics and does not.
    """
    positional = bool(getattr(config, "conv_pos_batch_norm", False))
    return positional or ctc_encoder(config).model_type == "parakeet_ctc"
