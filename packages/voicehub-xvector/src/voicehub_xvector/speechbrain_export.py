"""An ECAPA as a directory that plain speechbrain loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from voicehub_xvector.config import FbankFeaturesConfig
from voicehub_xvector.front_ends.fbank import fbank_arguments
from voicehub_xvector.heads.ecapa import ecapa_arguments
from voicehub_xvector.speechbrain_parts import speechbrain_part

if TYPE_CHECKING:
    from voicehub_xvector.embedder import XVectorModel

_WHOLE = """\
# ECAPA-TDNN trained with VoiceHub. Load with
# speechbrain.inference.speaker.EncoderClassifier.from_hparams(source=THIS_DIRECTORY).
sample_rate: {sample_rate}
compute_features: !new:speechbrain.lobes.features.Fbank
{features}
mean_var_norm: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
    std_norm: False
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
{ecapa}
classifier: !new:speechbrain.lobes.models.ECAPA_TDNN.Classifier
    input_size: {embedding_size}
    out_neurons: {classes}
label_encoder: !new:speechbrain.dataio.encoder.CategoricalEncoder
modules:
    compute_features: !ref <compute_features>
    mean_var_norm: !ref <mean_var_norm>
    embedding_model: !ref <embedding_model>
    classifier: !ref <classifier>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
        classifier: !ref <classifier>
        label_encoder: !ref <label_encoder>
"""
_HEAD = """\
# ECAPA-TDNN trained with VoiceHub on features of its own. Load with
# speechbrain.inference.interfaces.Pretrained.from_hparams(source=THIS_DIRECTORY);
# .mods.embedding_model(features, relative_lengths) gives the embeddings.
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
{ecapa}
modules:
    embedding_model: !ref <embedding_model>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
"""


def export_speechbrain(model: XVectorModel, directory: Path) -> None:
    """Write weights and ``hyperparams.yaml``.

    On speechbrain's own features the directory goes from waveforms to embeddings and classes; a
    classifier with several sub-centres keeps the first of each class there. On other features it
    holds the head.
    """
    head: Any = model.network.head
    state = {name: t.detach().cpu().clone() for name, t in head.ecapa.state_dict().items()}
    torch.save(state, directory / "embedding_model.ckpt")
    features = getattr(model.config, "features", None)
    input_size = int(head.ecapa.blocks[0].conv.conv.in_channels)
    ecapa = _block(ecapa_arguments(model.config.head, input_size))
    if isinstance(features, FbankFeaturesConfig):
        _save_classifier(model, directory)
        text = _WHOLE.format(
            sample_rate=model.sample_rate,
            features=_block(fbank_arguments(features)),
            ecapa=ecapa,
            embedding_size=model.embedding_size,
            classes=len(model.classes),
        )
    else:
        text = _HEAD.format(ecapa=ecapa)
    (directory / "hyperparams.yaml").write_text(text, encoding="utf-8")


def _save_classifier(model: XVectorModel, directory: Path) -> None:
    loss: Any = model.network.loss
    prototypes = loss.weight.detach().cpu()[:: model.config.loss.sub_centres].clone()
    torch.save({"weight": prototypes}, directory / "classifier.ckpt")
    encoder = speechbrain_part("dataio.encoder").CategoricalEncoder()
    for name in model.classes:
        encoder.add_label(name)
    encoder.expect_len(len(model.classes))
    encoder.save(directory / "label_encoder.ckpt")


def _block(arguments: dict[str, Any]) -> str:
    return "\n".join(f"    {name}: {value}" for name, value in arguments.items())
