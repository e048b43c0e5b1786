"""`python -m flambeau`: the same as the command `flambeau`."""

from flambeau.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
