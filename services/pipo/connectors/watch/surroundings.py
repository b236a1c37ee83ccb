"""Which folders an input hears of, and what a notice about one of them means to it.

All folders that are looked through, and while the root is not there the nearest folder above:
there its first missing part will appear.
"""

from __future__ import annotations

import os

from pipo.connectors.watch.globs import Glob
from pipo.connectors.watch.notices import Listener, Notices


class Surroundings:
    """One input's folders among the notices. All but `name_of` run on the input's thread."""

    def __init__(self, glob: Glob, notices: Notices, listener: Listener) -> None:
        self._glob = glob
        self._notices = notices
        self._listener = listener
        self.unnoticed = ""
        """Why some folder gives no notices; empty when all do."""

    def cover(self, folder: str) -> bool:
        """Whether there is such a folder; it gives notices from now on."""
        try:
            return self._notices.watch(self._listener, folder)
        except OSError as error:
            self.unnoticed = f"fs.inotify.max_user_watches is reached ({error.strerror})"
            return True

    def cover_root(self) -> str:
        """The root, or the nearest folder above it; it gives notices before this returns."""
        self.unnoticed = ""
        place = ""
        # A folder that appears behind the climb would be missed.
        while (nearest := self._nearest()) != place:
            place = nearest
        return place

    def keep(self, folders: set[str]) -> None:
        """Hears of no others from now on."""
        self._notices.keep(self._listener, folders)

    def name_of(self, folder: str, name: str) -> str | None:
        """The watched name that a notice is about; "" for the root, None for what is not watched."""
        path, root = os.path.join(folder, name), self._glob.root
        if path == root or root.startswith(f"{path}/"):
            return ""
        inside = f"{root.rstrip('/')}/"
        return path.removeprefix(inside) if path.startswith(inside) else None

    def _nearest(self) -> str:
        place = self._glob.root
        while not self.cover(place) and place != "/":
            place = os.path.dirname(place)
        return place
