"""The same batches from any position, whoever does the work, with the random state left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate

from voicehub.data.access import is_pure, keyed_access
from voicehub.data.collate import DataCollatorForTTSTraining, default_data_collator
from voicehub.data.loader import BatchLoader, build_loader
from voicehub.data.plan import DurationBucketedPlan, FixedSizePlan
from voicehub.errors import ConfigurationError, DataError, OptionalDependencyError

PLAN = FixedSizePlan(23, 4, seed=9)


def load(dataset, plan=PLAN, *, epoch=1, collate_fn=default_data_collator, **options):
    return list(build_loader(dataset, plan, epoch=epoch, collate_fn=collate_fn, **options))


def noisy_collate(samples):
    """Draws from every global generator."""
    noise = torch.rand(1).item() + np.random.randn() + random.gauss(0, 1)
    return {"noise": noise, "size": len(samples)}


# Order and content


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("start", [0, 1, 4, 5, 6])
def test_workers_and_position_change_nothing(dataset, workers, start, assert_equal):
    whole = load(dataset)
    assert len(whole) == 6
    assert_equal(load(dataset, start_batch=start), whole[start:])
    assert_equal(load(dataset, start_batch=start, num_workers=workers), whole[start:])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_drawing_collator_gives_the_same_batches_too(dataset, workers, assert_equal):
    whole = load(dataset, collate_fn=noisy_collate)
    assert len({batch["noise"] for batch in whole}) == len(whole)
    again = load(dataset, collate_fn=noisy_collate, start_batch=2, num_workers=workers)
    assert_equal(again, whole[2:])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [default_data_collator, noisy_collate])
def test_the_random_state_of_the_process_is_left_alone(dataset, workers, collate_fn, random_state):
    np.random.randn()  # leaves a second draw pending beside NumPy's state
    random.gauss(0, 1)
    before = random_state()
    for _ in build_loader(dataset, PLAN, epoch=0, collate_fn=collate_fn, num_workers=workers):
        assert random_state() == before
    assert random_state() == before


def test_what_the_process_draws_changes_no_batch(dataset, assert_equal):
    expected = load(dataset)
    torch.rand(5), np.random.rand(5), random.random()
    assert_equal(load(dataset), expected)


def test_epochs_seeds_and_repeated_samples_draw_anew(global_noise):
    def draws(plan, epoch):
        batches = load(global_noise(), plan, epoch=epoch)
        return {
            int(i): tuple(row.tolist())
            for batch in batches
            for i, row in zip(batch["index"], batch["torch"], strict=True)
        }

    first = draws(PLAN, 0)
    assert all(first[i] != draws(PLAN, 1)[i] for i in first)
    assert all(first[i] != draws(FixedSizePlan(23, 4, seed=10), 0)[i] for i in first)

    class Twice(FixedSizePlan):
        def batches(self, epoch):
            return [[3, 3], [3]]

    rows = [row for batch in load(global_noise(), Twice(23, 4)) for row in batch["torch"].tolist()]
    assert len(set(map(tuple, rows))) == 3


def test_draws_do_not_depend_on_how_the_plan_is_cut(global_noise, assert_equal):
    """A window of 1 x 8 and one of 4 x 2 see the same augmented samples."""

    def samples(size):
        plan = FixedSizePlan(23, size, seed=9, shuffle=True)
        batches = load(global_noise(), plan)
        return [torch.cat([batch[name] for batch in batches]) for name in ("torch", "numpy")]

    assert_equal(samples(8), samples(2))


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_ranks_share_out_the_global_plan(dataset, world_size, assert_equal):
    whole = load(dataset)
    ranks = [load(dataset, rank=r, world_size=world_size) for r in range(world_size)]
    for step, batch in enumerate(whole):
        assert_equal(ranks[step % world_size][step // world_size], batch)
    assert sum(map(len, ranks)) == len(whole)
    later = load(dataset, rank=1, world_size=world_size, start_batch=min(world_size, len(whole)))
    assert_equal(later, ranks[1][1:])


def test_ranks_share_out_what_is_left_from_any_position(dataset, assert_equal):
    whole = load(dataset)
    for start in range(len(whole)):
        ranks = [load(dataset, rank=r, world_size=2, start_batch=start) for r in range(2)]
        for step, batch in enumerate(whole[start:]):
            assert_equal(ranks[step % 2][step // 2], batch)


def test_a_late_start_reads_nothing_before_it(keyed_noise):
    dataset = keyed_noise()
    load(dataset, start_batch=4)
    assert dataset.read == [i for batch in PLAN.batches(1)[4:] for i in batch]


def test_keys_name_the_draw_in_the_global_plan(keyed_noise):
    batches = load(keyed_noise(), rank=1, world_size=2)
    key = batches[1]["key"][2]
    assert key == (9, 1, 3 * 4 + 2, PLAN.batches(1)[3][2])


def test_bucketed_plans_load_too(dataset, assert_equal):
    plan = DurationBucketedPlan([1 + i % 5 for i in range(23)], 12.0, 6, seed=2, num_buckets=3)
    whole = load(dataset, plan)
    assert_equal(load(dataset, plan, start_batch=2, num_workers=2), whole[2:])


# Kinds of datasets


def test_only_datasets_known_to_draw_nothing_count_as_pure():
    tensors = TensorDataset(torch.arange(4))

    class Jittered(TensorDataset):
        def __getitem__(self, index):
            return (super().__getitem__(index)[0] + torch.rand(1),)

    class JitteredSubset(Subset):
        def __getitem__(self, index):
            return super().__getitem__(index)

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    class Denied(TensorDataset):
        deterministic = False

    assert all(map(is_pure, [[1], (1,), tensors, Subset(tensors, [0]), tensors + tensors]))
    jittered = Jittered(torch.arange(4))
    unknown = [
        jittered,
        Subset(jittered, [0]),
        ConcatDataset([tensors, jittered]),
        JitteredSubset(tensors, [0]),
        Denied(torch.arange(4)),
    ]
    assert not any(map(is_pure, unknown))


def test_keyed_access_reaches_through_subset_and_concatenation(keyed_noise, assert_equal):
    dataset = keyed_noise(10)
    joined = ConcatDataset([Subset(dataset, [3, 1, 4]), Subset(dataset, [5, 9])])
    key = (0, 0, 0, 0)
    for index, original in enumerate([3, 1, 4, 5, 9]):
        assert_equal(keyed_access(joined)(index, key), dataset.get_item(original, key))
    assert keyed_access(ConcatDataset([dataset, TensorDataset(torch.ones(1))])) is None


def test_hugging_face_datasets_are_pure_unless_transformed(assert_equal):
    datasets = pytest.importorskip("datasets")
    stored = datasets.Dataset.from_dict({"x": [[float(i)] * 2 for i in range(23)]})
    assert is_pure(stored)
    assert not is_pure(stored.with_transform(lambda rows: rows))
    batches = load(stored)
    assert batches[0]["x"].tolist() == [[float(i)] * 2 for i in PLAN.batches(1)[0]]
    assert_equal(load(stored, num_workers=1, start_batch=1), batches[1:])


def test_gathering_tensors_equals_stacking_samples(assert_equal):
    dataset = TensorDataset(
        torch.randn(23, 3, dtype=torch.float64),
        torch.arange(23),
        torch.rand(23, 2, 2) > 0.5,
        torch.randn(3, 23).t(),
    )
    stacked = load(dataset, collate_fn=lambda samples: default_data_collator(samples))
    gathered = load(dataset)
    assert_equal(gathered, stacked)
    gathered[0][0].zero_()
    assert not dataset.tensors[0][PLAN.batches(1)[0]].eq(0).any(), "a batch shares no memory"


def test_torch_collate_functions_are_guarded_no_further(global_noise, assert_equal):
    assert_equal(
        load(global_noise(), collate_fn=default_collate),
        load(global_noise(), collate_fn=default_collate, num_workers=1),
    )


# Workers


class ProcessFacts(Dataset):
    deterministic = True

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return {"pid": os.getpid(), "threads": torch.get_num_threads()}


def test_workers_persist_and_use_one_thread():
    with BatchLoader(
        ProcessFacts(), PLAN, collate_fn=default_data_collator, num_workers=2
    ) as loader:
        facts = [list(loader.epoch(epoch)) for epoch in range(3)]
    pids = [{pid for batch in epoch for pid in batch["pid"].tolist()} for epoch in facts]
    assert pids[0] == pids[1] == pids[2]
    assert len(pids[0]) == 2
    assert os.getpid() not in pids[0]
    assert all(batch["threads"].eq(1).all() for epoch in facts for batch in epoch)


def test_an_epoch_left_early_disturbs_no_later_one(dataset, assert_equal):
    with BatchLoader(dataset, PLAN, collate_fn=default_data_collator, num_workers=2) as loader:
        for _ in loader.epoch(0):
            break
        assert_equal(list(loader.epoch(1, 2)), load(dataset)[2:])
        loader.close()
        assert_equal(list(loader.epoch(1)), load(dataset))


def test_workers_may_be_spawned(tmp_path):
    """Everything that goes to a worker pickles, and a fresh interpreter draws the same."""
    script = tmp_path / "spawned.py"
    script.write_text(
        "import numpy as np, torch\n"
        "from torch.utils.data import Dataset\n"
        "from voicehub.data.collate import DataCollatorForTTSTraining\n"
        "from voicehub.data.loader import BatchLoader\n"
        "from voicehub.data.plan import FixedSizePlan\n"
        "class Noise(Dataset):\n"
        "    def __len__(self): return 7\n"
        "    def __getitem__(self, i): return {'x': torch.randn(1 + i), 'y': np.random.rand()}\n"
        "if __name__ == '__main__':\n"
        "    def batches(**options):\n"
        "        loader = BatchLoader(Noise(), FixedSizePlan(7, 2, 1),\n"
        "                             collate_fn=DataCollatorForTTSTraining(), **options)\n"
        "        with loader:\n"
        "            return [(b['x'].tolist(), b['y'].tolist()) for b in loader.epoch(0)]\n"
        "    spawned = batches(num_workers=1, multiprocessing_context='spawn')\n"
        "    assert spawned == batches(), 'spawned workers differ'\n"
    )
    subprocess.run([sys.executable, str(script)], check=True)


# Failures


class Broken(Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 23

    def sample_id(self, index):
        return f"utt-{index}"

    def __getitem__(self, index):
        if index == 13:
            raise self.error
        return {"x": index}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["global", "pure", "keyed"])
def test_a_sample_that_cannot_be_read_is_named(workers, kind):
    dataset = Broken(OSError("bad header"))
    if kind == "pure":
        dataset.deterministic = True
    if kind == "keyed":
        dataset.get_item = lambda index, key: dataset[index]
    with pytest.raises(
        DataError, match=r"sample 13 \(id 'utt-13'\).*OSError: bad header"
    ) as caught:
        load(dataset, num_workers=workers)
    assert isinstance(caught.value.__cause__, OSError) or "bad header" in str(
        caught.value.__cause__
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_ours_keep_their_class(workers):
    error = OptionalDependencyError("decoding MP3 needs soundfile")
    with pytest.raises(OptionalDependencyError, match=r"sample 13.*needs soundfile"):
        load(Broken(error), num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_in_a_dataset_ends_no_epoch(workers):
    with pytest.raises(DataError, match=r"sample 13.*StopIteration"):
        load(Broken(StopIteration()), num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_cannot_be_collated_are_named(keyed_noise, workers):
    def refuse(samples):
        raise ZeroDivisionError("no frames")

    ids = [f"utt-{i:02d}" for i in PLAN.batches(1)[0]]
    with pytest.raises(DataError, match=rf"{ids[0]}.*{ids[-1]}.*ZeroDivisionError: no frames"):
        load(keyed_noise(), collate_fn=refuse, num_workers=workers)
    with pytest.raises(DataError, match=rf"indices \[{PLAN.batches(1)[0][0]}, "):
        load(list(range(23)), collate_fn=refuse, num_workers=workers)


def test_an_index_beyond_a_tensor_dataset_is_named():
    with pytest.raises(DataError, match=r"sample 2[0-2] could not be read"):
        load(TensorDataset(torch.ones(20)))


def test_a_batch_that_fails_as_a_whole_only_is_named(keyed_noise):
    class Together(list):
        deterministic = True

        def __getitems__(self, indices):
            raise OSError("no batches")

    with pytest.raises(DataError, match=r"samples .* together: OSError: no batches"):
        load(Together(range(23)))


class Dying(Dataset):
    deterministic = True

    def __len__(self):
        return 23

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_reported_with_what_was_due():
    first = PLAN.batches(1)[0]
    with pytest.raises(DataError, match=rf"worker ended.*\[{first[0]}, {first[1]}.*Memory"):
        load(Dying(), num_workers=1)


@pytest.mark.parametrize("start", [-1, 7])
def test_a_start_outside_the_epoch_is_refused(start):
    with pytest.raises(ConfigurationError, match=f"start_batch is {start}.*6 batches"):
        load(list(range(23)), start_batch=start)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigurationError, match="num_workers"):
        load([1], num_workers=-1)
    with pytest.raises(ConfigurationError, match="rank"):
        load([1], rank=2, world_size=2)


# Devices


def test_pinning_is_ignored_without_cuda(monkeypatch, assert_equal):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_equal(load(list(range(23)), pin_memory=True), load(list(range(23))))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a CUDA device")
@pytest.mark.parametrize("workers", [0, 1])
def test_pinning_reaches_every_tensor_of_a_batch(keyed_noise, workers, assert_equal):
    collator = DataCollatorForTTSTraining()
    batches = load(keyed_noise(), collate_fn=collator, pin_memory=True, num_workers=workers)
    assert all(batch["x"].is_pinned() for batch in batches)
    assert_equal(batches, load(keyed_noise(), collate_fn=collator))


class ElaborateError(DataError):
    """An error of a plugin that wants more than a message."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_that_want_more_than_a_message_become_data_errors(workers):
    with pytest.raises(DataError, match=r"sample 13.*: bad codec") as caught:
        load(Broken(ElaborateError("bad codec", 7)), num_workers=workers)
    assert type(caught.value) is DataError
