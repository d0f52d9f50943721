"""Pages that a program serves on the port of `--metrics`."""

import urllib.error
import urllib.request


def get_page(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a page, also if the status is an error."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
