"""Entry-point groups that the host reads, and the plugin API versions it speaks."""

from __future__ import annotations

PREFIX = "voicehub."
PLUGIN_API = "voicehub.plugin_api"
TRAINING_SPECS = "voicehub.training_specs"
ADAPTER_FACTORY = "voicehub.adapter_factory"
MODELS = "voicehub.models"
LOSSES = "voicehub.losses"
STRATEGIES = "voicehub.strategies"
REPORTERS = "voicehub.reporters"
DATA_SOURCES = "voicehub.data_sources"
PRESETS = "voicehub.presets"
COMMANDS = "voicehub.commands"
PLUGINS = "voicehub.plugins"
REMOTE_PROVIDERS = "voicehub.remote_providers"
CONFORMANCE = "voicehub.conformance"

GROUPS = (
    TRAINING_SPECS,
    ADAPTER_FACTORY,
    MODELS,
    LOSSES,
    STRATEGIES,
    REPORTERS,
    DATA_SOURCES,
    PRESETS,
    COMMANDS,
    PLUGINS,
    REMOTE_PROVIDERS,
    CONFORMANCE,
)

SUPPORTED_API_VERSIONS = (1,)
