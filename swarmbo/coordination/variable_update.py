"""Messages from variables to their factors, normalisation, damping: small arrays, any number of them at once."""

import numpy as np
from jaxtyping import Float


def variable_messages(incoming: Float[np.ndarray, "n degree d"]) -> Float[np.ndarray, "n degree d"]:
    """For each variable and each of its factors: the sum of what the other factors say.

    Added as (sum of those before) + (sum of those after), never as total less own, which would be inf - inf where a
    combination is forbidden.

    Args:
        incoming: The factors' messages to n variables of one degree, in the graph's order of factors.

    Returns:
        The variables' messages to the same factors.
    """
    degree = incoming.shape[1]
    outgoing = np.zeros_like(incoming)
    for k in range(1, degree):
        np.add(outgoing[:, k - 1], incoming[:, k - 1], out=outgoing[:, k])
    after = np.zeros_like(incoming[:, 0])
    for k in range(degree - 2, -1, -1):
        after = after + incoming[:, k + 1]
        outgoing[:, k] += after
    return outgoing


def beliefs(incoming: Float[np.ndarray, "n degree d"]) -> Float[np.ndarray, "n d"]:
    """The sum of all factors' messages to each variable, added from the first to the last factor."""
    return np.add.accumulate(incoming, axis=1)[:, -1]


def normalised(messages: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Messages less their maximum; those that forbid every value stay as they are."""
    highest = messages.max(axis=-1, keepdims=True)
    return messages - np.where(highest > -np.inf, highest, 0.0)


def damped(
    previous: Float[np.ndarray, "n d"], new: Float[np.ndarray, "n d"], damping: float
) -> Float[np.ndarray, "n d"]:
    """Share ``damping`` of the previous messages, in [0, 1), and the rest of the new ones.

    What was forbidden once stays so: the variables' messages forbid more and more as rounds pass, never less, so the
    new message forbids it too.
    """
    return new if damping == 0.0 else damping * previous + (1.0 - damping) * new


def largest_change(previous: Float[np.ndarray, " n"], new: Float[np.ndarray, " n"]) -> float:
    """The largest absolute change; infinite where a value has become forbidden."""
    changes = np.zeros_like(new)
    np.subtract(new, previous, out=changes, where=new != previous)
    return float(np.max(np.abs(changes), initial=0.0))
