"""Lower triangular matrices of one size, kept by blocks of rows: half the memory, and more rows move nothing.

Block b has the rows 8 b to 8 b + 7 of every matrix, as far as the last of them reaches, zeros above the diagonal. So
matrices that are larger by some rows have all full blocks in common with those that they grew from.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

ROWS = 8  # of a block
Wanted = Literal["mean", "slope", "variance", "gradient"]  # of a posterior; a slope is that of the mean alone


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Rows of k matrices.

    Args:
        blocks: One after the other; block b is an array (k, 8, 8 (b + 1)).
    """

    blocks: tuple[Float[np.ndarray, "k 8 _w"], ...]

    @classmethod
    def of(cls, squares: Float[np.ndarray, "k T T"]) -> "BlockRows":
        """Of whole matrices."""
        made = cls.empty(len(squares), squares.shape[1])
        made.put(np.arange(len(squares)), squares)
        return made

    @classmethod
    def empty(cls, k: int, n_rows: int, base: "BlockRows | None" = None, n_common: int = 0) -> "BlockRows":
        """Room for rows, all 0.

        Args:
            k: How many matrices.
            n_rows: Of each; rounded up to whole blocks.
            base: Smaller ones, whose full blocks are shared and whose other rows are copied.
            n_common: How many rows of the base stay as they are.
        """
        n_blocks, n_shared = -(-n_rows // ROWS), n_common // ROWS
        shared = () if base is None else base.blocks[:n_shared]
        made = cls((*shared, *(np.zeros((k, ROWS, ROWS * (b + 1))) for b in range(len(shared), n_blocks))))
        if base is not None:
            for old, new in zip(base.blocks[n_shared:], made.blocks[n_shared:], strict=False):
                new[:] = old
        return made

    @property
    def addresses(self) -> Int[np.ndarray, " n"]:
        """Where each block begins in memory, for compiled code; not kept, for copies have others."""
        return np.array([block.ctypes.data for block in self.blocks], dtype=np.uint64)

    def put(self, matrices: Int[np.ndarray, " g"], squares: Float[np.ndarray, "g T T"], first: int = 0) -> None:
        """Write rows of some matrices, from the block of row ``first`` on."""
        T = squares.shape[1]
        for b in range(first // ROWS, -(-T // ROWS)):
            start, end = ROWS * b, min(ROWS * (b + 1), T)
            self.blocks[b][matrices, : end - start, :end] = squares[:, start:end, :end]

    def squares(self, matrices: Int[np.ndarray, " g"], n_rows: int) -> Float[np.ndarray, "g T T"]:
        """Some of the matrices, whole: as many rows, 0 where there are fewer."""
        out = np.zeros((len(matrices), n_rows, n_rows))
        for b, block in enumerate(self.blocks[: -(-n_rows // ROWS)]):
            start, end = ROWS * b, min(ROWS * (b + 1), n_rows)
            out[:, start:end, :end] = block[matrices, : end - start, :end]
        return out
