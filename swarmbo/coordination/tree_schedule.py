"""When each message of a tree is final: it is computed once, as soon as everything behind it is known."""

from dataclasses import dataclass

from swarmbo.graph import FactorGraph


@dataclass(frozen=True)
class Level:
    """The messages that become final in one round.

    Args:
        from_variables: Variables with the factors that they now write to.
        from_factors: Factors with the variables that they then write to.
    """

    from_variables: tuple[tuple[str, tuple[str, ...]], ...]
    from_factors: tuple[tuple[str, tuple[str, ...]], ...]


def tree_levels(graph: FactorGraph) -> tuple[Level, ...]:
    """The rounds of max-sum on a forest: half its longest path (in edges of the bipartite graph), rounded up.

    Messages of synchronous max-sum that are final in round t are the same in every later round, so nothing is lost by
    sending each only then. Variables do not write to factors that have no other variable.

    Args:
        graph: A forest; elsewhere some messages would never be final.

    Returns:
        One level a round.
    """
    assert graph.is_forest
    wait_of_variable = {(x, f): len(graph.factors_of(x)) - 1 for x in graph.variables for f in graph.factors_of(x)}
    wait_of_factor = {(f, x): len(graph.scope(f)) - 1 for f in graph.factors for x in graph.scope(f)}
    ready = [(x, f) for (x, f), waiting in wait_of_variable.items() if waiting == 0 and len(graph.scope(f)) > 1]
    outgoing = [(f, x) for (f, x), waiting in wait_of_factor.items() if waiting == 0]
    levels: list[Level] = []
    while ready or outgoing:
        for x, f in ready:
            for other in graph.scope(f):
                if other != x:
                    wait_of_factor[f, other] -= 1
                    if wait_of_factor[f, other] == 0:
                        outgoing.append((f, other))
        levels.append(Level(_gathered(ready), _gathered(outgoing)))
        ready = []
        for f, x in outgoing:
            for other in graph.factors_of(x):
                if other != f:
                    wait_of_variable[x, other] -= 1
                    if wait_of_variable[x, other] == 0 and len(graph.scope(other)) > 1:
                        ready.append((x, other))
        outgoing = []
    return tuple(levels)


def _gathered(edges: list[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    recipients: dict[str, list[str]] = {}
    for sender, recipient in edges:
        recipients.setdefault(sender, []).append(recipient)
    return tuple((sender, tuple(others)) for sender, others in recipients.items())
