"""Scopes drawn at random, to be redrawn every round: no data are looked at."""

import numpy as np

from swarmbo.belief.structure.partitions import Partition, Scopes, canonical


def random_blocks(n: int, size: int, rng: np.random.Generator) -> Partition:
    """A random permutation of {0, …, n-1}, cut into blocks of a size; the last one may be smaller.

    Args:
        n: Number of variables.
        size: Of blocks, >= 1.
        rng: What is drawn from.
    """
    order = rng.permutation(n).tolist()
    return canonical(order[i : i + size] for i in range(0, n, size))


def random_forest(n: int, edges: int, rng: np.random.Generator) -> Scopes:
    """Edges of a random forest as scopes of two; variables that no edge touches are scopes of one.

    Edges are drawn one after the other from all that close no loop.

    Args:
        n: Number of variables.
        edges: At most this many; a forest has n - 1 at most.
        rng: What is drawn from.

    Source:
        Ziomek & Bou-Ammar 2023 (RDUCB).
    """
    tree = list(range(n))  # which tree a variable is in
    scopes = list[tuple[int, int]]()
    first, second = np.triu_indices(n, 1)
    for e in rng.permutation(len(first)):
        a, b = int(first[e]), int(second[e])
        if len(scopes) >= edges:
            break
        if tree[a] != tree[b]:
            scopes.append((a, b))
            tree = [tree[a] if root == tree[b] else root for root in tree]
    touched = {variable for scope in scopes for variable in scope}
    return canonical([*scopes, *((variable,) for variable in range(n) if variable not in touched)])
