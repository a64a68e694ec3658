"""What the agent counts of DataLoaders: samples of every kind of batch, without a trace."""

from __future__ import annotations

import warnings

import pytest
from tests.probe.made import written_reports, written_steps

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import LoaderInfo
from outlay.probe.agent.step_watch import StepWatch

pytestmark = pytest.mark.torch


@pytest.fixture
def watch():
    import torch

    watch = StepWatch(torch, Channel())
    watch.install()
    yield watch
    watch.uninstall()


def counted(watch, loader):
    """Samples of each batch, as they are counted."""
    counts = []
    for _ in loader:
        counts.append(watch.counters.samples)
        watch.counters.reset()
    return counts


def iterable(samples):
    import torch

    class Samples(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(samples)

        def __len__(self):
            return len(samples)

    return Samples()


def of_lengths(*lengths):
    import torch

    return [torch.ones(length, 2) for length in lengths]


def apart(batch):
    return tuple(zip(*batch, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_the_indices_of_a_batch(watch, workers):
    """Images of three colours in a tuple: their first dimension is no batch."""
    import torch

    data = [(torch.ones(3, size, size), {"boxes": torch.ones(2, 4)}) for size in range(4, 24)]
    loader = torch.utils.data.DataLoader(data, 8, collate_fn=apart, num_workers=workers)
    assert counted(watch, loader) == [8, 8, 4]  # of 20


def test_time_first_is_no_batch(watch):
    import torch

    data = of_lengths(*[3, 5, 2, 4] * 4)
    padded = torch.nn.utils.rnn.pad_sequence
    assert counted(watch, torch.utils.data.DataLoader(data, 8, collate_fn=padded)) == [8, 8]
    loader = torch.utils.data.DataLoader(iterable(data), 8, collate_fn=padded)
    assert counted(watch, loader) == [8, 8]


def test_an_epoch_that_is_left_leaves_nothing_behind(watch):
    """Workers that persist have loaded ahead; those batches never come."""
    import torch

    loader = torch.utils.data.DataLoader(
        torch.ones(10, 2), 4, num_workers=1, persistent_workers=True
    )
    next(iter(loader))
    watch.counters.reset()
    assert counted(watch, loader) == [4, 4, 2]


def test_a_batch_that_fails_is_not_counted_later(watch):
    import torch

    class Faulty(torch.utils.data.Dataset):
        def __len__(self):
            return 7

        def __getitem__(self, index):
            if index == 0:
                raise ValueError(index)
            return torch.ones(2)

    batches = iter(torch.utils.data.DataLoader(Faulty(), 4))
    with pytest.raises(ValueError, match="0"):
        next(batches)
    next(batches)
    assert watch.counters.samples == 3


def test_of_an_iterable_dataset_rows_tell_the_last_batch(watch):
    import torch

    loader = torch.utils.data.DataLoader(iterable([torch.ones(3)] * 10), 4)
    assert counted(watch, loader) == [4, 4, 2]


@pytest.mark.parametrize(
    ("lengths", "samples"),
    [
        ([5, 9, 7], 3),  # a list of samples that differ in length
        ([6, 6], 6),  # inputs and targets of six samples
    ],
)
def test_where_no_loader_batches_a_list_of_samples_is_counted(watch, lengths, samples):
    import torch

    loader = torch.utils.data.DataLoader(iterable([of_lengths(*lengths)]), batch_size=None)
    assert counted(watch, loader) == [samples]


def test_inputs_and_targets_of_different_rows_are_no_samples(watch):
    """A graph: features of its nodes, and its edges in two rows."""
    import torch

    graph = (torch.ones(50, 4), torch.ones(2, 90, dtype=torch.long))
    loader = torch.utils.data.DataLoader(iterable([graph]), batch_size=None)
    assert counted(watch, loader) == [50]


def test_a_length_is_asked_for_without_a_trace(watch):
    """torch warns where more batches come than a length that was asked for; nobody asked here."""
    import torch

    class Short(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.ones(5, 2))

        def __len__(self):
            return 3

    loader = torch.utils.data.DataLoader(Short(), batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert len(counted(watch, loader)) == 5


def trained(watch, loaders, *, evaluate=None, steps=3):
    """Batches, samples and batches set aside of each step of a model that gets all loaders."""
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for batches in zip(*loaders, strict=False):
            model(torch.cat(batches)).sum().backward()
            optimizer.step()
        if evaluate is not None:
            evaluate(model)
    return counts_of_steps(watch)


def counts_of_steps(watch):
    """Batches and samples of each step, and batches set aside."""
    return [
        (step.batches, step.samples, step.evaluation_batches)
        for step in written_steps(watch.channel)
    ]


def loaded(rows, batch_size):
    import torch

    return torch.utils.data.DataLoader(torch.ones(rows, 2), batch_size)


@pytest.mark.parametrize("loads_without", [True, False])
def test_samples_of_an_evaluation_are_not_those_of_the_next_step(watch, loads_without):
    """Whether its batches are loaded without gradients, or only put through the model."""
    import torch

    evaluated = loaded(9, 3)

    def evaluate(model):
        with torch.set_grad_enabled(not loads_without):
            for batch in evaluated:
                with torch.no_grad():
                    model(batch)

    steps = trained(watch, [loaded(5, 5)], evaluate=evaluate)
    assert steps == [(1, 5, 0), (1, 5, 3), (1, 5, 3)]


def test_an_evaluation_on_a_part_of_its_loader(watch):
    """Batches are loaded with gradients, in evaluation mode, and the loader is left early."""
    import torch

    evaluated = loaded(90, 3)

    def evaluate(model):
        model.eval()
        for place, batch in enumerate(evaluated):
            if place == 2:
                break
            with torch.no_grad():
                model(batch)
        model.train()

    steps = trained(watch, [loaded(10, 5)], steps=2, evaluate=evaluate)
    assert steps == [(1, 5, 0), (1, 5, 0), (1, 5, 3), (1, 5, 0)]


def test_an_evaluation_whose_first_batch_comes_before_its_mode(watch):
    """Each batch is loaded first, then the model is put into evaluation mode for it."""
    import torch

    evaluated = loaded(90, 3)

    def evaluate(model):
        for _, batch in zip(range(3), evaluated, strict=False):
            model.eval()
            with torch.no_grad():
                model(batch)
        model.train()

    steps = trained(watch, [loaded(10, 5)], steps=2, evaluate=evaluate)
    assert steps == [(1, 5, 0), (1, 5, 0), (1, 5, 3), (1, 5, 0)]


@pytest.mark.parametrize("same", [True, False])
def test_a_model_that_is_put_back_to_train_after_its_batch_is_loaded(watch, same):
    """Whether it was evaluated on the same data or on other."""
    import torch

    data = loaded(20, 5)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for place, batch in enumerate(data):
        model.train()
        model(batch).sum().backward()
        optimizer.step()
        if place == 1:
            for other in data if same else loaded(9, 3):
                model.eval()
                with torch.no_grad():
                    model(other)
    assert [step[:2] for step in counts_of_steps(watch)] == [(1, 5)] * 4


@pytest.mark.parametrize("mode", ["evaluation mode", "no gradients"])
def test_an_evaluation_between_a_batch_and_its_step(watch, mode):
    import torch

    evaluated, model = loaded(9, 3), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for place, batch in enumerate(loaded(20, 5)):
        if place % 2:
            model.train(mode != "evaluation mode")
            with torch.set_grad_enabled(mode == "evaluation mode"):
                for _ in zip(range(2), evaluated, strict=False):
                    pass
            model.train()
        model(batch).sum().backward()
        optimizer.step()
    assert [step[:2] for step in counts_of_steps(watch)] == [(1, 5)] * 4
    assert len(watch.training_loaders) == 1


@pytest.mark.parametrize("early", [True, False])
def test_an_evaluation_on_the_data_that_is_trained_on(watch, early):
    """Its accuracy on all of it, or its loss on a part."""
    import torch

    data = loaded(10, 5)

    @torch.no_grad()
    def evaluate(model):
        model.eval()
        for batch in data:
            model(batch)
            if early:
                break
        model.train()

    steps = trained(watch, [data], steps=2, evaluate=evaluate)
    assert steps == [(1, 5, 0), (1, 5, 0), (1, 5, 1 if early else 2), (1, 5, 0)]
    assert [step.new_epoch for step in written_steps(watch.channel)] == [1, 0, 1, 0]


def test_training_without_a_loader_is_not_on_that_of_its_evaluation(watch):
    import torch

    model, rows = torch.nn.Linear(2, 1), loaded(9, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        if step % 2:
            with torch.no_grad():
                for batch in rows:
                    model(batch)
        model(torch.ones(5, 2)).sum().backward()
        optimizer.step()
    assert [step[:2] for step in counts_of_steps(watch)] == [(0, 0)] * 6


def test_a_loader_that_is_asked_in_evaluation_mode_alone_is_trained_on(watch):
    """Fine-tuning with all layers in evaluation mode, put there before each batch."""
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = iter(loaded(20, 5))
    for _ in range(4):
        model.train()
        model.eval()
        model(next(rows)).sum().backward()
        optimizer.step()
    assert [samples for _, samples, _ in counts_of_steps(watch)] == [0, 0, 5, 5]


def test_loaders_side_by_side_are_all_trained_on(watch):
    assert trained(watch, [loaded(6, 3), loaded(8, 4)]) == [(2, 7, 0)] * 6


def test_a_loader_with_an_iteration_of_its_own_has_epochs(watch):
    """As torchdata's StatefulDataLoader, which makes and keeps its iterators by itself."""
    import torch

    class OwnLoader(torch.utils.data.DataLoader):
        def __iter__(self):
            self._iterator = self._get_iterator()
            return self._iterator

    data = torch.utils.data.TensorDataset(torch.ones(24, 4))
    loader, layer = OwnLoader(data, batch_size=8), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        for (rows,) in loader:
            layer(rows).sum().backward()
            optimizer.step()
    made = written_steps(watch.channel)
    assert [step.samples for step in made] == [8] * 6
    assert [step.new_epoch for step in made] == [1, 0, 0, 1, 0, 0]
    (info,) = written_reports(watch.channel, LoaderInfo)
    assert info.batches == 3  # 24 samples in batches of 8
