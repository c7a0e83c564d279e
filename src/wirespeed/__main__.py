"""``python -m wirespeed``: the command line."""

from wirespeed.cli.main import main

if __name__ == "__main__":
    main()
