"""``python -m nero_lab``: the same as ``nero-lab``."""

from nero_lab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
