"""Wrapper of LLM recognisers: ``from_config`` over checkpoints, or an artifact of ours."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.suggest import did_you_mean
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.decoders import ChatFormat, DecoderSource, embedding_rms, plain
from voicehub_asr_llm.decoders.chat import Kind, read_template
from voicehub_asr_llm.encoders import EncoderSource, FrontEnd, describe_encoder
from voicehub_asr_llm.evaluating import SeenIds
from voicehub_asr_llm.network import AsrLlmNetwork
from voicehub_asr_llm.projectors import build_projector, calibrate
from voicehub_asr_llm.recogniser import LlmRecogniser
from voicehub_asr_llm.saving import Bases, load_parts, require_identity, save_parts
from voicehub_asr_llm.saving.bases import absolute
from voicehub_asr_llm.saving.parts import held_files, holds_decoder, require_files
from voicehub_asr_llm.specs import MODEL_TYPE
from voicehub_asr_llm.training import mark_trainable
from voicehub_hf.lora import add_lora, merge_lora
from voicehub_hf.processors import progress_bars

if TYPE_CHECKING:
    from voicehub.models.initial import InitialWeights

logger = logging.getLogger(__name__)

RANDOM_PROJECTOR = "(new projector)"


class AsrLlm(LlmRecogniser):
    """A speech encoder, a projector and a language model that writes the transcript.

    An artifact holds what was trained alone. Encoder and decoder are read from where they lay in
    training, and refused where they are others by then.

    Args:
        name_or_path: an artifact of ours; checkpoints come in through ``from_config``.
        arguments: those of the base, and ``encoder`` and ``decoder``: where the bases lie, if not
            where they lay in training.

    Attributes:
        config: of the model.
        punctuated: whether transcription asks for punctuation.
    """

    default_model_type = MODEL_TYPE
    # Loading for training reads the weights again.
    destructive_inference_load = False

    config: AsrLlmModelConfig

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        bases = Bases(arguments.pop("encoder", None), arguments.pop("decoder", None))
        super().__init__(name_or_path, **arguments)
        if self.options:
            name = sorted(self.options)[0]
            hint = did_you_mean(name, ("encoder", "decoder"))
            raise ConfigurationError(f"{self.name_or_path}: unknown option {name!r}.{hint}")
        self.seed = 0
        self._artifact: Path | None = None
        self._stored: dict[str, Any] = {}
        self._carried: frozenset[str] = frozenset()
        directory = Path(self.name_or_path)
        if directory.is_dir() and is_artifact(directory):
            self._read_artifact(directory, bases)

    @classmethod
    def from_config(
        cls,
        config: AsrLlmModelConfig,
        *,
        metric_normalizer: str = "whisper-english-variants",
        seed: int = 0,
        device: str = "cpu",
    ) -> AsrLlm:
        """Build a lazy wrapper with a new projector over two checkpoints.

        Args:
            config: model section of a run.
            metric_normalizer: applied before errors are counted.
            seed: of what is drawn.
            device: where weights load.
        """
        model = cls(config.decoder.path, device=device)
        if model._artifact is not None:
            raise ConfigurationError(
                f"model.decoder.path: {config.decoder.path} holds an LLM recogniser, not a "
                "language model. To go on from it, give it as init_from."
            )
        model.config, model.seed = config, seed
        model.metric_normalizer = metric_normalizer
        model.punctuated = config.prompt.default == "punctuated"
        return model

    def learns_from(self, ids: Iterable[str], *, punctuated: bool) -> None:
        """Say what it will be trained on, which is saved with it.

        Args:
            ids: of the rows; an evaluation on them is refused.
            punctuated: their transcripts have punctuation, which decides how transcription asks
                where ``prompt.default`` is auto.
        """
        self.seen = SeenIds.from_ids(ids)
        if self.config.prompt.default == "auto":
            self.punctuated = punctuated

    def _read_artifact(self, directory: Path, bases: Bases) -> None:
        artifact = read_artifact(directory, self.model_type)
        settings = copy.deepcopy(dict(artifact.model["config"]))
        for part, path in bases._asdict().items():
            if path is not None:
                settings[part]["path"] = str(path)
        self.config = AsrLlmModelConfig.model_validate(settings)
        self._artifact, self._stored = directory, artifact.model
        self.punctuated = bool(artifact.model["punctuated"])
        self.metric_normalizer = str(artifact.model["metric_normalizer"])
        self.seen = SeenIds.load(directory)

    # -- what is known before weights are there -------------------------------------------------

    def _require_config(self) -> AsrLlmModelConfig:
        if not hasattr(self, "config"):
            raise ConfigurationError(
                f"{self.name_or_path} is no artifact of ours. A language model becomes a "
                "recogniser by training: voicehub train asr-llm/lora "
                f"model.decoder.path={self.name_or_path} model.encoder.path=…"
            )
        return self.config

    @cached_property
    def encoder_source(self) -> EncoderSource:
        """The encoder, described."""
        return describe_encoder(self._require_config().encoder)

    @cached_property
    def decoder_source(self) -> DecoderSource:
        """The decoder, described, with its tokenizer."""
        return DecoderSource(self._require_config().decoder)

    @cached_property
    def chat(self) -> ChatFormat:
        """Prompts and labels."""
        return ChatFormat(self.decoder_source.tokenizer, self.config.prompt)

    @property
    def front_end(self) -> FrontEnd:
        """From audio to the encoder's input."""
        return self.encoder_source.front_end

    @property
    def prompt_kind(self) -> Kind:
        """Which prompt transcription uses."""
        return "punctuated" if self.punctuated else "plain"

    @cached_property
    def identities(self) -> dict[str, dict[str, Any]]:
        """Which bases these are, exactly: weights are hashed once."""
        return {
            "encoder": self.encoder_source.identity(),
            "decoder": self.decoder_source.identity(),
        }

    def artifact_config(self) -> dict[str, Any]:
        config = self.config.model_dump(mode="json")
        for part in ("encoder", "decoder"):
            config[part]["path"] = absolute(config[part]["path"])
        template = self.config.decoder.chat_template
        if template is not None:
            config["decoder"]["chat_template"] = read_template(template)
        return {
            "config": config,
            **self.identities,
            "punctuated": self.punctuated,
            "metric_normalizer": self.metric_normalizer,
            "chat_sha256": self.chat.fingerprint(),
            "files": held_files(self.network, self.config, self._carried),
        }

    # -- loading ---------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        config = self._require_config()
        for part in ("encoder", "decoder"):
            if self._stored:
                require_identity(part, self._stored[part], self.identities[part])
        encoder, decoder = self.encoder_source.load(), self.decoder_source.load()
        loudness = config.projector.output_rms
        target = embedding_rms(decoder) if loudness == "auto" else loudness
        lora = config.decoder.lora
        if lora is not None:
            decoder = add_lora(
                decoder, lora.rank, lora.alpha, lora.dropout, lora.target_modules,
                train_head=False, seed=self.seed,
            )  # fmt: skip
        size = self.encoder_source.hidden_size
        projector = build_projector(
            config.projector, size, self.decoder_source.hidden_size, seed=self.seed
        )
        network = AsrLlmNetwork(encoder, projector, decoder, fused_loss=config.fused_loss)
        if self._artifact is not None:
            require_files(self._artifact, self._stored.get("files", ()))
            self._carried = load_parts(network, config, self._artifact)
        elif target is not None:
            calibrate(projector, size, target, seed=self.seed)
        if config.fused_loss and not network.reads_plainly:
            logger.warning(
                "The decoder does more to its hidden states than multiply them by its output "
                "layer: logits of the labelled steps are materialised."
            )
        self.model = network.to(self.device)
        self.model.train(self.is_training_load)
        if not self.is_training_load:
            # Some kernels of torch round otherwise for weights that could have a gradient.
            self.model.requires_grad_(False)

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """Take over the projector, adapters, and what else of the bases was trained."""
        stored = weights.artifact.model
        for part in ("encoder", "decoder"):
            require_identity(part, stored[part], self.identities[part])
        require_files(weights.directory, stored.get("files", ()))
        earlier = SeenIds.load(weights.directory)
        if earlier is not None:
            self.seen = earlier if self.seen is None else self.seen.joined(earlier)
        before = AsrLlmModelConfig.model_validate(stored["config"])
        adapted = before.decoder.lora is not None
        if adapted and self.config.decoder.lora is None:
            return self._start_merged(weights)
        if self.config.decoder.lora is not None and holds_decoder(weights.directory):
            raise CheckpointMismatchError(
                f"init_from {weights.directory} has trained weights of the decoder itself, and "
                "this run puts adapters on the decoder as published. Write the trained decoder "
                f"(voicehub asr-llm merge {weights.directory} --out DIR), and set "
                "model.decoder.path=DIR."
            )
        self._carried = load_parts(self.model, self.config, weights.directory)
        return ["adapters go on"] if adapted else []

    def _start_merged(self, weights: InitialWeights) -> Sequence[str]:
        """Adapters become part of the decoder, where the decoder itself is trained and saved."""
        if self.config.freeze_language_model:
            raise CheckpointMismatchError(
                f"init_from {weights.directory} has low-rank adapters, and recipe "
                f"'{self.config.recipe}' would lose them: take recipe=lora with the same "
                "model.decoder.lora, or recipe=full, which folds them into the decoder."
            )
        bases = {part: getattr(self.config, part).path for part in ("encoder", "decoder")}
        earlier = type(self).from_pretrained(weights.directory, lazy_load=False, **bases)
        merged = merge_lora(earlier.network.decoder).state_dict()
        self._carried = load_parts(self.model, self.config, weights.directory)
        plain(self.model.decoder).load_state_dict(merged)
        return ["adapters are folded into the decoder"]

    def _prepare_for_training(self) -> None:
        mark_trainable(self.model, self.config)

    # -- saving -----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        save_parts(self.network, self.config, directory, self._carried)
        if self.seen is not None:
            self.seen.save(directory)

    def merge(self, directory: str | Path) -> Path:
        """Write the decoder with adapters folded in, and its tokenizer, for plain transformers.

        The model is not changed. Encoder and projector are no part of what is written.
        """
        target = Path(directory)
        decoder: Any = merge_lora(copy.deepcopy(self.network.decoder))
        with progress_bars(shown=False):
            decoder.save_pretrained(target)
            self.decoder_source.tokenizer.save_pretrained(target)
        return target

    @property
    def network(self) -> Any:
        """The loaded module; a lazy wrapper loads its weights when they are first needed."""
        if self.model is None:
            self.load()
        module: nn.Module = self.model
        return module

    @property
    def running_device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device  # type: ignore[no-any-return]
