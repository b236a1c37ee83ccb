"""Where everything of a home lies, and how its folders come to be."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipo.errors import BadRequest, PipoError
from pipo.home import permissions

NAME = re.compile(r"[a-z0-9-]+")
_FOLDER_MODE = 0o2770
_UMASK = 0o007


@dataclass(frozen=True, slots=True)
class PipelineHome:
    """The files of one pipeline."""

    name: str
    folder: Path
    log: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def lease(self) -> Path:
        return self.folder / "lease"

    @property
    def desired(self) -> Path:
        return self.folder / "desired.json"

    @property
    def claim(self) -> Path:
        """The lease of the host that supervises it."""
        return self.folder / "claim"

    @property
    def tip(self) -> Path:
        return self.folder / "tip"

    @property
    def programs(self) -> Path:
        """The lease of whoever keeps the programs of its steps."""
        return self.folder / "programs"

    @property
    def files(self) -> Path:
        """What its inputs have fetched."""
        return self.folder / "files"

    @property
    def sent(self) -> Path:
        """Its texts, where it was started as a text (decision 37)."""
        return self.folder / "sent"

    def ensure(self) -> None:
        """The folder of the pipeline, made when it is not there."""
        _make(self.folder)

    def ensure_files(self) -> None:
        """The folder `files`, made when it is not there."""
        _make(self.files)


@dataclass(frozen=True, slots=True)
class Home:
    """One installation's folder; `root` is absolute."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / "config.yaml"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def services(self) -> Path:
        return self.root / "run" / "services"

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def service_logs(self) -> Path:
        return self.root / "logs" / "services"

    @property
    def internal_token_file(self) -> Path:
        return self.root / "run" / "internal.token"

    @property
    def admin_token_file(self) -> Path:
        return self.root / "admin.token"

    @property
    def bots_file(self) -> Path:
        return self.root / "bots.json"

    def pipeline(self, name: str) -> PipelineHome:
        """The files of the pipeline `name`.

        Raises: BadRequest, if it is no pipeline name (so that none climbs out of the home).
        """
        if NAME.fullmatch(name) is None:
            raise BadRequest(
                f"{name!r} is no pipeline name",
                hint="a name is made of a-z, 0-9 and -",
            )
        return PipelineHome(name, self.pipelines / name, self.logs / f"{name}.log")

    def pipeline_names(self) -> list[str]:
        """Every pipeline that has a folder here, sorted."""
        try:
            found = os.scandir(self.pipelines)
        except FileNotFoundError:
            return []
        with found:
            return sorted(e.name for e in found if NAME.fullmatch(e.name) and e.is_dir())

    def ensure(self) -> None:
        """Every folder of the home, usable by this process; sets the umask to 007.

        All are judged before the first is made, so that nothing stays half created.

        Raises: PipoError, naming path, process, owner, mode and the mending command.
        """
        os.umask(_UMASK)
        folders = (
            self.root,
            self.run,
            self.services,
            self.pipelines,
            self.logs,
            self.service_logs,
        )
        for folder in folders:
            _judge(folder)
        for folder in folders:
            _make(folder)


def home_from(option: str | None) -> Home:
    """The home that `--home`, PIPO_HOME or the default names."""
    chosen = option or os.environ.get("PIPO_HOME") or "~/.pipo"
    return Home(Path(chosen).expanduser().absolute())


def _judge(folder: Path) -> None:
    """Raises unless `folder` can be used, or be made inside its nearest ancestor."""
    place = folder
    while not _exists(place, folder):
        place = place.parent
    if not place.is_dir():
        raise BadRequest(f"{place} is a file, and a folder is wanted there")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise permissions.unusable(folder, doing="write")


def _exists(place: Path, wanted: Path) -> bool:
    try:
        place.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise permissions.explain(wanted, error, doing="write") from error
    return True


def _make(folder: Path) -> None:
    """`folder`, group-shared; one that exists keeps its owner and mode."""
    try:
        _make_missing(folder)
    except OSError as error:
        raise _unmade(folder, error) from error


def _make_missing(folder: Path) -> None:
    for place in reversed((folder, *folder.parents)):
        if place.exists():
            continue
        try:
            place.mkdir()
        except FileExistsError:
            continue
        place.chmod(_FOLDER_MODE)


def _unmade(folder: Path, error: OSError) -> PipoError:
    return permissions.explain(folder, error, doing="write")
