"""A module's code as the texts that a version keeps; they are all that ever runs of it."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Code:
    """One version's module and the files beside it that it imports.

    `name` tells versions apart in one process, `main` is the module's path as the pipeline's
    file writes it, `texts` has the text of each file by its path written the same way, and
    `folder` is what those paths mean.
    """

    name: str
    main: str
    texts: Mapping[str, str]
    folder: Path

    def modules(self) -> dict[str, tuple[str, str]]:
        """Dotted name → path and text, of the files beside the module; its own name is empty."""
        beside = posixpath.dirname(self.main) or "."
        found = {"": (posixpath.normpath(self.main), self.texts[self.main])}
        for path, text in self.texts.items():
            if path == self.main or not path.endswith(".py"):
                continue
            inner = posixpath.relpath(path, beside)
            if not inner.startswith("../"):
                dotted = inner.removesuffix(".py").replace("/", ".")
                found[dotted] = (posixpath.normpath(path), text)
        return found

    def as_json(self) -> bytes:
        """What a helper needs to load it."""
        made = {"name": self.name, "folder": str(self.folder), "modules": self.modules()}
        return json.dumps(made).encode()
