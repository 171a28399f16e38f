"""Run the command line as `python -m mlgitops`."""

from mlgitops.cli.main import main

if __name__ == "__main__":
    main()
