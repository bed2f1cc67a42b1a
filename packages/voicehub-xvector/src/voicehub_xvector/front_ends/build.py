"""From the features of a configuration to the front end."""

from __future__ import annotations

from voicehub_xvector.config import FbankFeaturesConfig, LogMelFeaturesConfig
from voicehub_xvector.front_ends.fbank import FbankFrontEnd
from voicehub_xvector.front_ends.log_mel import LogMelFrontEnd


def build_features(
    config: LogMelFeaturesConfig | FbankFeaturesConfig,
) -> LogMelFrontEnd | FbankFrontEnd:
    """Return the front end of a model on log-mel features."""
    if isinstance(config, FbankFeaturesConfig):
        return FbankFrontEnd(config)
    return LogMelFrontEnd(config)
