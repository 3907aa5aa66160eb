"""Two ranks find what one process finds."""

import pytest
from processes import run_ranks, script

SCRIPT = """
import sys
import numpy as np
import torch.distributed as dist
import happier
from happier.errors import InputError
from happier.torchmetrics import HierarchicalRetrieval
import torch

dist.init_process_group("gloo")
rank = dist.get_rank()
generator = np.random.default_rng(0)
labels = generator.integers(0, 3, size=(21, 2))
vectors = generator.integers(-2, 3, size=(21, 3)).astype(np.float32)
likeness = generator.random((21, 21))
for engine in ("kernel", "torch"):
    for relevance in (happier.HierarchyRelevance(), lambda q: likeness[q]):
        for items in (21, 1):  # one query: a rank goes without
            arguments = vectors[:items], labels[:items], vectors, labels
            if items == 21:
                arguments = vectors, labels
            elif callable(relevance) and not hasattr(relevance, "count_query"):
                continue
            options = dict(engine=engine, relevance=relevance, ks=(1, 5))
            alone = happier.evaluate(*arguments, distributed=False, **options)
            shared = happier.evaluate(*arguments, **options)
            assert list(alone.per_query) == list(shared.per_query)
            for name, values in alone.per_query.items():
                np.testing.assert_allclose(shared.per_query[name], values, atol=1e-12, err_msg=name)
            for name, value in alone.summary.items():
                np.testing.assert_allclose(shared.summary[name], value, atol=1e-12, err_msg=name)

try:
    happier.evaluate(vectors[: 10 + rank], labels[: 10 + rank])
except InputError as error:
    assert "every rank" in str(error) or "same inputs" in str(error), error
else:
    raise AssertionError("different inputs went unnoticed")

metric = HierarchicalRetrieval(ks=(1,))
mine = torch.arange(21)[rank::2]
if rank == 1:
    mine = torch.cat([mine, torch.tensor([0])])  # a sampler that fills the last batch repeats an item
for batch in mine.split(4):
    metric.update(torch.from_numpy(vectors)[batch], torch.from_numpy(labels)[batch], batch)
whole = happier.evaluate(vectors, labels, ks=(1,), distributed=False).summary
for name, value in metric.compute().items():
    np.testing.assert_allclose(float(value), whole[name], atol=1e-12, err_msg=name)
print(f"rank {rank} agrees")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_equal_one_process():
    for rank, done in enumerate(run_ranks(script, SCRIPT)):
        assert done.code == 0, done.err[-3000:]
        assert f"rank {rank} agrees" in done.out
