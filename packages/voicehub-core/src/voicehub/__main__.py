"""``python -m voicehub``: the command line, for launchers that start modules."""

from voicehub.cli.app import main

if __name__ == "__main__":
    main()
