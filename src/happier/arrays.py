"""Short names for the array types in signatures."""

import numpy as np
import numpy.typing as npt

__all__ = ["Float32Array", "FloatArray", "IntArray"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
