"""One agent of a team with outcomes by factor, in a process of its own; see docs/decentralisation.md.

It is told once what everybody knows (scopes, owners, links, settings, the seed) and the bounds of the variables that
its own factors have; after every evaluation, the outcomes of its own factors and the values of those variables. All
else it hears from other agents. It has no place to put an outcome of a factor that it does not own.

Frames on standard input and output are MessagePack behind four bytes of length. The first is a :class:`Known`; then
``{"told": [place, outcomes]}`` is answered by ``{}``, and both ``{"ask": None}`` and ``{"inbox": [[sender, bytes],
...]}`` by ``{"said": [[phase, recipient, bytes], ...], "decision": None or {variable: value}}``.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import msgspec
import networkx as nx
import numpy as np
from msgspec import UNSET, UnsetType
from threadpoolctl import threadpool_limits

from swarmbo.acquisition import DECHBO, EGPEI, EGPTS, Auto, DuMBO, ExpectedImprovement, Thompson
from swarmbo.acquisition.contrast_bounds import ContrastBounds
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.agent import Agent
from swarmbo.baselines.sobol import sobol_point
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned
from swarmbo.coordination.drivers.by_messages import ByMessages, Post
from swarmbo.coordination.messages import Message
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.coordination.requests import AllReduce, Steps
from swarmbo.data import Dataset
from swarmbo.deciding.rounds import learned_model
from swarmbo.errors import ConfigError, SwarmboError, TransportError
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.rng import stream
from swarmbo.spaces import Domain
from swarmbo.transport import Envelope, Routes

N_STARTS = 3  # of the best evaluations, as swarmbo.belief.model.incumbents has it
NEAREST, STEPS = 1e-9, (1e-4, 1e-2)  # points that were asked for before are moved, as swarmbo.deciding.function has it

Program = Generator[Any, Any, dict[str, float]]


class Known(msgspec.Struct, frozen=True):
    """What an agent is told once.

    Args:
        agent: Its name.
        factors: Of the whole graph, as are the next four: who couples and owns what is common knowledge.
        scopes: By factor.
        factor_owners: By factor.
        variables: In the order of joint points.
        variable_owners: By variable.
        links: Who hears whom; None: everyone hears everyone.
        bounds: Of the variables of its own factors, and of no others.
        acquisition: A kind's settings; ``add-gp-ucb`` wants factors that share nothing, which need no messages.
        coordination: ``ADMM``'s settings.
        seed: The team's.
        initial: Points of the initial design.
        belief: A kind's settings.
    """

    agent: str
    factors: tuple[str, ...]
    scopes: tuple[tuple[str, ...], ...]
    factor_owners: tuple[str, ...]
    variables: tuple[str, ...]
    variable_owners: tuple[str, ...]
    links: list[tuple[str, str]] | None
    bounds: dict[str, tuple[float, float]]
    acquisition: Auto | DuMBO | DECHBO | Thompson | ExpectedImprovement | EGPTS | EGPEI
    coordination: ADMM
    seed: int
    initial: int
    belief: AdditiveGPSettings | EnsembleSettings = AdditiveGPSettings()


class LoneAgent:
    """An agent of a graph that is one connected part, whose owners of variables own factors with them.

    Arrays have the columns of the whole graph, so that the library's functions can be called as they are; columns of
    variables and factors that are not its own hold 0 and NaN throughout.
    """

    def __init__(self, known: Known) -> None:
        self.known = known
        self.graph = FactorGraph(
            known.factors, known.scopes, known.factor_owners, known.variables, known.variable_owners
        )
        if len(self.graph.components) > 1:
            raise ConfigError(f"got {len(self.graph.components)} parts that share nothing; wanted a connected graph")
        self.factors = self.graph.factors_owned_by(known.agent)
        self.variables = self.graph.variables_owned_by(known.agent)
        scopes = {variable for factor in self.factors for variable in self.graph.scope(factor)}
        if not set(self.variables) <= scopes == set(known.bounds):
            raise ConfigError(
                f"got bounds of {sorted(known.bounds)} and variables {sorted(self.variables)}; wanted bounds of "
                f"{sorted(scopes)}, those of its own factors, and no variable else"
            )
        self.place = {variable: column for column, variable in enumerate(self.graph.variables)}
        corners = np.array([known.bounds.get(variable, (0.0, 1.0)) for variable in self.graph.variables])
        self.domain = Domain(*corners.T)
        links = None if known.links is None else nx.Graph(known.links)
        self.routes = Routes(self.graph.agents, links)
        self.X, self.F = np.zeros((0, len(self.place))), np.zeros((0, len(self.graph.factors)))
        self.learned: Learned | None = None
        self.phases: list[str] = []
        self.agent: Agent[dict[str, float]] | None = None

    def tell(self, place: Mapping[str, float], outcomes: Mapping[str, float]) -> None:
        """Learn the outcomes of the own factors, and where their variables stood."""
        finite = all(np.isfinite(outcome) for outcome in outcomes.values())  # ranks with gaps would take further sums
        if set(place) != set(self.known.bounds) or set(outcomes) != set(self.factors) or not finite:
            raise ConfigError(
                f"told {dict(outcomes)} at {dict(place)}; wanted a finite outcome of each of {sorted(self.factors)} "
                f"and where {sorted(self.known.bounds)} stood"
            )
        x = [place.get(variable, 0.0) for variable in self.graph.variables]
        y = [outcomes.get(factor, np.nan) for factor in self.graph.factors]
        self.X, self.F = np.vstack([self.X, x]), np.vstack([self.F, y])

    def ask(self) -> dict[str, Any]:
        """Begin to decide."""
        self.agent = Agent(self.known.agent, self, None, decision=len(self.X) + 1)
        return self.hear([])

    def hear(self, inbox: list[Envelope]) -> dict[str, Any]:
        """Go on with what has arrived; what there is to say, and the values of the own variables once decided."""
        if self.agent is None:
            raise ConfigError("got an inbox before anything was asked; wanted an ask first")
        said = self.agent.step(inbox)
        phases, self.phases = self.phases, []
        rows = [(phase, message.recipient, message.payload) for phase, message in zip(phases, said, strict=True)]
        return {"said": rows, "decision": self.agent.outcomes[0] if self.agent.is_finished else None}

    def programs(self, agent: str, own: None, post: Post) -> Iterable[Program]:
        """What it does in a round; ``Agent`` asks for it."""

        def in_phase(phase: str) -> Post:
            def noted(recipient: str, message: Message) -> None:
                if recipient != agent:
                    self.phases.append(phase)
                post(recipient, message)

            return noted

        if len(self.X) < self.known.initial:
            yield self._designed()
        else:
            yield self._decided(in_phase)

    def _designed(self) -> Program:
        point = sobol_point(stream(self.known.seed, "initial design"), len(self.place), len(self.X))
        yield from ()
        return self._in_box({variable: float(point[self.place[variable]]) for variable in self.variables})

    def _decided(self, in_phase: Callable[[str], Post]) -> Program:
        known, n, t = self.known, len(self.place), len(self.X)
        situation = JointSituation(
            graph=self.graph,
            domain=self.domain,
            history=Dataset(self.X, np.full(t, np.nan), self.F, np.arange(1.0, t + 1.0)),  # one query a round
            pending=np.zeros((0, n)),
            outcomes="per-factor",
            links=None,
            round=t + 1,
            horizon=None,
            seed=known.seed,
            initial=known.initial,
        )
        model = learned_model(situation, known.belief, known.acquisition, self.learned, None)
        self.learned = model.learned
        functions: Any = known.acquisition.local_functions(situation, model).of(self.factors)
        seed = int(stream(known.seed, "agreement", evaluations=t, pending=0).integers(2**63))

        # which evaluations were worth most to all is no neighbour's knowledge: it takes a sum over a tree of agents
        U = self.domain.to_unit(self.X)
        means = [model.belief.local(stack, stack.take(U)).mean for stack in stacks_of(self.graph, self.factors)]
        worth = yield from self._sum(functions, seed, in_phase("ranking"), np.concatenate(means).sum(axis=0))
        best = np.argsort(-worth, kind="stable")[:N_STARTS]
        functions = replace(functions, starts=np.clip(U[best], functions.low, functions.high))
        if isinstance(functions, ContrastBounds | LogImprovements):
            functions = replace(functions, reference=U[best[0]])

        plan = known.coordination.plan(functions, self.routes, seed)
        (agreeing,) = plan.programs(known.agent, functions, in_phase("agreement"))
        outcome = yield from agreeing
        u = {variable: min(max(outcome.x[variable], 0.0), 1.0) for variable in self.variables}

        if model.belief.has_time:  # another look at what has faded is worth it
            return self._in_box(u)

        # nor is it whether all variables together stand where they stood before
        rng = stream(known.seed, "apart", asked=t)
        while True:
            columns = [self.place[variable] for variable in self.variables]
            moved = np.abs(U[:, columns] - np.array([u[variable] for variable in self.variables])) > NEAREST
            n_moved = yield from self._sum(functions, seed, in_phase("apart"), moved.sum(axis=1).astype(float))
            if n_moved.min() > 0.0:
                return self._in_box(u)
            length = np.exp(rng.uniform(*np.log(STEPS)))
            steps = length * rng.uniform(-1.0, 1.0, n)
            for variable in self.variables:
                step = float(steps[self.place[variable]])
                u[variable] += -step if not 0.0 <= u[variable] + step <= 1.0 else step

    def _sum(self, functions: Any, seed: int, post: Post, numbers: np.ndarray) -> Generator[Any, Any, np.ndarray]:
        """The sum over all agents, up a tree of them and down again."""
        (part,) = self.known.coordination.plan(functions, self.routes, seed).parts

        def steps() -> Steps[np.ndarray]:
            return (yield AllReduce(numbers[None, None, :]))[0]

        return (yield from ByMessages(part, self.known.agent, post).program(steps()))

    def _in_box(self, u: Mapping[str, float]) -> dict[str, float]:
        out: dict[str, float] = {}
        for variable, value in u.items():
            low, high = self.known.bounds[variable]
            out[variable] = float(np.clip(low + np.clip(value, 0.0, 1.0) * (high - low), low, high))
        return out


class Frames:
    """Frames as they come out of a pipe. Between two of them anything may take its time; within one it may not.

    Args:
        source: File descriptor to read from.
        patience: Seconds that may pass between the first byte of a frame and the last.
        largest: Most bytes of a frame, so that a length that is none is not waited for.
    """

    def __init__(self, source: int, patience: float = 10.0, largest: int = 2**26) -> None:
        self._source, self._patience, self._largest = source, patience, largest

    def read(self) -> bytes:
        """The next frame; empty at the end.

        Raises:
            TransportError: If it is longer than allowed, or does not arrive in whole.
        """
        first = os.read(self._source, 1)
        if not first:
            return b""
        until = time.monotonic() + self._patience
        length = int.from_bytes(first + self._more(3, "of the 3 bytes more of its length", until), "little")
        if not 0 < length <= self._largest:
            raise TransportError(f"got a frame of {length} bytes; wanted 1 to {self._largest}: is it a frame at all?")
        return self._more(length, f"of its {length} bytes", until)

    def _more(self, n_bytes: int, what: str, until: float) -> bytes:
        got = bytearray()
        while len(got) < n_bytes:
            ready, _, _ = select.select([self._source], [], [], max(until - time.monotonic(), 0.0))
            part = os.read(self._source, n_bytes - len(got)) if ready else b""
            if not part:
                why = "the input ended" if ready else f"no more came for {self._patience:g} s"
                raise TransportError(f"got {len(got)} {what} of a frame when {why}; wanted all: it was cut off")
            got += part
        return bytes(got)


def write_frame(stream: BinaryIO, content: Any) -> None:
    """Encode and write."""
    frame = msgspec.msgpack.encode(content)
    stream.write(len(frame).to_bytes(4, "little") + frame)
    stream.flush()


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What an agent may be asked for; exactly one of these."""

    told: tuple[dict[str, float], dict[str, float]] | UnsetType = UNSET
    ask: UnsetType | None = UNSET
    inbox: list[tuple[str, bytes]] | UnsetType = UNSET

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]
        if len(given) != 1:
            raise ValueError(f"got {given}; wanted exactly one of {list(self.__struct_fields__)}")


def serve(frames: Frames, sink: BinaryIO) -> None:
    """Answer until the input ends."""
    agent = LoneAgent(msgspec.msgpack.decode(frames.read(), type=Known))
    while frame := frames.read():
        request = msgspec.msgpack.decode(frame, type=Request)
        if request.told is not UNSET:
            agent.tell(*request.told)
            write_frame(sink, {})
        elif request.inbox is not UNSET:
            write_frame(sink, agent.hear([Envelope(who, agent.known.agent, said) for who, said in request.inbox]))
        else:
            write_frame(sink, agent.ask())


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        try:
            serve(Frames(sys.stdin.fileno()), sys.stdout.buffer)
        except (SwarmboError, msgspec.MsgspecError) as error:
            sys.exit(f"lone_agent: {error}")
