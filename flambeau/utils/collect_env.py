"""torch.utils.collect_env: the environment as text, for reports of faults."""

from __future__ import annotations


def get_pretty_env_info() -> str:
    """What `flambeau info` prints."""
    import contextlib
    import io

    from flambeau.cli.main import main as command

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        command(["info"])
    return text.getvalue()


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
