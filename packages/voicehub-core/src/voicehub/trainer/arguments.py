"""``TrainingArguments``: every setting of a run that the Trainer itself reads.

The names and defaults follow transformers' vocabulary. A setting exists only if something reads
it: an unknown name is an error that suggests the nearest valid one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from voicehub.errors import ConfigurationError
from voicehub.optim.rules import FreezeRule, ParamGroupRule
from voicehub.optim.schedule_names import SCHEDULES, check_schedule_options
from voicehub.trainer import reporter_options as reporters
from voicehub.trainer.validation import explain_validation_error

IntervalStrategy = Literal["no", "steps", "epoch"]
_T = TypeVar("_T")
_SECTIONS = {
    name: [field.name for field in dataclasses.fields(rule)]
    for name, rule in (("freeze", FreezeRule), ("param_groups", ParamGroupRule))
}

# How the names of metrics end that are the better the smaller they are.
_LOWER_IS_BETTER = ("loss", "error", "wer", "cer", "eer", "dcf", "mcd", "distortion", "rmse")

#: Relative width of the uniform average, 1 / sqrt(12): the widest that a power function has.
WIDEST_SIGMA_REL = 0.288675

# Names that users of other trainers write, and what to do here instead.
NOT_SETTINGS = {
    "do_train": "call trainer.train()",
    "do_eval": "set eval_strategy, or call trainer.evaluate()",
    "disable_tqdm": "progress is a callback; the Trainer draws none by itself",
    "eval_accumulation_steps": "evaluation keeps small per-sample rows and moves them at once",
    "group_by_length": "pass train_plan=DurationBucketedPlan(...) to the Trainer",
    "evaluation_strategy": "use eval_strategy",
    "hub_token": "the token is read from the environment variable HF_TOKEN alone",
}


def _named_errors(cls: type[_T]) -> type[_T]:
    """Let construction raise ``ConfigurationError`` with the nearest key named."""
    validated_init: Callable[..., None] = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "evaluation_strategy" in kwargs:
            if "eval_strategy" in kwargs:
                raise ConfigurationError(
                    "TrainingArguments: give eval_strategy or its alias evaluation_strategy, "
                    "not both."
                )
            kwargs["eval_strategy"] = kwargs.pop("evaluation_strategy")
        for name in kwargs.keys() & NOT_SETTINGS.keys():
            raise ConfigurationError(
                f"TrainingArguments: '{name}' is not a setting here: {NOT_SETTINGS[name]}."
            )
        try:
            validated_init(self, *args, **kwargs)
        except ValidationError as error:
            names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
            names += reporters.ALIASES
            raise ConfigurationError(
                explain_validation_error(error, names, "TrainingArguments", _SECTIONS)
            ) from None

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


@_named_errors
@dataclass(config=ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False))
class TrainingArguments:
    """Settings of one training run.

    Raises:
        ConfigurationError: a name is unknown (the nearest is suggested), a value has the wrong
            type or range, or two settings contradict each other.
    """

    output_dir: str = "trainer_output"
    overwrite_output_dir: bool = False
    run_name: str | None = None

    # Batches. The global batch is per-device batch x accumulation x processes.
    per_device_train_batch_size: int = Field(default=8, ge=1)
    per_device_eval_batch_size: int = Field(default=8, ge=1)
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    dataloader_num_workers: int = Field(default=0, ge=0)
    dataloader_pin_memory: bool = True
    dataloader_drop_last: bool = False
    dataloader_prefetch_factor: int = Field(default=2, ge=1)
    remove_unused_columns: bool = True
    label_names: list[str] = Field(default_factory=lambda: ["labels"])

    # Length of the run.
    num_train_epochs: float = Field(default=3.0, gt=0)
    max_steps: int = -1

    # Optimisation.
    optim: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = Field(default=5e-5, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    adam_epsilon: float = Field(default=1e-8, gt=0)
    adamw_fused: bool = False
    max_grad_norm: float = Field(default=1.0, ge=0)
    lr_scheduler_type: str = "linear"
    lr_scheduler_kwargs: dict[str, float | list[int]] = Field(default_factory=dict)
    lr_scheduler_gamma: float | None = Field(default=None, gt=0)
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1)
    warmup_steps: int = Field(default=0, ge=0)
    max_nonfinite_steps: int = Field(default=10, ge=1)
    oom_retry_halves: bool = False

    # What trains, and how fast. Rules name parameters by glob or module path.
    freeze: list[FreezeRule] = Field(default_factory=list)
    param_groups: list[ParamGroupRule] = Field(default_factory=list)

    # Averaged weights: on with a decay. ``eval_weights`` says which ones evaluations use.
    ema_decay: float | None = Field(default=None, ge=0, lt=1)
    ema_warmup: bool = True
    ema_buffers: Literal["copy", "average"] = "copy"
    eval_weights: Literal["raw", "ema", "both"] = "raw"
    # Averages whose relative width is chosen after training (``voicehub ema synthesize``): widths
    # that are tracked, the first being what evaluations take; updates between stored ones; whether
    # they are kept in main memory. Instead of ``ema_decay``.
    posthoc_ema: bool = False
    posthoc_ema_sigma_rels: list[float] = Field(default_factory=lambda: [0.05, 0.1], min_length=1)
    posthoc_ema_snapshot_steps: int = Field(default=5000, ge=1)
    posthoc_ema_offload: bool = False

    # Precision and devices.
    fp16: bool = False
    bf16: bool = False
    use_cpu: bool = False
    gradient_checkpointing: bool = False
    torch_compile: bool = False

    # Processes: how a step is executed, and seconds that a process waits for the others.
    strategy: str = "torch"
    ddp_timeout: float = Field(default=45.0, gt=0)
    fsdp_min_block: int = Field(default=100_000, ge=1)  # parameters of a block gathered on its own

    # Randomness. ``data_seed`` orders and augments the data; it defaults to ``seed``.
    seed: int = 42
    data_seed: int | None = None

    # Watching.
    logging_strategy: IntervalStrategy = "steps"
    logging_steps: int = Field(default=500, ge=1)
    logging_first_step: bool = False
    report_to: list[str] = Field(default_factory=list)
    # By reporter; what there is to set is the reporter's own to say.
    reporter_options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    # Audio, pictures and texts of so many evaluations stay as files of the run, the newest.
    media_total_limit: int = Field(default=20, ge=1)

    # Evaluation and the best model.
    eval_strategy: IntervalStrategy = "no"
    eval_steps: int | None = Field(default=None, ge=1)
    prediction_loss_only: bool = False
    load_best_model_at_end: bool = False
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    early_stopping_patience: int | None = Field(default=None, ge=1)
    early_stopping_threshold: float = Field(default=0.0, ge=0)

    # Checkpoints.
    save_strategy: IntervalStrategy = "steps"
    save_steps: int = Field(default=500, ge=1)
    resume_topology: Literal["same", "any"] = "same"  # any: other processes or strategy, too
    save_total_limit: int | None = Field(default=None, ge=1)
    save_best_limit: int = Field(default=1, ge=1)  # checkpoints of so many best evaluations stay

    # Uploads to a model hub; the token is read from the environment alone.
    push_to_hub: bool = False
    hub_model_id: str | None = None
    hub_private_repo: bool = True
    hub_strategy: Literal["end", "every_save"] = "end"

    @model_validator(mode="before")
    @classmethod
    def _reporter_aliases(cls, given: Any) -> Any:
        if isinstance(given, ArgsKwargs):
            return ArgsKwargs(given.args, reporters.fold_aliases(given.kwargs or {}))
        return reporters.fold_aliases(given) if isinstance(given, Mapping) else given

    @field_validator("report_to", mode="before")
    @classmethod
    def _reporters_as_list(cls, value: Any) -> Any:
        if value is None or value == "none":
            return []
        return [value] if isinstance(value, str) else value

    @field_validator("freeze", mode="before")
    @classmethod
    def _patterns_as_rules(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)):
            return [{"pattern": item} if isinstance(item, str) else item for item in value]
        return value

    @field_validator("lr_scheduler_type")
    @classmethod
    def _known_schedule(cls, value: str) -> str:
        if value not in SCHEDULES:
            from voicehub.suggest import did_you_mean

            raise ValueError(
                f"unknown schedule, expected one of {', '.join(sorted(SCHEDULES))}."
                f"{did_you_mean(value, SCHEDULES)}"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> TrainingArguments:
        self._check_contradictions()
        # Derived defaults; object.__setattr__ because assignment validates again.
        if self.eval_steps is None and self.eval_strategy == "steps":
            object.__setattr__(self, "eval_steps", self.logging_steps)
        if self.wants_best_model:
            metric = self.metric_for_best_model or "loss"
            object.__setattr__(self, "metric_for_best_model", metric)
            if self.greater_is_better is None:
                lower = metric.endswith(_LOWER_IS_BETTER)
                object.__setattr__(self, "greater_is_better", not lower)
        return self

    def _check_contradictions(self) -> None:
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 are both set: choose one precision")
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError("max_steps must be positive, or -1 for whole epochs")
        if self.warmup_ratio and self.warmup_steps:
            raise ValueError("warmup_ratio and warmup_steps are both set: choose one")
        self._check_averages()
        check_schedule_options(self.lr_scheduler_type, self.schedule_options)
        if self.eval_strategy == "no":
            for name in ("load_best_model_at_end", "early_stopping_patience"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs an eval_strategy other than 'no'")
            if self.lr_scheduler_type == "plateau":
                raise ValueError("lr_scheduler_type='plateau' needs an eval_strategy")
        if self.load_best_model_at_end:
            self._check_best_model_saving()
        if self.hub_model_id is not None and not self.push_to_hub:
            raise ValueError("hub_model_id is set, but nothing is uploaded: set push_to_hub=True")
        if self.push_to_hub and self.hub_strategy == "every_save" and self.save_strategy == "no":
            raise ValueError("hub_strategy='every_save' needs a save_strategy other than 'no'")

    def _check_averages(self) -> None:
        if self.posthoc_ema and self.ema_decay is not None:
            raise ValueError(
                "posthoc_ema and ema_decay are both set: a run has one kind of averaged weights"
            )
        if self.eval_weights != "raw" and not self.averages_weights:
            raise ValueError(
                f"eval_weights={self.eval_weights!r} needs averaged weights: set ema_decay, for "
                "example 0.999, or posthoc_ema"
            )
        widths = self.posthoc_ema_sigma_rels
        wrong = [width for width in widths if not 0 < width <= WIDEST_SIGMA_REL]
        if wrong or len(set(widths)) < len(widths):
            raise ValueError(
                f"posthoc_ema_sigma_rels must be different relative widths over 0 and at most "
                f"{WIDEST_SIGMA_REL} (all updates alike), got {widths}"
            )

    def _check_best_model_saving(self) -> None:
        if self.save_strategy != self.eval_strategy:
            raise ValueError(
                "load_best_model_at_end needs save_strategy and eval_strategy to be equal, got "
                f"save_strategy={self.save_strategy!r} and eval_strategy={self.eval_strategy!r}"
            )
        eval_steps = self.eval_steps or self.logging_steps
        if self.eval_strategy == "steps" and self.save_steps % eval_steps:
            raise ValueError(
                f"load_best_model_at_end needs save_steps ({self.save_steps}) to be a multiple "
                f"of eval_steps ({eval_steps})"
            )

    @property
    def averages_weights(self) -> bool:
        """Whether the run keeps averaged weights, of either kind."""
        return self.ema_decay is not None or self.posthoc_ema

    @property
    def wants_best_model(self) -> bool:
        """Whether a best evaluation is tracked at all."""
        return (
            self.load_best_model_at_end
            or self.metric_for_best_model is not None
            or self.early_stopping_patience is not None
        )

    @property
    def schedule_options(self) -> dict[str, float | list[int]]:
        """Options of the schedule, ``lr_scheduler_gamma`` folded in."""
        options = dict(self.lr_scheduler_kwargs)
        if self.lr_scheduler_gamma is not None:
            options["gamma"] = self.lr_scheduler_gamma
        return options

    @property
    def train_batch_size(self) -> int:
        """Training micro-batch of one process."""
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        """Evaluation batch of one process."""
        return self.per_device_eval_batch_size

    @property
    def effective_data_seed(self) -> int:
        """Seed of data order and augmentation."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def device(self) -> str:
        """The device that the single-process strategy uses: ``cuda``, ``mps`` or ``cpu``."""
        if self.use_cpu:
            return "cpu"
        import torch  # the arguments themselves stay free of torch

        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Warm-up in updates for a route of ``num_training_steps`` updates."""
        if self.warmup_steps:
            return self.warmup_steps
        return int(num_training_steps * self.warmup_ratio)

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON values."""
        return dataclasses.asdict(self)

    def save_json(self, path: str | Path) -> None:
        """Write all settings; ``from_json_file`` reads them back."""
        text = json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingArguments:
        """Build from a mapping; unknown keys raise as in the constructor."""
        return cls(**values)

    @classmethod
    def from_json_file(cls, path: str | Path) -> TrainingArguments:
        """Read what ``save_json`` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
