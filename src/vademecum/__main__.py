"""``python -m vademecum``: the command, if it is not on the path."""

from vademecum.cli.main import main

if __name__ == "__main__":
    main()
