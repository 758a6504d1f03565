"""Base of all fusion methods: an agent's own measurements, an agreed proposal, messages."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.feature_gp import FeatureGP, Information, information_of, packed_size
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp import spatial
from swarmbo.belief.gp.cholesky import factorise
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.errors import ShapeError, StateVersionError
from swarmbo.records import Traffic
from swarmbo.spaces import Domain
from swarmbo.transport import Envelope, Transport

Said = TypeVar("Said")

_VERSION = 5  # 5: tallies of a consensus in one table
MOST = 2**31  # bound on the numbers of measurements, messages, sessions and proposals
_LARGEST = 1e12  # largest hyper-parameter (of the noise: its standard deviation), and inverse of the smallest
_HUGE = 1e150  # largest number in a message; its square is still finite


class _Note(msgspec.Struct, array_like=True):
    """A message: content of the fusion method, the sender's stamp, and the proposal if the recipient lacks it."""

    stamp: bytes
    body: msgspec.Raw
    proposal: Proposal | None


class FusedView(ABC):
    """Local belief of one agent, from its own measurements and its neighbours' messages only.

    Messages may be lost, doubled or late; links and agents may fail and return, without notice. ``exchange_steps`` runs
    the exchange, for a team and for an ``Agent`` alike. All agents begin with the same ``proposal``, of version 0.
    """

    content: ClassVar[type[Any]]  # type of the contents of its messages
    means_by_proposal = True  # True if its messages depend on its proposal
    team: frozenset[str] | None = None  # all agents, if known: no other agent has measurements
    is_whole = False  # True if its state certainly has all its own measurements
    now = 0.0  # round of the present exchange

    def __init__(self, name: str, domain: Domain, proposal: Proposal) -> None:
        self.name, self.domain, self.proposal = name, domain, proposal
        self._require_fitting(proposal.hyperparameters)
        self.neighbours: tuple[str, ...] = ()
        self.X: Float[np.ndarray, "n d"] = np.zeros((0, self.n_columns))
        self.y: Float[np.ndarray, " n"] = np.zeros(0)
        self.noise: Float[np.ndarray, " n"] = np.zeros(0)  # variances; NaN: that of the proposal
        self.refused = Counter[str]()  # number of messages dropped for inadmissible content, by sender
        self._agrees: dict[str, bool] = {}  # True if a neighbour's last message had the same proposal
        self._has_adopted()

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Hyper-parameters of its belief: those of the present proposal."""
        return self.proposal.hyperparameters

    @property
    def n_columns(self) -> int:
        """Coordinates of a measurement: those of the domain, and its round if the belief has a time axis."""
        return self.domain.n_dims + (self.proposal.hyperparameters.time is not None)

    @property
    def n_measurements(self) -> int:
        """Number of its own measurements."""
        return self.y.size

    @property
    @abstractmethod
    def belief(self) -> Any:
        """Belief from its own measurements and received messages."""

    @property
    @abstractmethod
    def reached(self) -> dict[str, float]:
        """Number of measurements in its belief by agent, its own among them; agents without data are left out."""

    @property
    def knowledge(self) -> Hashable | None:
        """Key of the belief, or None: agents of the same class with equal keys have bit-identical beliefs."""
        return None

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """True if it has nothing more to send until it measures or receives something new."""

    def meet(self, neighbours: Iterable[str]) -> None:
        """Set the neighbours within radio range; they may or may not receive its messages."""
        before, self.neighbours = set(self.neighbours), tuple(sorted(set(neighbours) - {self.name}))
        for neighbour in self.neighbours:
            if neighbour not in before:
                self._has_met(neighbour)

    def measure(self, X: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | float | None = None) -> None:
        """Learn its own measurements, checked as by ``ExactGP.update``; by default with the proposal's noise."""
        points = spatial.checked_points(X, self.n_columns)
        outcomes, noise = spatial.checked_outcomes(y, len(points)), spatial.checked_noise(noise_variance, len(points))
        self.X, self.y = np.concatenate([self.X, points]), np.concatenate([self.y, outcomes])
        self.noise = np.concatenate([self.noise, noise[:, 1]])
        if outcomes.size:
            self._has_measured(outcomes.size)

    def propose(self, hyperparameters: Hyperparameters, n_measurements: int = 0) -> Proposal:
        """Propose hyper-parameters fitted to ``n_measurements``. They supersede all proposals that the agent knows."""
        self._require_fitting(hyperparameters)
        news = {"hyperparameters": hyperparameters, "n_measurements": n_measurements}
        version = self.proposal.version + 1
        proposal = msgspec.structs.replace(self.proposal, version=version, proposer=self.name, **news)
        self._adopt(proposal)
        return proposal

    def receive(self, inbox: Sequence[Envelope]) -> None:
        """Process arrivals, in any order, without sending."""
        for envelope in inbox:
            note = read_body(envelope.payload, _Note)
            if note is None or not (note.proposal is None or self._can_be(note.proposal)):
                self.refused[envelope.sender] += 1
                continue
            if note.proposal is not None and note.proposal.supersedes(self.proposal):
                self._adopt(note.proposal)
            self._agrees[envelope.sender] = agrees = note.stamp == self.proposal.stamp
            if agrees or not self.means_by_proposal:
                said = read_body(note.body, self.content)
                if said is None or not self._fits(said):
                    self.refused[envelope.sender] += 1
                    continue
                self._take(envelope.sender, said)
            if note.proposal is not None or not agrees:
                self._must_answer(envelope.sender)

    def outbox(self) -> list[Envelope]:
        """Messages to send now, at most one to each neighbour."""
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
            raise ShapeError("proposal: got one with and one without a time axis; wanted the same in the whole team")

    def _can_be(self, proposal: Proposal) -> bool:
        """True if an agent of this team can have made the proposal."""
        own, h = self.proposal, proposal.hyperparameters
        sizes = [*h.lengthscales, h.outputscale, h.noise_variance**0.5, 1.0 if h.time is None else h.time.lengthscale]
        return (
            len(h.lengthscales) == self.domain.n_dims
            and (h.time is None) == (own.hyperparameters.time is None)
            and max(proposal.version, proposal.n_measurements) < MOST
            and (self.team is None or proposal.n_features == own.n_features)
            and self._is_known([proposal.proposer] if proposal.version else [])  # the initial one has no author
            and all(1.0 / _LARGEST <= size <= _LARGEST for size in sizes)
            and max(abs(h.mean), abs(h.offset), h.scale, 1.0 / h.scale) <= LARGEST_OUTCOME
        )

    def _is_known(self, names: Iterable[str]) -> bool:
        return self.team is None or self.team.issuperset(names)

    def _adopt(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self._agrees = dict.fromkeys([*self._agrees, *self.neighbours], False)
        self._has_adopted()

    def _information(self, rows: slice = slice(None)) -> Information:
        proposal, X, y, noise = self.proposal, self.X[rows], self.y[rows], self.noise[rows]
        return information_of(proposal.basis, proposal.hyperparameters, self.domain, X, y, noise)

    def _by_features(self, information: Information) -> FeatureGP:
        h, basis = self.hyperparameters, self.proposal.basis
        return FeatureGP(domain=self.domain, hyperparameters=h, basis=basis, information=information)

    def _has_met(self, neighbour: str) -> None:  # noqa: B027  nothing to do if all neighbours get the same messages
        """Account for a new neighbour, which does not know the estimate, and may have received more from others."""

    @abstractmethod
    def _has_measured(self, n_new: int) -> None:
        """Account for its last ``n_new`` measurements."""

    @abstractmethod
    def _has_adopted(self) -> None:
        """Drop data under another proposal, and summarise its own measurements again."""

    @abstractmethod
    def _fits(self, said: Any) -> bool:
        """True if a neighbour's content is admissible."""

    @abstractmethod
    def _take(self, sender: str, said: Any) -> None:
        """Process a neighbour's admissible content under the present proposal."""

    def _must_answer(self, neighbour: str) -> None:  # noqa: B027  nothing to do if it sends in every step
        """Send a message to a neighbour soon, with the proposal if the neighbour's differs."""

    @abstractmethod
    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        """Contents to send, by recipient."""

    def state_dict(self) -> dict[str, Any]:
        """Its state as ``{"json": plain data, "arrays": {name: array}}``."""
        plain, arrays = self._state()
        plain |= {"version": _VERSION, "kind": type(self).__name__, "name": self.name, "agrees": dict(self._agrees)}
        plain |= {"proposal": msgspec.to_builtins(self.proposal), "neighbours": list(self.neighbours), "now": self.now}
        arrays |= {"X": self.X.copy(), "y": self.y.copy(), "noise": self.noise.copy()}
        return {"json": plain, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly as the saved agent of this name."""
        plain, arrays = state["json"], {name: np.array(array) for name, array in state["arrays"].items()}
        wanted = {"version": _VERSION, "kind": type(self).__name__, "name": self.name}
        if strange := {key: plain.get(key) for key in wanted if plain.get(key) != wanted[key]}:
            raise StateVersionError(f"agent state: got {strange}; wanted {wanted}")
        self.proposal = msgspec.convert(plain["proposal"], Proposal)
        self.neighbours, self._agrees = tuple(plain["neighbours"]), dict(plain["agrees"])
        self.now = float(plain.get("now", 0.0))
        self.X, self.y, self.noise = arrays["X"], arrays["y"], arrays["noise"]
        self._restore(plain, arrays)

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays of a subclass."""

    @abstractmethod
    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the data of ``_state``."""


def read_body(content: bytes | msgspec.Raw, kind: type[Said]) -> Said | None:
    """Decode content; None if it is not a valid ``kind``."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return None


def are_numbers(content: bytes, count: int | None = None) -> bool:
    """True if bytes are ``count`` (None: any number of) float64 numbers, finite and not absurdly large."""
    if len(content) % 8 or (count is not None and len(content) != 8 * count):
        return False
    return bool((np.abs(unpacked_bytes(content)) <= _HUGE).all())


def is_information(content: bytes, n_features: int) -> bool:
    """True if bytes are valid information about ``n_features`` weights."""
    has_numbers = are_numbers(content, packed_size(n_features))
    return has_numbers and is_sound(Information.unpacked(unpacked_bytes(content), n_features))


def is_sound(information: Information) -> bool:
    """True if the information gives the weights a valid posterior, from a count >= 0 of measurements."""
    try:
        factorise(information.precision + np.eye(information.n_features))
    except ValueError:
        return False
    return information.count >= 0.0


def packed_bytes(vector: Float[np.ndarray, " q"]) -> bytes:
    """A vector as it crosses a link: float64, little-endian."""
    return vector.astype("<f8").tobytes()


def unpacked_bytes(data: bytes) -> Float[np.ndarray, " q"]:
    """Inverse of ``packed_bytes``."""
    return np.frombuffer(data, dtype="<f8").astype(float)


class AnyUnfinished(NamedTuple):
    """Question whether any agent has more to send; ``own`` is the answer of the local agents."""

    own: bool


class StepMessages(NamedTuple):
    """Messages that local agents send in a step; the answer is the arrivals by recipient."""

    envelopes: Sequence[Envelope]


def exchange_steps(agents: Mapping[str, FusedView], steps: int) -> Generator[AnyUnfinished | StepMessages, Any, None]:
    """Synchronous steps of local agents: all send, then all receive, until no agent has more to send."""
    for _ in range(steps):
        if not (yield AnyUnfinished(not all(agent.is_finished for agent in agents.values()))):
            return
        messages = [envelope for agent in agents.values() for envelope in agent.outbox()]
        for name, inbox in (yield StepMessages(messages)).items():
            if name in agents:
                agents[name].receive(inbox)


def exchange(agents: Iterable[FusedView], transport: Transport, steps: int) -> Traffic:
    """Let local agents exchange messages for at most ``steps`` steps, or until all finished, and return the traffic."""
    before, answer = transport.traffic, None
    step_requests = exchange_steps({agent.name: agent for agent in agents}, steps)
    while True:
        try:
            request = step_requests.send(answer)
        except StopIteration:
            break
        answer = request.own if isinstance(request, AnyUnfinished) else send_and_deliver(request.envelopes, transport)
    return transport.traffic - before


def send_and_deliver(envelopes: Iterable[Envelope], transport: Transport) -> dict[str, list[Envelope]]:
    """Send a step's messages, and return the arrivals by recipient."""
    for envelope in envelopes:
        transport.send(envelope)
    return transport.deliver()
