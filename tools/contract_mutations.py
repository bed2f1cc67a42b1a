"""Break the core on purpose, statement by statement, and see whether the contract tests notice.

Each mutation replaces one piece of text in a copy of the package, in a temporary directory, and
runs the tests of its statement against the copy. A mutation that no test catches is a hole in the
proof; one whose text is not found any more has to be rewritten.

Run ``python tools/contract_mutations.py [STATEMENT ...]``; all take some minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "voicehub-core" / "src" / "voicehub"


@dataclass(frozen=True)
class Mutation:
    """One break: in ``file``, the first ``old`` becomes ``new``."""

    statement: str
    file: str
    old: str
    new: str


M = Mutation
MUTATIONS = (
    M("S1", "specs/model.py", "from enum import", "import torch\nfrom enum import"),
    M(
        "S2",
        "specs/support.py",
        "(TrainingSupport.NATIVE, TrainingSupport.PREPROCESSED)",
        "(TrainingSupport.NATIVE, TrainingSupport.PREPROCESSED, TrainingSupport.CUSTOM)",
    ),
    M("S2", "specs/support.py", "return self is not TrainingSupport.INFERENCE_ONLY", "return True"),
    M(
        "S3",
        "adapters/base.py",
        "        self.validate_support()\n        load_model(self)",
        "        load_model(self)\n        self.validate_support()",
    ),
    M(
        "S3",
        "adapters/base.py",
        "self.supports_custom_recipe or self.is_specialised",
        "self.supports_custom_recipe",
    ),
    M("S4", "models/lifecycle.py", "        check_not_serving_only(self.name_or_path)\n", ""),
    M(
        "S4",
        "adapters/graph_checks.py",
        '        _check_module(name or "(root)", module, allow_quantised, allow_compiled)\n',
        "",
    ),
    M("L1", "models/lifecycle.py", "if not lazy_load:", "if True:"),
    M(
        "L2",
        "models/lifecycle.py",
        "        self._validate_training_runtime()\n        self._loaded",
        "        self._loaded",
    ),
    M("L2", "models/lifecycle.py", "        self.is_training_load = True\n", ""),
    M(
        "L2",
        "models/lifecycle.py",
        "        self._prepare_for_training()\n        self._loaded",
        "        self._loaded",
    ),
    M(
        "L3",
        "models/lifecycle.py",
        "if self.is_loaded and self.destructive_inference_load:",
        "if False:",
    ),
    M(
        "D1",
        "data/collate.py",
        '    raise DataTypeError(\n        f"item {row} of the batch is a',
        '    return {"value": item}\n'
        '    raise DataTypeError(\n        f"item {row} of the batch is a',
    ),
    M("D2", "adapters/inputs.py", "    if duplicates:", "    if False:"),
    M(
        "D2",
        "adapters/inputs.py",
        "return {**flat, **nested}",
        'return {**flat, "model_inputs": nested}',
    ),
    M("D3", "data/collate.py", "label_pad_token_id: int = -100", "label_pad_token_id: int = 0"),
    M("D3", "data/collate.py", "if value is not first and value != first:", "if False:"),
    M("D3", "data/collate.py", "if len(features) == 0:", "if False:"),
    M("D4", "data/padding.py", "side = schema.padding_side", 'side = "right"'),
    M(
        "D4",
        "data/padding.py",
        "if len(present) < len(values) and not schema.allow_missing:",
        "if False:",
    ),
    M(
        "D4",
        "data/collate.py",
        "return_input_lengths: bool = False",
        "return_input_lengths: bool = True",
    ),
    M(
        "D5",
        "data/collate.py",
        "        self._add_derived(batch, fields)\n",
        '        self._add_derived(batch, fields)\n        batch["stop_labels"] = len(items)\n',
    ),
    M("D6", "trainer/feed.py", "    if callable(own):", "    if False:"),
    M("D6", "trainer/feed.py", "    if explicit is not None:", "    if False:"),
    M("D6", "adapters/base.py", "if self._prepare_hook is not None:", "if False:"),
    M("R1", "specs/phase.py", "if not 0 <= self.offset < self.frequency:", "if False:"),
    M("R1", "specs/phase.py", "if not math.isfinite(weight):", "if False:"),
    M(
        "R2",
        "adapters/base.py",
        "for phase in self.phases if phase.is_scheduled(step))",
        "for phase in self.phases)",
    ),
    M(
        "R2",
        "trainer/window.py",
        "scheduler_step(self.schedulers, result.stepped)",
        "scheduler_step(self.schedulers, list(self.optimizers))",
    ),
    M(
        "R2",
        "specs/phase.py",
        "return step % self.frequency == self.offset",
        "return step % self.frequency == 0",
    ),
    M("R3", "trainer/window.py", "1.0 if alone or items is None else items", "1.0"),
    M("R3", "trainer/window.py", "if scale not in (0.0, 1.0):", "if False:"),
    M("R4", "trainer/window.py", "if due[0].optimizer_step_after_phase:", "if False:"),
    M("R5", "adapters/routes.py", "if owner != optimizer:", "if False:"),
    M(
        "R5",
        "adapters/routes.py",
        "    _check_complete(names, owners, frozen_by_design, routes)\n",
        "",
    ),
    M(
        "R6",
        "trainer/window.py",
        "return (self.adapter.select_phase(named),)",
        "return self.adapter.due_phases(window.step)",
    ),
    M(
        "R6",
        "trainer/custom_loss.py",
        "sum(self._count(batch) for batch in batches)",
        "self._count(batches[0])",
    ),
    M("R6", "trainer/trainer.py", "if len(self.adapter.phases) > 1:", "if False:"),
    M(
        "R7",
        "trainer/composition.py",
        "total = route_updates[name]",
        "total = max(route_updates.values())",
    ),
    M(
        "R7",
        "trainer/composition.py",
        "for name, named in adapter.routes.items():",
        "for name, named in ((n, next(iter(adapter.routes.values()))) for n in adapter.routes):",
    ),
    M("R8", "adapters/losses.py", "weight = rule.weights.get(key, 1.0)", "weight = 1.0"),
    M(
        "R8",
        "adapters/losses.py",
        "if output.loss is None and fallback is not None:",
        "if fallback is not None:",
    ),
    M("R8", "adapters/fallbacks.py", "if logits.shape[:-1] != labels.shape:", "if False:"),
    M(
        "R9",
        "adapters/freezing.py",
        "            parameter.requires_grad_(True)\n",
        "            parameter.requires_grad_(False)\n",
    ),
    M("R9", "adapters/phase_plan.py", "if self.phase.detach_inputs:", "if False:"),
    M("R9", "adapters/phase_plan.py", "    if isolate:", "    if False:"),
    M(
        "G1",
        "trainer/window.py",
        "strategy.zero_grad(optimizers, routes)",
        "optimizers.zero_grad(routes)",
    ),
    M(
        "G1",
        "trainer/window.py",
        "strategy.clip_grad_norm(grads, norm, self.max_grad_norm)",
        "pass",
    ),
    M(
        "G2",
        "trainer/composition.py",
        "    adapter = strategy.prepare_training_adapter(adapter, device=device)\n",
        "",
    ),
    M("G3", "passes/plan.py", "if context.persist_result and not can.persistent:", "if False:"),
    M("G3", "passes/plan.py", "        check_routes(model, routes)\n", ""),
    M("G3", "trainer/passes.py", "    plan.check_exportable()\n", ""),
    M("G3", "trainer/passes.py", "        adapter.replace_routes(routes)\n", ""),
    M("G4", "strategies/registry.py", "    if taken:", "    if False:"),
    M("G5", "trainer/window.py", "1.0 if alone or items is None else items", "1.0"),
    M(
        "G5",
        "trainer/custom_loss.py",
        'self.is_normalised = "num_items_in_batch" in parameters or',
        "self.is_normalised = False and",
    ),
    M(
        "C1",
        "checkpoints/writer.py",
        "        except BaseException:\n            remove_staging(staging)",
        "        except BaseException:\n            staging.rename(target)",
    ),
    M("C1", "checkpoints/manifest.py", "hashlib.sha256(manifest)", "hashlib.sha256(manifest[:-1])"),
    M(
        "C2",
        "checkpoints/manifest.py",
        'if hash_file(checkpoint / name).sha256 != expected["sha256"]:',
        "if False:",
    ),
    M("C2", "checkpoints/reader.py", "weights_only=True", "weights_only=False"),
    M("C2", "checkpoints/manifest.py", "    if mark != complete_mark(content):", "    if False:"),
    M(
        "C3",
        "checkpoints/signature.py",
        'return list(_compare("", _as_json(saved), _as_json(current)))',
        "return []",
    ),
    M(
        "C3",
        "trainer/resume.py",
        '            "micro_batch": args.per_device_train_batch_size,\n',
        "",
    ),
    M("C3", "checkpoints/manifest.py", "    _check_version(checkpoint, manifest)\n", ""),
    M(
        "C4",
        "checkpoints/layout.py",
        "for _, path in sorted(_numbered(Path(run_dir)), reverse=True):",
        "for _, path in sorted(_numbered(Path(run_dir)), key=lambda f: f[1].name, reverse=True):",
    ),
    M(
        "C4",
        "checkpoints/layout.py",
        "        if is_complete(path):\n            return path",
        "        return path",
    ),
    M("C5", "trainer/resume.py", "    restore_random_state(checkpoint.rng())\n", ""),
    M(
        "C5",
        "trainer/resume.py",
        "    graph.optimizers.load_state_dict(checkpoint.optimizer())\n",
        "",
    ),
    M("C5", "trainer/resume.py", "    schedulers.load_state_dict(checkpoint.scheduler())\n", ""),
    M("C5", "trainer/resume.py", '    progress.load_state_dict(document["log_window"])\n', ""),
    M(
        "C5",
        "trainer/resume.py",
        '    graph.adapter.load_recipe_state_dict(runtime["recipe"])\n',
        "",
    ),
    M("C5", "trainer/averaging.py", "        self.ema.load_state_dict(state)\n", "        pass\n"),
    M(
        "C5",
        "trainer/freezing.py",
        "        self._policy.apply(state.global_step)\n",
        "        pass\n",
    ),
    M(
        "C6",
        "adapters/portable.py",
        "_export_native(adapter.model, directory / NATIVE_EXPORT)",
        "_export_native(adapter.model, directory)",
    ),
    M(
        "C6",
        "trainer/saving.py",
        "    if path.is_file():\n        manifest = json",
        "    if False:\n        manifest = json",
    ),
    M(
        "C6",
        "trainer/trainer.py",
        "        with weights_in_use(self.averaging, weights):\n            return saving",
        "        if True:\n            return saving",
    ),
    M("C7", "trainer/saving.py", "in (name, state.best_model_checkpoint)", "in (name,)"),
    M("C8", "trainer/saving.py", '"recipe": adapter.recipe_state_dict(),', '"recipe": {},'),
    M("C8", "adapters/portable.py", "    _save_recipe_state(adapter, directory)\n", ""),
    M(
        "C8",
        "adapters/base.py",
        "        self.is_ready = True\n        restore_recipe_state(self)",
        "        restore_recipe_state(self)\n        self.is_ready = True",
    ),
    M("E1", "trainer/evaluation.py", "        restore_random_state(state)\n", "        pass\n"),
    M("E1", "trainer/evaluation.py", "    adapter.eval_mode()\n", ""),
    M(
        "E1",
        "trainer/evaluation.py",
        "float(batch.size if output.num_items is None else output.num_items)",
        "1.0",
    ),
    M("E1", "trainer/evaluation.py", "with torch.no_grad():", "if True:"),
    M("E1", "trainer/trainer.py", '{**metrics, "weights": weights}', "metrics"),
)


def passes(statement: str, file: str, source: str) -> bool:
    """Whether the tests of a statement pass on a copy of the package with one file replaced.

    Raises:
        RuntimeError: pytest did not come as far as running them.
    """
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "voicehub"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / file).write_text(source, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["--rootdir", str(ROOT), "-k", f"{statement}_", "tests/contract"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-500:]}")
    return done.returncode == 0


def verdict(mutation: Mutation) -> str:
    """``caught``, ``SURVIVED`` or ``STALE``."""
    source = (PACKAGE / mutation.file).read_text(encoding="utf-8")
    if mutation.old not in source:
        return "STALE"
    changed = source.replace(mutation.old, mutation.new, 1)
    return "SURVIVED" if passes(mutation.statement, mutation.file, changed) else "caught"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("statements", nargs="*", help="such as R3; all by default")
    chosen = parser.parse_args(arguments).statements
    wanted = [mutation for mutation in MUTATIONS if mutation.statement in chosen or not chosen]
    holes = 0
    for statement in dict.fromkeys(mutation.statement for mutation in wanted):
        source = (PACKAGE / "errors.py").read_text(encoding="utf-8")
        if not passes(statement, "errors.py", source):
            print(f"{statement}: its tests fail without any mutation")
            return 1
    for mutation in wanted:
        result = verdict(mutation)
        holes += result != "caught"
        first = mutation.old.strip().splitlines()[0]
        print(f"{mutation.statement:3} {result:9} {mutation.file}: {first}", flush=True)
    print(f"{holes} not caught")
    return int(holes > 0)


if __name__ == "__main__":
    sys.exit(main())
