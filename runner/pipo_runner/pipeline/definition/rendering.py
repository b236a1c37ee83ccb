"""The one place that renders a `with:`.

Each field is compiled once per version: literal fields (`x-literal`) stay as
they are, paths (`x-path`) become absolute and stay inside the folder that the
author wrote (decision 23), everything else is a template.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pipo.lang.expressions import Expression, compile_expression
from pipo.lang.printing import mixed_text
from pipo.lang.templates import Hole, compile_template, split
from pipo.lang.values import MISSING

Scope = Mapping[str, Any]
# What the operator sets; everything else in a path comes from a packet.
_OPERATORS = frozenset({"env", "secrets"})
_SEGMENT_BYTES_LIMIT = 255
_SHOWN_CHARACTERS = 60


class RenderError(Exception):
    """A template that cannot be rendered for this packet; the message names it."""


class Settings:
    """A compiled `with:`.

    `constant` is the rendered mapping when nothing in it depends on a packet.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        schema: Mapping[str, Any],
        folder: Path,
        *,
        files: Path | None = None,
    ) -> None:
        """`files` is where the pipeline's own inputs keep what they fetch, if anywhere."""
        properties = schema.get("properties", {})
        self._fields: list[tuple[str, Callable[[Scope], Any]]] = []
        self._static: dict[str, Any] = {}
        self._below: list[_Below] = []
        names: set[str] = set()
        # A path has its default written out: it means a place that the connector cannot know.
        paths = {key: one["default"] for key, one in properties.items() if _is_placed(one)}
        for key, value in {**paths, **raw}.items():
            known = properties.get(key, {})
            if known.get("x-literal"):
                self._static[key] = value
            elif base := known.get("x-base"):
                below = _Below(key, value, base)
                self._below.append(below)
                names |= below.names
            elif known.get("x-path"):
                self._add_path(key, value, folder, names, files, kind=known["x-path"])
            else:
                render, used = _compiled(value, known.get("x-keep-keys", False))
                names |= used
                if used:
                    self._fields.append((key, render))
                else:
                    self._static[key] = render({})
        self.names = frozenset(names)
        self.constant: Mapping[str, Any] | None = (
            None if self._fields or self._below else MappingProxyType(self._static)
        )

    def render(self, scope: Scope) -> Mapping[str, Any]:
        """The settings for one packet.

        Raises: RenderError, naming the template; LanguageError from an expression in it.
        """
        if self.constant is not None:
            return self.constant
        rendered = dict(self._static)
        for key, render in self._fields:
            value = render(scope)
            if value is not MISSING:
                rendered[key] = value
        for below in self._below:
            rendered[below.key] = below.render(scope, rendered[below.base])
        return rendered

    def _add_path(
        self,
        key: str,
        value: Any,
        folder: Path,
        names: set[str],
        files: Path | None,
        *,
        kind: bool | str,
    ) -> None:
        if isinstance(value, list):
            templates = [PathTemplate(str(item), folder) for item in value]
            self._fields.append((key, lambda scope: [t.render(scope) for t in templates]))
            names |= {name for t in templates for name in t.names}
            return
        template = PathTemplate(value, folder, kind=kind, files=files)
        names |= template.names
        if template.constant is not None:
            self._static[key] = template.constant
        else:
            self._fields.append((key, template.render))


class _Below:
    """Paths that are relative to another path of the same `with:` (`x-base`)."""

    def __init__(self, key: str, texts: Sequence[str], base: str) -> None:
        self.key = key
        self.base = base
        self._texts = texts
        self._of: tuple[str, list[PathTemplate]] = (".", self._compiled("."))
        self.names = frozenset(name for one in self._of[1] for name in one.names)

    def render(self, scope: Scope, base: str) -> list[str]:
        """The paths for one packet. Raises: RenderError."""
        if self._of[0] != base:
            # Few bases come from packets: the last one is mostly the next one.
            self._of = (base, self._compiled(base))
        return [one.render(scope) for one in self._of[1]]

    def _compiled(self, base: str) -> list[PathTemplate]:
        return [PathTemplate(text, Path(base)) for text in self._texts]


def _is_placed(known: Mapping[str, Any]) -> bool:
    return bool(known.get("x-path")) and "default" in known


def _compiled(value: Any, keeps: bool | str) -> tuple[Callable[[Scope], Any], frozenset[str]]:
    """A field's renderer and the variables it reads.

    Where `keeps` (`x-keep-keys`) a missing value of the map becomes null: the row has that
    column in any case. With `deep` it is kept at any depth, and in place of the whole field:
    what a check expects must not become less because the packet lacks it.
    """
    if keeps and isinstance(value, dict):
        inner = "deep" if keeps == "deep" else False
        entries = [(key, *_compiled(one, inner)) for key, one in value.items()]

        def render(scope: Scope) -> dict[str, Any]:
            rendered = ((key, made(scope)) for key, made, _ in entries)
            return {key: None if made is MISSING else made for key, made in rendered}

        return render, frozenset(name for *_, names in entries for name in names)
    template = compile_template(value)
    if keeps != "deep":
        return template.render, template.names

    def render_or_null(scope: Scope) -> Any:
        made = template.render(scope)
        return None if made is MISSING else made

    return render_or_null, template.names


