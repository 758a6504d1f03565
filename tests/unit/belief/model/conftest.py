"""All set partitions, to compare samplers with."""

from collections.abc import Iterator

from swarmbo.belief.model.partitions import Partition, canonical


def all_partitions(n: int, largest: int | None = None) -> Iterator[Partition]:
    """All partitions of {0, …, n-1}, as many as the n-th Bell number; fewer with a cap on the size of blocks."""
    if n == 0:
        yield ()
        return
    for partition in all_partitions(n - 1, largest):
        for i, block in enumerate(partition):
            if largest is None or len(block) < largest:
                yield canonical([*partition[:i], (*block, n - 1), *partition[i + 1 :]])
        yield canonical([*partition, (n - 1,)])
