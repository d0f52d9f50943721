"""The remedy in errors about a package that is missing, because an extra of Tickwheel is not installed."""


def describe_install(extra: str) -> str:
    """Return how to install an extra, for the end of an error text. Tickwheel is not on PyPI yet."""
    return (
        f"install the extra {extra}, with `pip install '.[{extra}]'` in a clone of Tickwheel, or"
        f" `pip install 'FILE.whl[{extra}]'` with the wheel file (section \"Install\" of the README)"
    )
