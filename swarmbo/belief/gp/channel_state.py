"""A belief's state as JSON data and arrays, exact to the bit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.engine import ChannelGP
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.stack import StackedParts
from swarmbo.errors import StateVersionError

_VERSION = 5  # 5: rounds by that name


_DATA = ("points", "totals", "factors", "noise", "rounds", "pending", "pending_rounds")

B = TypeVar("B", bound=ChannelGP)


def write_channels(belief: ChannelGP, hyperparameters: Any, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Data, hyper-parameters and posterior of a belief, that of points pending included."""
    on_data, given = belief._on_data, belief._given  # pyright: ignore[reportPrivateUsage]
    whole = on_data if given is None else given
    written = {
        "version": _VERSION,
        **plain,
        "hyperparameters": hyperparameters,
        "now": belief.now,
        "is_coupled": on_data.is_coupled,
        "jitters": on_data.jitters.tolist(),
        "jitters_pending": None if given is None else given.jitters.tolist(),
    }
    arrays = {name: getattr(belief, name) for name in (*_DATA, "awaited")}
    if isinstance(whole.parts, StackedParts):  # all follows from the inverses
        for i, count in enumerate(whole.counts.tolist()):
            (arrays[f"inverse_{i}"],) = whole.parts.inverse.squares(np.array([i]), count)
    else:
        arrays["L_0"] = whole.parts[0].L
        if whole.parts[0].kept_inverse is not None:
            arrays["inverse_0"] = whole.parts[0].kept_inverse
    return {"json": written, "arrays": {name: array.copy(order="K") for name, array in arrays.items()}}


def read_channels(state: Mapping[str, Any], made: Callable[[Mapping[str, Any]], B]) -> B:
    """Belief that ``write_channels`` wrote down; ``made`` makes one without data from the plain data."""
    plain = dict(state["json"])
    if plain.get("version") != _VERSION:
        raise StateVersionError(
            f"belief state: got version {plain.get('version')}; wanted {_VERSION}, the version that reads it"
        )
    # always one memory order, whatever the file kept: so BLAS is called in the same way
    arrays = {name: np.array(state["arrays"][name], dtype=float, order="C") for name in _DATA}
    awaited = np.array(state["arrays"]["awaited"], dtype=bool)
    belief = made(plain)._with(**arrays, awaited=awaited, now=float(plain["now"]))  # pyright: ignore[reportPrivateUsage]
    data, is_coupled = belief.observations, belief.is_one_latent or bool(plain["is_coupled"])
    hyper, scopes, pending = belief.channels, belief.scopes, plain["jitters_pending"]
    given, both = None, data if pending is None else data.then(belief.ahead)
    if not is_coupled:
        inverses = [np.array(state["arrays"][f"inverse_{i}"], dtype=float) for i in range(len(scopes))]
        parts = StackedParts.restored(hyper, data, inverses, plain["jitters"])
        base = Conditioned(hyper, scopes, data, is_coupled, parts, belief.now)
        if pending is not None:
            given = replace(base, data=both, parts=StackedParts.restored(hyper, both, inverses, pending))
        return belief._with(base=base, given=given)  # pyright: ignore[reportPrivateUsage]
    hyper = hyper.in_one_unit()
    L, inverse, residual = np.array(state["arrays"]["L_0"], dtype=float, order="F"), None, data.residuals(hyper)
    if "inverse_0" in state["arrays"]:
        inverse = np.array(state["arrays"]["inverse_0"], dtype=float, order="C")
    r = len(residual)
    first = None if inverse is None else np.ascontiguousarray(inverse[:r, :r])
    known = Factorised.restored(np.asfortranarray(L[:r, :r]), first, residual, float(plain["jitters"][0]))
    base = Conditioned(hyper, scopes, data, is_coupled, (known,), belief.now)
    if pending is not None:
        given = replace(base, data=both, parts=(known.awaiting(L, inverse, float(pending[0])),))
    return belief._with(base=base, given=given)  # pyright: ignore[reportPrivateUsage]
