"""What each variable could do given all others: the step that local search by messages is made of.

Forbidden combinations come first: a value at which fewer factors are broken is better than any at which more are, and
of equal ones that with the larger sum of those that are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from swarmbo.coordination.messages import Line
from swarmbo.coordination.repair import hear_choices, line_of, tell_choice, weighed
from swarmbo.coordination.requests import Mail, Steps
from swarmbo.coordination.tables import Table, Vector
from swarmbo.coordination.view import LocalView


@dataclass(frozen=True, eq=False)
class Outlook:
    """What one variable could do.

    Args:
        present: The index of its value.
        broken: For each value how many of its factors are broken (d,).
        worth: For each value the sum of its factors that are not (d,).
        in_conflict: Whether one of its factors would be better at another value of this variable.
    """

    present: int
    broken: Vector
    worth: Vector
    in_conflict: bool

    @property
    def best(self) -> Bool[np.ndarray, " d"]:
        """The values that nothing is better than."""
        fewest = self.broken == self.broken.min()
        return fewest & (self.worth == self.worth[fewest].max())

    @property
    def gain(self) -> tuple[int, float]:
        """How many factors fewer would be broken at the best value, and by how much the sum of others would rise.

        Gains are compared in this order; (0, 0.0) where the present value is among the best.
        """
        best = int(self.best.argmax())
        broken, worth = self.broken[self.present] - self.broken[best], self.worth[best] - self.worth[self.present]
        return int(broken), float(worth)

    @property
    def alternatives(self) -> Int[np.ndarray, " k"]:
        """The best values other than the present one."""
        best = self.best
        best[self.present] = False
        return np.flatnonzero(best)


def looked_around(
    view: LocalView, tables: Mapping[str, Table], chosen: Mapping[str, int]
) -> Steps[tuple[dict[str, Outlook], Vector]]:
    """Owners of variables tell their choices, and those of factors answer what each value would bring.

    Args:
        view: Own factors and variables.
        tables: Of the own factors.
        chosen: The choices of own variables.

    Returns:
        What each own variable could do, and the values of the own factors at the joint choice.
    """
    graph, mail, seen = view.graph, Mail(), dict(chosen)
    for x in view.variables:
        tell_choice(mail, graph, x, chosen[x])
    yield from hear_choices(mail, view.seen, seen)
    for f in view.factors:
        for x in graph.scope(f):
            entries = line_of(tables[f], graph.scope(f), x, seen)
            mail.say(graph.owner(f), graph.variable_owner(x), Line(f, x, entries, 1.0))
    yield from mail.wait([("line", f, x) for x in view.variables for f in graph.factors_of(x)])
    yield from mail.close()
    outlooks: dict[str, Outlook] = {}
    for x in view.variables:
        lines, i = [mail["line", f, x].entries for f in graph.factors_of(x)], chosen[x]
        in_conflict = any(line[i] < line.max() or line[i] == -np.inf for line in lines)
        outlooks[x] = Outlook(i, *weighed(lines, [1.0] * len(lines)), in_conflict)
    return outlooks, np.array([tables[f][tuple(seen[x] for x in graph.scope(f))] for f in view.factors])
