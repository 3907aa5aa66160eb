"""Which items belong to which rank."""

from hypothesis import given
from hypothesis import strategies as st

from happier import distributed


@given(total=st.integers(0, 1000), world=st.integers(1, 40))
def test_shards_are_everything_once_in_order_and_even(total, world):
    shards = [distributed.shard(total, rank=rank, world_size=world) for rank in range(world)]
    assert [item for first, last in shards for item in range(first, last)] == list(range(total))
    sizes = [last - first for first, last in shards]
    assert max(sizes) - min(sizes) <= 1


def test_one_process_is_one_rank_that_has_everything():
    assert (distributed.rank(), distributed.world_size(), distributed.is_distributed()) == (0, 1, False)
    assert distributed.shard(7) == (0, 7)
    distributed.barrier()
