"""What all ways to fuse beliefs have in common: an agent's own readings, an agreed proposal, messages."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.information import Information, information_of, packed_size
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.cholesky import factorise
from swarmbo.belief.gp.data import checked_noise, checked_outcomes, checked_points
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.errors import ConfigError, ShapeError, StateVersionError
from swarmbo.spaces import Domain
from swarmbo.transport import Envelope

Said = TypeVar("Said")

_VERSION = 4  # 4: of neighbours only where they differ
MOST = 2**31  # readings, steps or proposals
_LARGEST = 1e12  # hyper-parameter, and the inverse of the smallest
_HUGE = 1e150  # number, whose square is still one


class _Note(msgspec.Struct, array_like=True):
    """A message: under which proposal the sender speaks, and what its way to fuse has to say.

    The proposal itself is in it only where the recipient held another one by its last word.
    """

    stamp: bytes
    body: msgspec.Raw
    proposal: Proposal | None


class FusedView(ABC):
    """What one agent believes, from its own readings and what its neighbours say; it sees nothing else.

    Messages may be lost, doubled or late; links may be cut and agents may go and come back. No agent is told of it. Who
    lets agents talk is ``talk``, for a team, and for an ``Agent`` that has one of these, alike.

    Args:
        name: Its name; no other agent's.
        domain: The box of physical points.
        proposal: What all agents of the team are started with; its version is 0.
        neighbours: Whom it speaks to, from the start.

    Raises:
        ShapeError: If the proposal is for points of other dimensions.
    """

    means_by_proposal = True  # whether what it says depends on the proposal that it holds
    team: frozenset[str] | None = None  # all agents, where that is known: nobody else has readings
    is_whole = False  # whether its state is sure to be all that it ever had

    def __init__(self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = ()) -> None:
        self.name = name
        self.domain = domain
        self.proposal = proposal
        self._require_fitting(proposal.hyperparameters)
        self.neighbours: tuple[str, ...] = ()
        self.X: Float[np.ndarray, "n d"] = np.zeros((0, self.n_columns))
        self.y: Float[np.ndarray, " n"] = np.zeros(0)
        self.noise: Float[np.ndarray, " n"] = np.zeros(0)  # variances; NaN: that of the proposal
        self.refused = Counter[str]()  # how many messages that held what they may not were dropped, by sender
        self._agrees: dict[str, bool] = {}  # whether a neighbour's last word was under the same proposal
        self.meet(neighbours)

    @property
    def n_columns(self) -> int:
        """Coordinates of a reading: those of the domain, and its round where the belief has a time axis."""
        return self.domain.n_dims + (self.proposal.hyperparameters.time is not None)

    @property
    def n_measurements(self) -> int:
        """Number of its own readings."""
        return self.y.size

    @property
    @abstractmethod
    def belief(self) -> Any:
        """What it believes by what has reached it: a belief like any other."""

    @property
    @abstractmethod
    def reached(self) -> dict[str, float]:
        """How many readings of which agent its belief holds, its own among them; agents that give none are left out."""

    @property
    def knowledge(self) -> Hashable | None:
        """What its belief is made of, as one value: agents of a kind that give equal ones believe the same to the bit.

        None where names and numbers do not tell it; then every belief is worked out by itself.
        """
        return None

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether it has nothing more to say until it measures or hears something new."""

    def meet(self, neighbours: Iterable[str]) -> None:
        """Whom it speaks to from now on: those that its radio reaches. Whether they hear it, it must find out."""
        self.neighbours = tuple(sorted(set(neighbours) - {self.name}))

    def measure(self, X: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | float | None = None) -> None:
        """Learn readings of its own.

        Args:
            X: Points (n, d), physical; with a time axis (n, d + 1), the round of each last.
            y: Outcomes (n,), physical. Leave failed measurements out.
            noise_variance: As of ``ExactGP.update``; NaN, and by default: that of the proposal.

        Raises:
            ShapeError: If the shapes do not fit, or a value is not finite; it names the row.
        """
        points = checked_points(X, self.n_columns)
        outcomes, noise = checked_outcomes(y, len(points)), checked_noise(noise_variance, len(points))[:, 1]
        self.X, self.y = np.concatenate([self.X, points]), np.concatenate([self.y, outcomes])
        self.noise = np.concatenate([self.noise, noise])
        if outcomes.size:
            self._has_measured(outcomes.size)

    def propose(self, hyperparameters: Hyperparameters, seed: int | None = None, n_measurements: int = 0) -> Proposal:
        """Propose another basis, noise or unit of outcomes; it supersedes what the agent has heard of.

        Args:
            hyperparameters: Of the new proposal.
            seed: Of its basis; None: the present one.
            n_measurements: How many readings they were fitted to.

        Returns:
            The proposal, which is under way to the others with the next messages.

        Raises:
            ShapeError: If they are for points of other dimensions.
        """
        self._require_fitting(hyperparameters)
        proposal = msgspec.structs.replace(
            self.proposal,
            version=self.proposal.version + 1,
            proposer=self.name,
            hyperparameters=hyperparameters,
            seed=self.proposal.seed if seed is None else seed,
            n_measurements=n_measurements,
        )
        self._adopt(proposal)
        return proposal

    def step(self, inbox: Sequence[Envelope]) -> list[Envelope]:
        """Take what has arrived, in any order, and say what there is to say.

        Args:
            inbox: Messages delivered to this agent in this step.
        """
        self.hear(inbox)
        return self.speak()

    def hear(self, inbox: Sequence[Envelope]) -> None:
        """Take what has arrived, in any order, and say nothing yet."""
        for envelope in inbox:
            note = read_body(envelope.payload, _Note)
            news = None if note is None else note.proposal
            if note is None or (news is not None and not self._can_be(news)):
                self.refused[envelope.sender] += 1
                continue
            if news is not None and news.supersedes(self.proposal):
                self._adopt(news)
            self._agrees[envelope.sender] = agrees = note.stamp == self.proposal.stamp
            if agrees or not self.means_by_proposal:
                if not self._fits(note.body):
                    self.refused[envelope.sender] += 1
                    continue
                self._take(envelope.sender, note.body)
            if note.proposal is not None or not agrees:
                self._must_answer(envelope.sender)

    def speak(self) -> list[Envelope]:
        """What it says now, to each neighbour at most one message."""
        said: list[Envelope] = []
        for recipient, body in self._bodies():
            proposal = None if self._agrees.get(recipient, True) else self.proposal
            note = _Note(self.proposal.stamp, msgspec.Raw(msgspec.msgpack.encode(body)), proposal)
            said.append(Envelope(self.name, recipient, msgspec.msgpack.encode(note)))
        return said

    def _require_fitting(self, hyperparameters: Hyperparameters) -> None:
        got, wanted = len(hyperparameters.lengthscales), self.domain.n_dims
        if got != wanted:
            raise ShapeError(f"proposal: got {got} lengthscales; wanted {wanted}, one for each coordinate")
        if (hyperparameters.time is None) != (self.proposal.hyperparameters.time is None):
            raise ShapeError("proposal: got one with and one without a time axis; wanted all of a team alike")

    def _can_be(self, proposal: Proposal) -> bool:
        """Whether an agent of this team can have proposed it."""
        own, h = self.proposal, proposal.hyperparameters
        sizes = [*h.lengthscales, h.outputscale, h.noise_variance, *([] if h.time is None else [h.time.lengthscale])]
        return (
            len(h.lengthscales) == self.domain.n_dims
            and (h.time is None) == (own.hyperparameters.time is None)
            and max(proposal.version, proposal.n_measurements) < MOST
            and (self.team is None or (self._may_propose(proposal) and proposal.n_features == own.n_features))
            and all(1.0 / _LARGEST <= size <= _LARGEST for size in sizes)
            and max(abs(h.mean), abs(h.offset), h.scale, 1.0 / h.scale) <= LARGEST_OUTCOME
        )

    def _may_propose(self, proposal: Proposal) -> bool:
        """Tell whether a peer can have made a proposal; the first one, which all start with, is nobody's."""
        return self._is_known([proposal.proposer] if proposal.version else [])

    def _is_known(self, names: Iterable[str]) -> bool:
        """Whether agents are of the team, as far as that is known."""
        return self.team is None or self.team.issuperset(names)

    def _adopt(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self._agrees = dict.fromkeys([*self._agrees, *self.neighbours], False)
        self._has_adopted()

    def _information(self, rows: slice = slice(None)) -> Information:
        """The information in its own readings, or some of them, under the present proposal."""
        proposal, X, y, noise = self.proposal, self.X[rows], self.y[rows], self.noise[rows]
        return information_of(proposal.basis, proposal.hyperparameters, self.domain, X, y, noise)

    @abstractmethod
    def _has_measured(self, n_new: int) -> None:
        """Account for its last ``n_new`` readings."""

    @abstractmethod
    def _has_adopted(self) -> None:
        """Drop what was made under another proposal, and summarise its own readings anew."""

    @abstractmethod
    def _fits(self, body: msgspec.Raw) -> bool:
        """Whether something can be what a neighbour says."""

    @abstractmethod
    def _take(self, sender: str, body: msgspec.Raw) -> None:
        """Take what a neighbour said under the present proposal, which fits."""

    @abstractmethod
    def _must_answer(self, neighbour: str) -> None:
        """See to it that a neighbour hears soon under which proposal this agent speaks."""

    @abstractmethod
    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        """What there is to say, by recipient."""

    def state_dict(self) -> dict[str, Any]:
        """All of its state, as ``{"json": plain data, "arrays": {name: array}}``."""
        plain, arrays = self._state()
        own = {
            "version": _VERSION,
            "kind": type(self).__name__,
            "name": self.name,
            "proposal": msgspec.to_builtins(self.proposal),
            "neighbours": list(self.neighbours),
            "agrees": dict(self._agrees),
        }
        return {
            "json": own | plain,
            "arrays": {"X": self.X.copy(), "y": self.y.copy(), "noise": self.noise.copy()} | arrays,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly as the agent of this name that was saved.

        Args:
            state: What ``state_dict`` returned, also after a trip through JSON and ``.npz``.

        Raises:
            StateVersionError: If another version of swarmbo, or another agent, wrote it.
        """
        got, wanted = state["json"], {"version": _VERSION, "kind": type(self).__name__, "name": self.name}
        if strange := {key: got.get(key) for key in wanted if got.get(key) != wanted[key]}:
            raise StateVersionError(f"agent state: got {strange}; wanted {wanted}")
        plain, arrays = state["json"], {name: np.array(array) for name, array in state["arrays"].items()}
        self.proposal = msgspec.convert(plain["proposal"], Proposal)
        self.neighbours, self._agrees = tuple(plain["neighbours"]), dict(plain["agrees"])
        self.X, self.y, self.noise = arrays["X"], arrays["y"], arrays["noise"]
        self._restore(plain, arrays)

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays of what a subclass adds."""

    @abstractmethod
    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of ``_state``."""


def require_at_least_one(name: str, value: int) -> int:
    """The number of steps or times that is given.

    Raises:
        ConfigError: If it is below 1.
    """
    if value < 1:
        raise ConfigError(f"got {value}; wanted an integer >= 1", at=f"$.{name}")
    return value


def read_body(content: bytes | msgspec.Raw, kind: type[Said]) -> Said | None:
    """What was said; None if it is nothing of a kind."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return None


def are_numbers(content: bytes, count: int | None = None) -> bool:
    """Whether bytes are so many finite numbers, none of which is absurd; ``count``: None for any."""
    if len(content) % 8 or (count is not None and len(content) != 8 * count):
        return False
    return bool((np.abs(unpacked_bytes(content)) <= _HUGE).all())


def is_information(content: bytes, n_features: int) -> bool:
    """Whether bytes are the information in some readings about so many weights."""
    if not are_numbers(content, packed_size(n_features)):
        return False
    return is_sound(Information.unpacked(unpacked_bytes(content), n_features))


def is_sound(information: Information) -> bool:
    """Whether the weights have a posterior by it."""
    try:
        factorise(information.precision + np.eye(information.n_features))
    except ValueError:
        return False
    return information.count >= 0.0


def packed_bytes(vector: Float[np.ndarray, " q"]) -> bytes:
    """A vector as it crosses a link: float64, little-endian."""
    return vector.astype("<f8").tobytes()


def unpacked_bytes(data: bytes) -> Float[np.ndarray, " q"]:
    """The inverse of ``packed_bytes``."""
    return np.frombuffer(data, dtype="<f8").astype(float)
