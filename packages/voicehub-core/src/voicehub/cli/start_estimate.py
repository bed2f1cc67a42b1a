"""Memory of a run beside what its device has, told while the run begins.

The estimate is that of ``voicehub plan``: the recipe's own step on shapes, made in a copy of this
process (see ``voicehub.planning.aside``). Nothing waits for it; it is shown when it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from voicehub.cli.processes import local_processes
from voicehub.planning.advice import Situation, how_to_fit
from voicehub.planning.aside import Aside, AsideError
from voicehub.planning.capacity import Capacity, capacity_of
from voicehub.planning.cards import FRAGMENTATION, gib
from voicehub.planning.resident import ResidentGrowth
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback

if TYPE_CHECKING:
    from voicehub.adapters.experiment import Experiment
    from voicehub.cli.run_request import RunRequest
    from voicehub.reporting.console import ConsoleCallback
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.trainer.state import TrainerControl, TrainerState
    from voicehub.trainer.trainer import Trainer

#: After so many updates what was measured is told beside the estimate.
MEASURED_AFTER = 10
#: Seconds for which a run that has failed waits for the estimate, which may say why.
_PATIENCE = 5.0


class StartEstimates:
    """Estimates of a run, or of all stages of a chain, by name; made beside the first of them.

    Args:
        requests: the run, or the stages of a chain in their order.
    """

    def __init__(self, requests: Sequence[RunRequest]) -> None:
        self._requests = list(requests)
        self._names = [request.config.name for request in requests]
        self._aside: Aside | None = None
        self._found: dict[str, Mapping[str, Any]] = {}
        self._begun = False

    def watching(
        self,
        request: RunRequest,
        experiment: Experiment,
        strategy: TrainingStrategy | None,
        console: ConsoleCallback,
    ) -> EstimateCallback:
        """Begin, and return what tells the estimate of ``request`` in its run.

        The first call begins the estimates of all from ``request`` on. It comes before the first
        backward of this process: a copy made later could compute none on machines with a card.

        Args:
            request: the run.
            experiment: its model, which is not built yet, and its data.
            strategy: of several processes; None for a lone one.
            console: what prints.
        """
        processes = 1 if strategy is None else strategy.world_size
        if not self._begun:
            self._begun = True
            self._begin(request, experiment, processes)
        return EstimateCallback(self, request, console, local_processes(processes))

    def _begin(self, request: RunRequest, experiment: Experiment, processes: int) -> None:
        later = self._requests[self._names.index(request.config.name) + 1 :]

        # Asked here: a copy leaves cards alone.
        on_card = request.config.training.device != "cpu"

        def work() -> Iterator[Mapping[str, Any]]:
            yield _estimate(request, experiment, processes, on_card=on_card)
            for one in later:
                yield _estimate(one, None, processes, on_card=on_card)

        try:
            self._aside = Aside(work)
        except AsideError as error:
            self._found[request.config.name] = {"problem": str(error)}

    def take(self, name: str, wait: float = 0.0) -> Mapping[str, Any] | None:
        """Return the estimate of a run once it is there, for ``wait`` seconds at most."""
        if name not in self._found and self._aside is not None:
            for answer in self._aside.take(wait):
                # What ends the copy concerns all that it has not answered.
                concerned = [answer["name"]] if "name" in answer else self._names
                for each in concerned:
                    self._found.setdefault(each, answer)
        return self._found.get(name)

    def close(self) -> None:
        """End what is still under way."""
        if self._aside is not None:
            self._aside.close()

    def __enter__(self) -> StartEstimates:
        """Use it for the time of the run."""
        return self

    def __exit__(self, *_: object) -> None:
        """The run is over: an estimate is of no more use."""
        self.close()


def _estimate(
    request: RunRequest, experiment: Experiment | None, processes: int, *, on_card: bool
) -> dict[str, Any]:
    """What a step of a run takes, as JSON values; what goes wrong is an answer, too."""
    from voicehub.cli.training_run import build_experiment, build_trainer

    # Imported here: the run itself has no use for them.
    from voicehub.planning.estimate import planned_memory
    from voicehub.planning.rehearsal import rehearsed_arguments

    args = request.config.training
    config = request.config.model_copy(update={"training": rehearsed_arguments(args)})
    rehearsed = replace(request, config=config, initial=None)

    def make(strategy: Any) -> Trainer:
        given = build_experiment(rehearsed) if experiment is None else experiment
        if getattr(given.model, "initial_weights", None) is not None:
            given.model.initial_weights = None  # shapes are all that counts
        return build_trainer(rehearsed, given, [], strategy(config.training))

    answer: dict[str, Any] = {"name": request.config.name}
    try:
        found, memory = planned_memory(make, args, processes=processes, on_card=on_card)
    except Exception as error:
        return {**answer, "problem": " ".join(str(error).split()) or type(error).__name__}
    return {
        **answer,
        "memory": memory,
        "alone": dict(found.memory),
        "parts": dict(found.parameters.parts),
        "batch": list(found.batch),
        "processes": processes,
    }


class EstimateCallback(TrainerCallback):
    """Tells the estimate of a run, a warning where the device has less, and what was measured.

    On a CPU that is what the process grew by, which is more than its tensors, and said so.

    Args:
        estimates: of this run among others.
        request: the run; its model is not built yet.
        console: what prints.
        processes: of the run, on this machine.
    """

    def __init__(
        self,
        estimates: StartEstimates,
        request: RunRequest,
        console: ConsoleCallback,
        processes: int = 1,
    ) -> None:
        self._estimates = estimates
        self._request = request
        self._console = console
        self._device = request.config.training.device
        #: Of main memory as it is before the model takes its part.
        self._capacity = capacity_of("cpu", sharing=processes) if self._device == "cpu" else None
        self._growth = ResidentGrowth() if self._device == "cpu" else None
        self._peak: int | None = None
        self._updates = 0
        self._waiting = True  # for the estimate
        self._done = False

    # -- events ------------------------------------------------------------------------

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """The model stands on its device; the estimate may be there."""
        if self._capacity is None:
            self._device = str(context["trainer"].graph.device)
            self._capacity = capacity_of(self._device)
        self._look()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Look whether it is there; measure once."""
        if self._done:
            return
        self._updates += 1
        if self._waiting:
            self._look()
        if self._updates >= MEASURED_AFTER and not self._waiting:
            self._measure()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """A run that was shorter."""
        if self._done:
            return
        if self._waiting:
            self._look()
        self._measure()

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Where memory ran out, say what was to be expected."""
        import torch

        if self._waiting and isinstance(
            context.get("error"), (torch.OutOfMemoryError, MemoryError)
        ):
            self._look(_PATIENCE)

    # -- inside ------------------------------------------------------------------------

    def _look(self, wait: float = 0.0) -> None:
        found = self._estimates.take(self._request.config.name, wait)
        if found is None:
            return
        self._waiting = False
        if "problem" in found:
            self._done = True
            self._console.tell(f"memory: not estimated: {found['problem']}")
            return
        self._peak = sum(found["memory"].values())
        try:
            for line in _told(found, self._capacity, self._request):
                self._console.tell(line)
        except Exception as error:  # no advice is worth a run
            self._console.tell(f"memory: no advice: {type(error).__name__}: {error}")

    def _measure(self) -> None:
        self._done = True
        if self._peak is None:
            return
        estimated = f"{gib(self._peak)} estimated for the worst batch"
        if self._device.startswith("cuda"):
            import torch

            most = torch.cuda.max_memory_allocated(torch.device(self._device))
            self._console.tell(
                f"memory: {gib(most)} at most in the first {self._updates} updates; {estimated}"
            )
            return
        grown = None if self._growth is None else self._growth.most()
        if grown is not None:
            self._console.tell(
                f"memory: the process grew by {gib(grown)} in the first {self._updates} updates, "
                f"libraries and gaps between tensors included; {estimated}"
            )


def _told(
    found: Mapping[str, Any], capacity: Capacity | None, request: RunRequest
) -> Iterator[str]:
    memory = found["memory"]
    peak = sum(memory.values())
    batch = f"worst batch ({len(found['batch'])} samples)" if found["batch"] else "worst batch"
    if capacity is None:
        yield f"memory: {gib(peak)} estimated for the {batch}"
        return
    yield (
        f"memory: {gib(peak)} estimated for the {batch}, {gib(capacity.free)} free on "
        f"{capacity.device}"
    )
    if capacity.holds(peak):
        return
    args = request.config.training
    situation = Situation(
        memory=memory,
        alone=found["alone"],
        room=capacity.free / (1 + FRAGMENTATION),
        bf16=capacity.bf16,
        half=args.fp16 or args.bf16,
        config=request.values,
        parts=found["parts"],
        processes=found["processes"],
    )
    yield (
        f"warning: the worst batch may not fit: {capacity.device} has {gib(capacity.free)} left, "
        f"{gib(peak * (1 + FRAGMENTATION))} are needed with {FRAGMENTATION:.0%} between blocks. "
        "To make it fit, the cheapest first:"
    )
    for number, advice in enumerate(how_to_fit(situation), 1):
        yield f"  {number}. {advice}"
