"""Stationary kernels with derivatives, and functions drawn from their Gaussian-process priors."""

from swarmbo.kernels.spectral import FourierDraw as FourierDraw
from swarmbo.kernels.spectral import draw as draw
from swarmbo.kernels.spectral import spectral_frequencies as spectral_frequencies
from swarmbo.kernels.stationary import KERNEL_NAMES as KERNEL_NAMES
from swarmbo.kernels.stationary import KernelName as KernelName
from swarmbo.kernels.stationary import correlation as correlation
from swarmbo.kernels.stationary import correlation_slope as correlation_slope
from swarmbo.kernels.stationary import kernel_matrix as kernel_matrix
from swarmbo.kernels.stationary import kernel_matrix_gradient as kernel_matrix_gradient
from swarmbo.kernels.stationary import kernel_matrix_gradient_lengthscales as kernel_matrix_gradient_lengthscales
from swarmbo.kernels.stationary import scaled_distance as scaled_distance
