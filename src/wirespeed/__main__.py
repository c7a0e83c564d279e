"""``python -m wirespeed``: the command line."""

from wirespeed.cli import main

if __name__ == "__main__":
    main()
