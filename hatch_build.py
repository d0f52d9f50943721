"""The README in the metadata of the package. An index shows it without the repository, so its links are absolute."""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The target of a link or an image, unless it is absolute or a section of the page.
_RELATIVE: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?=[^)\s]+\))")


class ReadmeHook(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = f"{metadata['urls']['Homepage']}/blob/main/"
        metadata["readme"] = {"content-type": "text/markdown", "text": _RELATIVE.sub(repository, text)}
