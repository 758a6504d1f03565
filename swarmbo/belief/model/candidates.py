"""Models of similar evidence, which alternate."""

from typing import Literal

import msgspec

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model.warping import WarpKind
from swarmbo.kernels import KernelName

# factors of a model: the given ones; one of all variables; one for each variable; parts of one given factor
Grouping = Literal["given", "whole", "single", "split"]


class Form(msgspec.Struct, frozen=True):
    """Transform of a model's outcomes, by kind and exponent, the model's factors, and their kernel."""

    warp: WarpKind = "none"
    power: float = 1.0
    grouping: Grouping = "given"
    kernel: KernelName | None = None  # None: that of the settings


class Candidate(msgspec.Struct, frozen=True):
    """A form, with its last fit."""

    form: Form
    hyperparameters: AdditiveHyperparameters
    fitted_at: int  # number of evaluations


class Alternation(msgspec.Struct, frozen=True):
    """Index of the candidate in use, and of the one of the first query after ``n_data`` evaluations."""

    in_use: int = 0
    first: int = 0
    n_data: int = 0

    def next(self, n_candidates: int, n_data: int, *, is_fit_due: bool, has_pending: bool = False) -> "Alternation":
        """Turn of the next candidate if a fit is due or points are pending; else of the first one of this history."""
        following = (self.in_use + 1) % n_candidates
        if is_fit_due:
            return Alternation(following, following, n_data)
        first = self.first if n_data == self.n_data else self.in_use
        return Alternation(following if has_pending else first, first, n_data)
