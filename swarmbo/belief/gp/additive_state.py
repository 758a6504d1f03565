"""An additive belief's state as JSON data and arrays, exact to the bit."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from swarmbo.belief.gp.additive_settings import AdditiveHyperparameters
from swarmbo.belief.gp.conditioning import Conditioned, assembled
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.observations import Observations
from swarmbo.belief.gp.state import read_state, write_state
from swarmbo.spaces import Domain

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior

_DATA = ("X", "totals", "factors", "noise", "moments", "pending", "pending_moments")


def write_additive_state(belief: "AdditivePosterior", on_data: Conditioned) -> dict[str, Any]:
    """A belief's data and hyper-parameters, and its posterior given the data."""
    plain = {
        "hyperparameters": msgspec.to_builtins(belief.hyperparameters),
        "outcomes": belief.outcomes,
        "standardise": belief.standardise,
        "fitted_at": belief.fitted_at,
        "now": belief.now,
        "is_tied": on_data.is_tied,
        "jitters": [part.jitter for part in on_data.parts],
    }
    arrays = {name: getattr(belief, name) for name in (*_DATA, "awaited")}
    for i, part in enumerate(on_data.parts):
        arrays |= {f"L_{i}": part.L, f"inverse_{i}": part.inverse}
    return write_state(plain, arrays)


def read_additive_state(state: Mapping[str, Any], domain: Domain, scopes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Fields of the belief that ``write_additive_state`` wrote down.

    Raises:
        StateVersionError: If another version wrote it.
    """
    plain, arrays = read_state(state, _DATA)
    hyper = msgspec.convert(plain["hyperparameters"], AdditiveHyperparameters)
    nothing_told = np.ones((len(arrays["pending"]), len(scopes)), dtype=bool)
    is_tied, jitters = bool(plain["is_tied"]), [float(jitter) for jitter in plain["jitters"]]
    told = (arrays[name] for name in ("totals", "factors", "noise", "moments"))
    data = Observations.of(domain.to_unit(arrays["X"]), *told)
    used = hyper.in_one_unit() if is_tied else hyper
    parts: list[Factorised] = []
    for i, jitter in enumerate(jitters):
        own = data if is_tied else data.of_channel(i)
        L = np.array(state["arrays"][f"L_{i}"], dtype=float, order="F")
        inverse = np.array(state["arrays"][f"inverse_{i}"], dtype=float, order="C")
        parts.append(Factorised.restored(L, inverse, own.residuals(used), jitter))
    return {
        **arrays,
        "awaited": np.array(state["arrays"].get("awaited", nothing_told), dtype=bool),  # older states know no other
        "hyperparameters": hyper,
        "outcomes": plain["outcomes"],
        "standardise": bool(plain["standardise"]),
        "fitted_at": int(plain["fitted_at"]),
        "now": float(plain["now"]),
        "base": assembled(used, scopes, data, parts, is_tied=is_tied),
    }
