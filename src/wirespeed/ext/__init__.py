"""What wirespeed does with other packages, each loaded only when it is imported."""
