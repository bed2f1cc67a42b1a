"""What is run on the host: the plan and the job that also become files for clusters."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path, PurePosixPath

from voicehub.cli.launch_files import FILES, JobRequest
from voicehub.cli.launch_plan import LaunchPlan, refuse_secrets
from voicehub.cli.output import UsageError

FORMAT = 1
_LONGEST_NAME = 40
#: A value this short may stand in a command by chance.
_SHORT_VALUE = 8


@dataclass(frozen=True)
class Description:
    """One run: what ``voicehub launch --to`` writes down for a cluster, and what ends it here.

    Nothing in it is secret: of ``job.environment`` it knows names alone.

    Attributes:
        plan: the words of ``voicehub train``, and the number of processes.
        job: name, names of variables, lines that run first.
        output: ``training.output_dir``, relative to the project or absolute.
        on_end: a shell command that runs on the host when the run has ended, well or badly.
        on_end_delay: minutes between the end and that command.
    """

    plan: LaunchPlan
    job: JobRequest
    output: str
    on_end: str | None = None
    on_end_delay: int = 0

    def __post_init__(self) -> None:
        refuse_secrets([*self.plan.words, *_words_of(self.shell_lines)])
        if self.on_end_delay and self.on_end is None:
            raise UsageError("--on-end-delay is the time before --on-end COMMAND: give that too.")
        for name in self.job.environment:
            if name in _names_on_host():
                raise UsageError(
                    f"--env {name}: the scripts that start the run on the host use this name "
                    "themselves. Give the variable another."
                )

    @property
    def shell_lines(self) -> tuple[str, ...]:
        """What a shell on the host reads besides the command itself."""
        return (*self.job.setup, *([] if self.on_end is None else [self.on_end]))

    def command(self) -> list[str]:
        """The words behind the host's Python interpreter.

        Several processes go through ``voicehub launch``, which says which of them failed first.
        """
        module = ["-m", "voicehub"]
        if self.plan.processes == 1 and not self.plan.max_restarts:
            return [*module, *self.plan.words]
        options = [f"--nproc={self.plan.processes}", f"--max-restarts={self.plan.max_restarts}"]
        return [*module, "launch", *options, "--", *self.plan.words]

    def job_file(self, kind: str) -> str:
        """The same run as a file for ``sbatch``, ``skypilot`` or ``dstack``."""
        return FILES[kind](self.plan, self.job)

    def secrets(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Values of the variables that the run needs, from ``environment``.

        Raises:
            UsageError: one is not set here, or its value stands in the command already.
        """
        missing = [name for name in self.job.environment if not environment.get(name)]
        if missing:
            raise UsageError(
                f"--env {missing[0]}: the variable is not set here, so the host cannot be given "
                f"its value. Set it and try again; not set: {', '.join(missing)}."
            )
        values = {name: environment[name] for name in self.job.environment}
        for name, value in values.items():
            written = (*self.plan.words, *self.shell_lines, self.output)
            if len(value) >= _SHORT_VALUE and any(value in word for word in written):
                raise UsageError(
                    f"The value of {name} stands in the command. Settings read it as "
                    f"${{oc.env:{name}}}, shell lines as ${name}."
                )
        return values

    def to_json(self) -> str:
        """For ``description.json`` on the host."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Description:
        """Read what ``to_json`` wrote.

        Raises:
            UsageError: it is something else.
        """
        try:
            values = json.loads(text)
            if values.pop("format") != FORMAT:
                raise ValueError("unknown format")
            plan, job = values.pop("plan"), values.pop("job")
            plan["words"] = tuple(plan["words"])
            job["environment"], job["setup"] = tuple(job["environment"]), tuple(job["setup"])
            return cls(LaunchPlan(**plan), JobRequest(**job), **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"The run's description.json on the host cannot be read ({error}). Another version "
                "of voicehub-remote may have written it; name what to train in full."
            ) from None


def describe(
    plan: LaunchPlan,
    *,
    name: str | None,
    environment: Sequence[str] = (),
    setup: Sequence[str] = (),
    on_end: str | None = None,
    on_end_delay: int = 0,
    project: Path = Path(),
) -> Description:
    """Check what is to be run against the configuration here, and have it go on where it stopped.

    ``resume=auto`` is added where nothing is said about resuming, so that the same command
    starts a run and continues it.

    Args:
        name: of the run; by default that of the preset.
        project: folder whose ./configs count.

    Raises:
        UsageError: the configuration or the name is not valid, or a credential is written out.
    """
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.launch import settled
    from voicehub.cli.validate import validate_run, validate_stages

    refuse_secrets([*plan.words, *_words_of([*setup, *([on_end] if on_end else [])])])
    with _inside(project):
        plan = settled(plan)
        composition = compose_preset(plan.preset, plan.overrides)
        stages = validate_stages(composition) if composition.stages else [validate_run(composition)]
    first = stages[0][1]
    if all(config.resume is None for _, config in stages):
        plan = plan.with_override("resume=auto")
    job = JobRequest(
        name or name_of(plan.preset), environment=tuple(environment), setup=tuple(setup)
    )
    return Description(plan, job, first.training.output_dir, on_end, on_end_delay)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@lru_cache(maxsize=1)
def _names_on_host() -> frozenset[str]:
    """Variables that the scripts on the host read, and set for themselves."""
    scripts = resources.files("voicehub_remote").joinpath("on_host").iterdir()
    texts = [path.read_text("utf-8") for path in scripts if path.name.endswith(".sh")]
    return frozenset(name for text in texts for name in re.findall(r"\$\{?([a-z_]+)", text))


def name_of(preset: str) -> str:
    """A run's name made of that of its preset: ``asr-ctc/tiny`` -> ``asr-ctc-tiny``."""
    stem = str(PurePosixPath(preset).with_suffix("")) if preset.endswith(".yaml") else preset
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", name)[:_LONGEST_NAME].rstrip("-") or "run"


def _words_of(lines: Sequence[str]) -> list[str]:
    """The words of shell lines, however they are quoted."""
    return [word for line in lines for word in _split(line)]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # unfinished quotes: the host's shell will say so
        return line.split()