class PathTemplate:
    """A path relative to the pipeline's folder that no packet can lead out of its own.

    Source: decision 23. The folder written before the first hole of a packet is
    the lane; holes of `env` and `secrets` are the operator's and belong to it.
    Some fields (`kind`) also take what is no path, and it stays as it is. `or-url`: an http(s)
    address; what is sent from such a field is only read, so it may also be one of the
    pipeline's own `files`. `or-name`: a name without a `/`, looked for on PATH.
    """

    def __init__(
        self, text: str, folder: Path, *, kind: bool | str = True, files: Path | None = None
    ) -> None:
        self._text = text
        self._is_no_path = _NO_PATHS.get(kind)
        self._as_text = compile_template(text) if self._is_no_path else None
        self._folder = folder
        self._files = files
        self._parts = [
            compile_expression(part.source) if isinstance(part, Hole) else part
            for part in split(text)
        ]
        holes = [part for part in self._parts if isinstance(part, Expression)]
        self.names = frozenset(name for hole in holes for name in hole.names)
        self.constant: str | None = None
        if not holes:
            plain = "".join(str(part) for part in self._parts)
            stays = self._is_no_path is not None and self._is_no_path(plain)
            self.constant = plain if stays else self._absolute(plain)

    def render(self, scope: Scope) -> str:
        """The absolute path for one packet. Raises: RenderError."""
        if self.constant is not None:
            return self.constant
        if self._as_text is not None and self._is_no_path is not None:
            made = self._as_text.render(scope)
            if self._is_no_path(made) or self._is_own_file(made):
                return str(made)
        text = ""
        lane: str | None = None
        for part in self._parts:
            if isinstance(part, str):
                text += part
                continue
            value = self._text_of(part.evaluate(scope))
            if not part.names <= _OPERATORS:
                if lane is None:
                    lane = self._absolute(
                        text.rpartition("/")[0] or ("/" if text[:1] == "/" else ".")
                    )
                self._refuse_escape(value)
            text += value
        path = self._absolute(text)
        if lane is not None:
            self._stay_inside(lane, path)
        return path

    def _is_own_file(self, made: Any) -> bool:
        if self._files is None or not isinstance(made, str) or "\0" in made:
            return False
        if not made.startswith(f"{self._files}/"):
            return False
        return _stays_inside(str(self._files), made)

    def _absolute(self, text: str) -> str:
        if not text:
            raise RenderError(f"the path '{self._text}' renders to nothing")
        return os.path.normpath(os.path.join(self._folder, text))

    def _text_of(self, value: Any) -> str:
        if value is MISSING or value is None:
            raise RenderError(
                f"the path '{self._text}' needs a value that the packet does not have"
            )
        if isinstance(value, (dict, list)):
            kind = "an object" if isinstance(value, dict) else "a list"
            raise RenderError(f"the path '{self._text}' renders {kind}, not a name")
        text = mixed_text(value)
        if not text:
            raise RenderError(f"the path '{self._text}' renders an empty name")
        if "\0" in text:
            raise RenderError(f"the path '{self._text}' renders a NUL: {_shown(text)}")
        return text

    def _refuse_escape(self, value: str) -> None:
        if any(segment in ("", ".", "..") for segment in value.split("/")):
            raise RenderError(f"the path '{self._text}' would leave its folder: {_shown(value)}")
        try:
            longest = max(len(segment.encode()) for segment in value.split("/"))
        except UnicodeEncodeError:
            raise RenderError(
                f"the path '{self._text}' renders text that is no UTF-8: {_shown(value)}"
            ) from None
        if longest > _SEGMENT_BYTES_LIMIT:
            raise RenderError(
                f"the path '{self._text}' renders a name of {longest} bytes, more than "
                f"{_SEGMENT_BYTES_LIMIT}: {_shown(value)}"
            )

    def _stay_inside(self, lane: str, path: str) -> None:
        # A link inside is followed only where its target stays inside.
        if not _stays_inside(lane, path):
            raise RenderError(
                f"the path '{self._text}' would leave its folder through a link: "
                f"{_shown(os.path.relpath(path, lane))}"
            )


def _stays_inside(lane: str, path: str) -> bool:
    real_lane, real_path = os.path.realpath(lane), os.path.realpath(path)
    return os.path.commonpath([real_lane, real_path]) == real_lane


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "/" not in value


_NO_PATHS: Final[Mapping[bool | str, Callable[[Any], bool]]] = {
    "or-url": _is_url,
    "or-name": _is_name,
}


def _shown(value: str) -> str:
    text = ascii(value) if not value.isprintable() else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
