"""The capacity of a WLAN, in closed form, with its gradient."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

_NEPERS_PER_DB = np.log(10.0) / 10.0


@dataclass(frozen=True, eq=False)
class Network:
    """Access points that transmit at chosen powers, and users that each receive from one of them.

    C_u = W log2(1 + SINR_u) in Mbit/s, for W in MHz, with

        SINR_u = P_a g_au / (N + Σ_{j ≠ a, a listed with j} P_j g_ju),   a the access point of user u,

    powers P and noise N in mW and gains g = 10^(-loss/10). The outcome of an access point is the sum over its users:
    all use the whole channel at the same time, as in the paper.

    Source: Shannon 1948; the objective of Bardou et al. 2024 (DuMBO), appendix I.

    Args:
        loss_db: From each access point to each user (k, m), dB.
        serving: Access point of each user (m,).
        present: Which users are there (m,).
        disturbs: Whose power counts as interference for whose users (k, k): column j for the users of row i.
        noise_mw: At each receiver.
        bandwidth_mhz: W.

    Example:
        >>> network = Network(
        ...     loss_db=np.array([[80.0], [100.0]]),
        ...     serving=np.array([0]),
        ...     present=np.array([True]),
        ...     disturbs=~np.eye(2, dtype=bool),
        ...     noise_mw=1e-10,
        ...     bandwidth_mhz=20.0,
        ... )
        >>> network.factor_values(np.array([[0.0, 0.0]])).round(3).tolist()
        [[113.449, 0.0]]
    """

    loss_db: Float[np.ndarray, "k m"]
    serving: Int[np.ndarray, " m"]
    present: Bool[np.ndarray, " m"]
    disturbs: Bool[np.ndarray, "k k"]
    noise_mw: float
    bandwidth_mhz: float

    @property
    def n_points(self) -> int:
        """Number of access points k."""
        return len(self.loss_db)

    @cached_property
    def gains(self) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, "m k"]]:
        """Of the wanted signal and of interference at each user, as shares of power; zero for what does not count."""
        gains = 10.0 ** (-self.loss_db.T / 10.0) * self.present[:, None]
        own = np.arange(self.n_points) == self.serving[:, None]
        return gains * own, gains * (self.disturbs[self.serving] & ~own)

    @cached_property
    def _members(self) -> Float[np.ndarray, "m k"]:
        return (np.arange(self.n_points) == self.serving[:, None]).astype(float)

    @cached_property
    def n_users(self) -> Int[np.ndarray, " k"]:
        """Users of each access point that are there."""
        return np.bincount(self.serving[self.present], minlength=self.n_points)

    def sinr(self, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n m"]:
        """Ratio of signal to interference and noise at every user; 0 for one that is gone.

        Args:
            X: Joint transmit powers, dBm.
        """
        power = np.exp(_NEPERS_PER_DB * np.asarray(X, dtype=float))
        wanted, unwanted = self.gains
        return power @ wanted.T / (self.noise_mw + power @ unwanted.T)

    def user_capacities(self, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n m"]:
        """Capacity of every user, Mbit/s; 0 for one that is gone."""
        return self.bandwidth_mhz / np.log(2.0) * np.log1p(self.sinr(X))

    def factor_values(self, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Outcome of every access point, Mbit/s."""
        return self.user_capacities(X) @ self._members

    def value(self, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """Capacity of the network, Mbit/s."""
        return self.user_capacities(X).sum(axis=1)

    def value_and_gradient(self, x: Float[np.ndarray, " k"]) -> tuple[float, Float[np.ndarray, " k"]]:
        """Capacity of the network, and its gradient in Mbit/s per dB.

        ∂C_u/∂P_j = (W / ln 2) (g_j / received_u - h_j / disturbance_u), with received = disturbance + wanted signal, g
        of everything that is received and h of interference alone; and dP_j/dx_j = P_j ln(10) / 10.

        Args:
            x: Joint transmit power, dBm.
        """
        power = np.exp(_NEPERS_PER_DB * np.asarray(x, dtype=float))
        wanted, unwanted = self.gains
        signal, disturbance = wanted @ power, self.noise_mw + unwanted @ power
        value = self.bandwidth_mhz / np.log(2.0) * float(np.log1p(signal / disturbance).sum())
        return value, self.gradient(x, np.ones(len(signal)))

    def gradient(self, x: Float[np.ndarray, " k"], weights: Float[np.ndarray, " m"]) -> Float[np.ndarray, " k"]:
        """Gradient of a weighted sum of the users' capacities, in Mbit/s per dB; see ``value_and_gradient``.

        Args:
            x: Joint transmit power, dBm.
            weights: Of each user; of a function of capacities, its derivatives by each.
        """
        power = np.exp(_NEPERS_PER_DB * np.asarray(x, dtype=float))
        wanted, unwanted = self.gains
        signal, disturbance = wanted @ power, self.noise_mw + unwanted @ power
        slope = (wanted + unwanted).T @ (weights / (disturbance + signal)) - unwanted.T @ (weights / disturbance)
        return self.bandwidth_mhz / np.log(2.0) * _NEPERS_PER_DB * power * slope

    @cached_property
    def digest(self) -> str:
        """Names the network by its content."""
        parts = (
            self.loss_db.astype("<f8"),
            self.serving.astype("<i8"),
            self.present.astype("<i1"),
            self.disturbs.astype("<i1"),
            np.array([self.noise_mw, self.bandwidth_mhz], dtype="<f8"),
            np.array(self.loss_db.shape, dtype="<i8"),
        )
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)
