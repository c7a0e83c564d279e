"""Servers to try things with: see `wirespeed.demo.calculator`."""
