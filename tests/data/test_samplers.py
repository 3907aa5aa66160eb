"""Batch samplers: exact sizes, no class twice, turns, ranks, resuming."""

import logging
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from happier.data import AttributeBatchSampler, HierarchicalBatchSampler, MPerClassBatchSampler
from happier.errors import InputError, OptionError


def labels_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def tree_labels(groups=4, classes=6, images=5):
    fine = np.repeat(np.arange(groups * classes), images)
    return np.stack([fine // classes, fine], axis=1)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=4, max_size=40),
    per_class=st.integers(1, 4),
    classes=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 5),
)
def test_m_per_class_keeps_its_promises(sizes, per_class, classes, seed, epoch):
    labels = labels_of(sizes)
    sampler = MPerClassBatchSampler(
        labels, batch_size=per_class * classes, per_class=per_class, seed=seed, batches_per_epoch=25
    )
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 25
    before: set[int] = set()
    turns: Counter[int] = Counter()
    for batch in batches:
        assert len(batch) == per_class * classes
        counts = Counter(labels[batch].tolist())
        assert set(counts.values()) == {per_class}
        for own in counts:
            images = Counter(index for index in batch if labels[index] == own)
            assert max(images.values()) - min(images[i] for i in np.flatnonzero(labels == own)) <= 1
        if len(sizes) >= 2 * classes:
            assert not before & set(counts), "neighbouring batches share a class"
        before = set(counts)
        turns.update(counts.keys())
    assert max(turns.values()) - min(turns[own] for own in range(len(sizes))) <= 1, (
        "a class waited for two turns"
    )


def test_images_of_a_class_take_turns():
    sampler = MPerClassBatchSampler(labels_of([10, 10]), batch_size=4, per_class=2, batches_per_epoch=5)
    seen = Counter(index for batch in sampler for index in batch)
    assert set(seen.values()) == {1}
    assert len(seen) == 20


