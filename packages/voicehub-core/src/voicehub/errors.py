"""Errors that name what was wrong, where, what was expected and what to do.

Each class also derives from the built-in error a caller would expect, so that
``except ValueError`` keeps working for users of other trainers.
"""

from __future__ import annotations


class VoiceHubError(Exception):
    """Base class: the command line prints these as one clear message, without a traceback."""


class ConfigurationError(VoiceHubError, ValueError):
    """A setting is unknown, has the wrong type or contradicts another one."""


class AssetError(VoiceHubError, FileNotFoundError):
    """Something that a configuration names is not there: a checkpoint, a manifest, a data set."""


class DataError(VoiceHubError, ValueError):
    """A manifest, an audio file or a batch is not what it should be."""


class RecipeError(VoiceHubError, ValueError):
    """A spec, phase or optimizer route is invalid, or a loss breaks its contract."""


class UnsupportedTrainingError(VoiceHubError, ValueError):
    """The model, checkpoint or runtime cannot be trained truthfully."""


class CheckpointError(VoiceHubError):
    """A checkpoint cannot be written, read or accepted."""


class CheckpointMismatchError(CheckpointError, ValueError):
    """A checkpoint is sound but belongs to another run configuration, model or format."""


class CheckpointCorruptError(CheckpointError, ValueError):
    """A checkpoint is incomplete or damaged; the message names the file."""


class NonFiniteError(VoiceHubError, FloatingPointError):
    """Losses or gradients were not finite for too many updates in a row."""


class PluginError(VoiceHubError):
    """A plugin is broken, incompatible, disabled or in conflict with another one."""


class OptionalDependencyError(VoiceHubError, ImportError):
    """A feature needs a package that is not installed; the message names what to install."""


class OptimizationError(VoiceHubError, RuntimeError):
    """An optimization pass cannot do what is asked of it."""


class OptimizationCompatibilityError(OptimizationError, ValueError):
    """A pass does not fit this run; nothing was applied."""


class OptimizationApplicationError(OptimizationError):
    """A pass failed while it was applied; the reversible ones before it were undone."""