def test_default_length_is_what_the_images_fill():
    assert len(MPerClassBatchSampler(labels_of([10] * 10), batch_size=16)) == 6


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("kind", [MPerClassBatchSampler, HierarchicalBatchSampler])
def test_ranks_share_one_global_batch(kind, world_size):
    labels = tree_labels()
    whole = list(kind(labels, batch_size=16, per_class=2, seed=3))
    parts = [
        list(kind(labels, batch_size=16, per_class=2, seed=3, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert [[row for share in shares for row in share] for shares in zip(*parts, strict=True)] == whole
    for part in parts:
        for batch in part:
            assert set(Counter(labels[batch, 1].tolist()).values()) == {2}


@pytest.mark.parametrize("kind", [MPerClassBatchSampler, HierarchicalBatchSampler])
def test_same_seed_same_batches_and_epochs_differ(kind):
    labels = tree_labels()
    first, second = (kind(torch.from_numpy(labels), batch_size=8, per_class=2, seed=1) for _ in range(2))
    assert list(first) == list(second) == list(first)
    second.set_epoch(1)
    assert list(first) != list(second)
    other = kind(labels, batch_size=8, per_class=2, seed=2)
    assert list(first) != list(other)


@pytest.mark.parametrize("kind", [MPerClassBatchSampler, HierarchicalBatchSampler])
@pytest.mark.parametrize("stop", [0, 1, 5])
def test_resumes_in_the_middle_of_an_epoch(kind, stop):
    labels = tree_labels()
    sampler = kind(labels, batch_size=8, per_class=2, seed=1)
    sampler.set_epoch(4)
    whole = list(sampler)
    iterator = iter(sampler)
    for _ in range(stop):
        next(iterator)
    state = sampler.state_dict()

    resumed = kind(labels, batch_size=8, per_class=2, seed=1)
    resumed.load_state_dict(state)
    resumed.set_epoch(4)  # as a training loop does at the start of each epoch
    assert list(resumed) == whole[stop:]
    assert list(resumed) == whole, "only the first iteration resumes"
    resumed.load_state_dict(state)
    resumed.set_epoch(5)
    assert len(list(resumed)) == len(resumed), "another epoch starts at its beginning"


def test_state_takes_the_count_of_the_training_loop():
    labels = tree_labels()
    sampler = MPerClassBatchSampler(labels, batch_size=8, per_class=2)
    whole = list(sampler)
    loader = DataLoader(torch.arange(len(labels)), batch_sampler=sampler, num_workers=0)
    for done, _ in enumerate(loader, start=1):
        if done == 3:
            break
    resumed = MPerClassBatchSampler(labels, batch_size=8, per_class=2)
    resumed.load_state_dict(sampler.state_dict(done=3))
    assert list(resumed) == whole[3:]


def test_state_of_another_sampler_is_refused():
    state = MPerClassBatchSampler(tree_labels(), batch_size=8, per_class=2, seed=1).state_dict()
    with pytest.raises(OptionError, match=r"another sampler: seed 1 \(here 2\)"):
        MPerClassBatchSampler(tree_labels(), batch_size=8, per_class=2, seed=2).load_state_dict(state)
    with pytest.raises(OptionError, match=r"another sampler: labels \d+ \(here \d+\)$"):
        MPerClassBatchSampler(tree_labels()[::-1].copy(), batch_size=8, per_class=2, seed=1).load_state_dict(
            state
        )
    with pytest.raises(OptionError, match="99 batches done"):
        MPerClassBatchSampler(tree_labels(), batch_size=8, per_class=2, seed=1).load_state_dict(
            {**state, "done": 99}
        )


def test_hierarchical_goes_through_all_pairs():
    labels = tree_labels(groups=4, classes=6)
    sampler = HierarchicalBatchSampler(labels, batch_size=12, per_class=2, batches_per_pair=5, seed=0)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 6 * 5
    pairs = Counter()
    before: set[int] = set()
    for batch in batches:
        assert set(Counter(labels[batch, 0].tolist()).values()) == {6}
        counts = Counter(labels[batch, 1].tolist())
        assert set(counts.values()) == {2}
        assert not before & set(counts)
        before = set(counts)
        pairs[tuple(sorted(set(labels[batch, 0].tolist())))] += 1
    assert len(pairs) == 6
    assert set(pairs.values()) == {5}


def test_every_rank_has_both_coarse_classes():
    labels = tree_labels()
    for rank in range(2):
        for batch in HierarchicalBatchSampler(labels, batch_size=16, per_class=2, rank=rank, world_size=2):
            assert set(Counter(labels[batch, 0].tolist()).values()) == {4}


def test_sop_epoch_has_330_batches():
    labels = tree_labels(groups=12, classes=40, images=5)
    assert len(HierarchicalBatchSampler(labels, batch_size=256)) == 330


def test_a_class_is_its_path():
    labels = np.array([[0, 7]] * 4 + [[1, 7]] * 4)
    sampler = MPerClassBatchSampler(labels, batch_size=8, per_class=4)
    assert Counter(labels[next(iter(sampler)), 0].tolist()) == {0: 4, 1: 4}


def test_small_classes_repeat_or_are_left_out(caplog):
    labels = labels_of([5, 5, 1, 2])
    with caplog.at_level(logging.INFO):
        sampler = MPerClassBatchSampler(labels, batch_size=16, per_class=4)
    assert "2 of 4 classes have fewer than 4 images and repeat images" in caplog.text
    batch = next(iter(sampler))
    assert Counter(labels[batch].tolist()) == {0: 4, 1: 4, 2: 4, 3: 4}
    with caplog.at_level(logging.INFO):
        sampler = MPerClassBatchSampler(labels, batch_size=8, per_class=4, too_few="skip")
    assert "2 of 4 classes have fewer than 4 images and are not sampled" in caplog.text
    assert {own for batch in sampler for own in labels[batch]} == {0, 1}


def test_images_are_drawn_by_the_deepest_class_that_is_known(caplog):
    labels = np.array([[0, 0]] * 4 + [[0, 1]] * 4 + [[0, -1]] * 4 + [[1, -1]] * 4 + [[-1, -1]] * 4)
    with caplog.at_level(logging.INFO):
        sampler = MPerClassBatchSampler(labels, batch_size=8, batches_per_epoch=8)
    assert "4 images have no label" in caplog.text
    assert "8 images are labelled in part" in caplog.text
    drawn = Counter(row for batch in sampler for row in batch)
    assert set(drawn) == set(range(16))
    for batch in sampler:
        assert sorted(Counter(tuple(row) for row in labels[batch].tolist()).values()) == [4, 4]


def test_complete_labels_are_drawn_as_if_there_were_no_others():
    whole = np.array([[one // 3, one] for one in range(9) for _ in range(4)])
    with_unlabelled = np.concatenate([whole, np.full((5, 2), -1)])
    first, second = (
        list(MPerClassBatchSampler(labels, batch_size=8, per_class=4, batches_per_epoch=6, seed=3))
        for labels in (whole, with_unlabelled)
    )
    assert first == second


def test_pairs_of_coarse_classes_take_what_is_known_at_their_level():
    labels = [[one // 6, one // 3, one] for one in range(12) for _ in range(4)]
    labels += [[0, 0, -1]] * 4 + [[0, -1, -1]] * 4
    sampler = HierarchicalBatchSampler(np.array(labels), batch_size=16, per_class=4, level=1)
    drawn = {row for epoch in range(3) for row in _epoch(sampler, epoch)}
    assert not drawn & set(range(52, 56))  # unknown at the level that is paired
    assert drawn & set(range(48, 52))


def _epoch(sampler, epoch):
    sampler.set_epoch(epoch)
    return [row for batch in sampler for row in batch]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 10}, "multiple of per_class x world_size = 4 x 1, got 10"),
        ({"batch_size": 12, "world_size": 2}, "multiple of per_class x world_size = 4 x 2, got 12"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 8, "per_class": 0}, "per_class must be at least 1"),
        ({"batch_size": 8, "rank": 1}, "rank must be 0 to 0"),
        ({"batch_size": 8, "seed": -1}, "seed must be 0 or more"),
        ({"batch_size": 8, "too_few": "drop"}, "too_few must be 'replace' or 'skip', got 'drop'"),
        ({"batch_size": 8, "batches_per_epoch": 0}, "batches_per_epoch must be at least 1"),
        ({"batch_size": 128}, "needs 32 classes, but only 24 can be sampled"),
    ],
)
def test_m_per_class_errors(options, message):
    with pytest.raises(OptionError, match=message):
        MPerClassBatchSampler(tree_labels(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 4}, "multiple of 2 x per_class = 8, got 4"),
        ({"batch_size": 64}, r"4 of 4 coarse classes have fewer \(the smallest has 6\)"),
        ({"batch_size": 8, "level": 1}, "level must be 0 to 0"),
        ({"batch_size": 8, "batches_per_pair": 0}, "batches_per_pair must be at least 1"),
        ({"batch_size": 8, "small_groups": "drop"}, "small_groups must be"),
        (
            {"batch_size": 64, "small_groups": "skip"},
            "at least two coarse classes are needed to make pairs, got 0",
        ),
    ],
)
def test_hierarchical_errors(options, message):
    with pytest.raises(OptionError, match=message):
        HierarchicalBatchSampler(tree_labels(), **options)


def test_hierarchical_needs_two_levels():
    with pytest.raises(InputError, match="two levels or more, got one"):
        HierarchicalBatchSampler(labels_of([4] * 8), batch_size=8)


def test_set_epoch_refuses_negative():
    with pytest.raises(OptionError, match="epoch must be 0 or more"):
        MPerClassBatchSampler(tree_labels(), batch_size=8).set_epoch(-1)


def attribute_table(seed, images=100, attributes=12, share=0.15):
    return np.random.default_rng(seed).random((images, attributes)) < share


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 5),
    per_attribute=st.integers(1, 4),
    groups=st.integers(1, 4),
)
def test_attributes_keep_their_promises(seed, epoch, per_attribute, groups):
    """Whole batches, each image at most once in an epoch; groups that share nothing only at the end."""
    table = attribute_table(seed)
    known = np.flatnonzero(table.any(axis=1))
    size = per_attribute * groups
    sampler = AttributeBatchSampler(table, batch_size=size, per_attribute=per_attribute, seed=seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler) == len(known) // size
    drawn = [row for batch in batches for row in batch]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(known.tolist())
    strangers = [
        group for group in np.reshape(drawn, (-1, per_attribute)) if not table[group].all(axis=0).any()
    ]
    # Fewer than a group's images of each attribute are left over.
    left = np.concatenate([[], *strangers]).astype(int)
    assert (table[left].sum(axis=0) < per_attribute).all()


def test_attributes_by_rank_seed_and_epoch():
    table = attribute_table(1)

    def make(**options):
        return AttributeBatchSampler(table, batch_size=16, per_attribute=2, **{"seed": 3, **options})

    whole = list(make())
    assert list(make()) == whole
    assert list(make(seed=4)) != whole
    parts = [list(make(rank=rank, world_size=4)) for rank in range(4)]
    assert [[row for share in shares for row in share] for shares in zip(*parts, strict=True)] == whole
    sampler, resumed = make(), make()
    iterator = iter(sampler)
    next(iterator), next(iterator)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == whole[2:]
    resumed.set_epoch(1)
    assert list(resumed) != whole
    other = AttributeBatchSampler(~table, batch_size=16, per_attribute=2, seed=3)
    with pytest.raises(OptionError, match="another sampler: labels"):
        other.load_state_dict(sampler.state_dict())


def test_attributes_errors(caplog):
    caplog.set_level(logging.INFO)
    table = attribute_table(2)
    AttributeBatchSampler(table, batch_size=4)
    assert f"{(~table.any(axis=1)).sum()} images have no attributes" in caplog.text
    for options, message in (
        ({"batch_size": 400}, "a batch of 400 needs as many images with attributes, got"),
        ({"batch_size": 6}, "multiple of per_attribute x world_size = 4 x 1"),
        ({"batch_size": 4, "per_attribute": 0}, "per_attribute must be at least 1"),
    ):
        with pytest.raises(OptionError, match=message):
            AttributeBatchSampler(table, **options)
    with pytest.raises(InputError, match=r"\[images, attributes\], got shape \(3,\)"):
        AttributeBatchSampler([1, 0, 1], batch_size=1, per_attribute=1)
